//! Cuts a transfer into descriptors that the engine takes: every byte once, nothing truncated.
//!
//! Contiguous bytes become linear pieces; rows within the limits become pieces of at most 65,535 rows; other rows go one
//! by one. What no piece can reach is refused before anything is begun.

use super::descriptor::{Arch, Bits, Descriptor, FarRows, Linear, Rows};
use super::{DmaError, Transfer};

/// Most bytes of a linear piece: below the field's limit and a multiple of a line, so that pieces stay aligned.
const LINEAR_BYTES: u64 = 0xf0_0000;

/// What is left of a transfer, as an iterator over its pieces.
#[derive(Clone, Debug)]
pub struct Pieces {
    arch: Arch,
    source: u64,
    target: u64,
    row_bytes: u64,
    rows: u64,
    source_stride: u64,
    target_stride: u64,
    /// Bytes of the current row that are done; above 0 only when rows go one by one.
    column: u64,
}

/// The pieces of a transfer, whose addresses are the engine's.
pub fn pieces(arch: Arch, transfer: &Transfer) -> Result<Pieces, DmaError> {
    let (source_end, target_end) = transfer.ends().ok_or(DmaError::Unreachable)?;
    let limit = match arch {
        Arch::V68 | Arch::V75 => 1 << 32,
        Arch::V81 => 1 << 40,
    };
    if source_end > limit || target_end > limit {
        return Err(DmaError::Unreachable);
    }
    let [row_bytes, rows] = [transfer.row_bytes, transfer.rows].map(u64::from);
    let dense = transfer.source_stride == transfer.row_bytes && transfer.target_stride == transfer.row_bytes;
    let (row_bytes, rows) = match transfer.is_empty() {
        true => (0, 0),
        false if dense => (row_bytes * rows, 1),
        false => (row_bytes, rows),
    };
    Ok(Pieces {
        arch,
        source: transfer.source,
        target: transfer.target,
        row_bytes,
        rows,
        source_stride: transfer.source_stride.into(),
        target_stride: transfer.target_stride.into(),
        column: 0,
    })
}

impl Pieces {
    /// As many rows as one descriptor takes, unless they are too long or too far apart for it.
    fn some_rows(&self) -> Option<(Descriptor, u64)> {
        if self.rows < 2 || self.column != 0 {
            return None;
        }
        let rows = self.rows.min(Bits::<16>::MAX);
        let source_end = self.source + (rows - 1) * self.source_stride + self.row_bytes;
        let target_end = self.target + (rows - 1) * self.target_stride + self.row_bytes;
        let descriptor = match self.arch {
            Arch::V68 => Descriptor::Narrow(self.rows_of(rows)?),
            Arch::V75 => Descriptor::Wide(self.rows_of(rows)?),
            Arch::V81 if source_end.max(target_end) > 1 << 32 => Descriptor::Far(self.rows_of(rows)?),
            Arch::V81 => Descriptor::Wide(self.rows_of(rows)?),
        };
        Some((descriptor, rows))
    }

    fn rows_of<const SIZE: u32, const ADDRESS: u32>(&self, rows: u64) -> Option<Rows<SIZE, ADDRESS>> {
        Some(Rows {
            source: Bits::new(self.source)?,
            target: Bits::new(self.target)?,
            row_bytes: Bits::new(self.row_bytes)?,
            rows: Bits::new(rows)?,
            source_stride: Bits::new(self.source_stride)?,
            target_stride: Bits::new(self.target_stride)?,
        })
    }

    /// The next contiguous bytes of the current row.
    fn some_bytes(&self) -> Option<(Descriptor, u64)> {
        let bytes = (self.row_bytes - self.column).min(LINEAR_BYTES);
        let (source, target) = (self.source + self.column, self.target + self.column);
        let near = source.max(target) + bytes <= 1 << 32;
        let descriptor = if near {
            Descriptor::Linear(Linear {
                source: Bits::new(source)?,
                target: Bits::new(target)?,
                bytes: Bits::new(bytes)?,
            })
        } else {
            Descriptor::Far(FarRows {
                source: Bits::new(source)?,
                target: Bits::new(target)?,
                row_bytes: Bits::new(bytes)?,
                rows: Bits::new(1)?,
                source_stride: Bits::new(bytes)?,
                target_stride: Bits::new(bytes)?,
            })
        };
        Some((descriptor, bytes))
    }

    fn skip_rows(&mut self, rows: u64) {
        self.rows -= rows;
        self.source += rows * self.source_stride;
        self.target += rows * self.target_stride;
        self.column = 0;
    }
}

impl Iterator for Pieces {
    type Item = Descriptor;

    fn next(&mut self) -> Option<Descriptor> {
        if self.rows == 0 {
            return None;
        }
        if let Some((descriptor, rows)) = self.some_rows() {
            self.skip_rows(rows);
            return Some(descriptor);
        }
        let (descriptor, bytes) = self.some_bytes()?;
        self.column += bytes;
        if self.column == self.row_bytes {
            self.skip_rows(1);
        }
        Some(descriptor)
    }
}

// A piece fits its field, and the next begins on a line if it did.
const _: () = assert!(LINEAR_BYTES <= Bits::<24>::MAX && LINEAR_BYTES.is_multiple_of(128));

#[cfg(test)]
mod tests;
