//! Which weights of a buffer lie there as tiles, and the way from rows to tiles and back, in place.
//!
//! ggml writes and reads rows. A product wants tiles, so a weight is turned into tiles when the first graph that
//! multiplies by it is prepared, and back when somebody writes a part of it or an op reads rows only. Both ways are exact.
//! Room for the padding of tiles is in the size that ggml asks for before it allocates.

use std::collections::BTreeMap;
use std::ops::Range;

use hexloom::abi::tile::{TILE_ROWS, TileLayout};
use hexloom::{Buffer, DType, MapError, repack};

use crate::error::BackendError;

/// Bytes below which one thread turns a weight.
const ALONE_BYTES: u64 = 1 << 20;

/// A quantised matrix, or several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Weight {
    pub(crate) dtype: DType,
    pub(crate) ne: [u32; 4],
    pub(crate) layout: TileLayout,
}

/// The weights that are tiles now, by offset; they do not overlap.
#[derive(Default)]
pub(super) struct Tiles {
    tiled: BTreeMap<u64, Weight>,
}

impl Weight {
    /// A weight that can be tiled.
    pub(crate) fn new(dtype: DType, ne: [u32; 4]) -> Option<Self> {
        let layout = TileLayout::new(dtype, ne[0])?;
        layout.tensor_bytes(ne)?;
        Some(Self { dtype, ne, layout })
    }

    /// Bytes of one row in ggml's layout.
    fn row(&self) -> u64 {
        u64::from(self.layout.k_tiles) * self.dtype.block_bytes()
    }

    /// Bytes in ggml's layout.
    pub(crate) fn row_bytes(&self) -> u64 {
        let [_, n1, n2, n3] = self.ne;
        self.row() * u64::from(n1) * u64::from(n2) * u64::from(n3)
    }

    fn tile_bytes(&self) -> u64 {
        self.layout.tensor_bytes(self.ne).unwrap_or(0)
    }

    fn bytes(&self) -> u64 {
        self.row_bytes().max(self.tile_bytes())
    }

    /// For each group of 32 rows: where its rows are in the rows' bytes, and where its tiles are.
    fn groups(&self) -> impl Iterator<Item = (Range<usize>, u64)> + use<> {
        let (row, n_rows) = (self.row(), u64::from(self.ne[1]));
        let group_bytes = u64::from(self.layout.group_bytes);
        let per_matrix = u64::from(TileLayout::groups(self.ne[1]));
        let matrices = u64::from(self.ne[2]) * u64::from(self.ne[3]);
        (0..matrices * per_matrix).map(move |idx| {
            let (matrix, group) = (idx / per_matrix, idx % per_matrix);
            let first = group * u64::from(TILE_ROWS);
            let last = (first + u64::from(TILE_ROWS)).min(n_rows);
            let start = |at: u64| ((matrix * n_rows + at) * row) as usize;
            (start(first)..start(last), idx * group_bytes)
        })
    }

    fn pack(&self, buffer: &Buffer, offset: u64) -> Result<(), MapError> {
        let mut rows = vec![0; self.row_bytes() as usize];
        buffer.read(offset, &mut rows)?;
        let groups: Vec<(Range<usize>, u64)> = self.groups().collect();
        on_threads(&groups, self.bytes(), |part| {
            let mut tiles = vec![0; self.layout.group_bytes as usize];
            for (range, at) in part {
                repack::pack_group(self.dtype, &self.layout, &rows[range.clone()], &mut tiles);
                buffer.write(offset + at, &tiles)?;
            }
            Ok(())
        })
    }

    fn unpack(&self, buffer: &Buffer, offset: u64) -> Result<Vec<u8>, MapError> {
        let mut rows = vec![0; self.row_bytes() as usize];
        let mut tiles = vec![0; self.layout.group_bytes as usize];
        for (range, at) in self.groups() {
            buffer.read(offset + at, &mut tiles)?;
            repack::unpack_group(self.dtype, &self.layout, &tiles, &mut rows[range]);
        }
        Ok(rows)
    }
}

impl Tiles {
    pub(super) fn is_tiled(&self, offset: u64) -> bool {
        self.tiled.contains_key(&offset)
    }

    /// Turns the weight at `offset` into tiles; whether it was not.
    pub(super) fn tile(&mut self, buffer: &Buffer, offset: u64, weight: &Weight) -> Result<bool, BackendError> {
        if self.tiled.get(&offset) == Some(weight) {
            return Ok(false);
        }
        // Another weight at the same place, or a part of one: a view that starts where its parent does.
        self.untile(buffer, offset..offset + weight.bytes())?;
        weight.pack(buffer, offset)?;
        self.tiled.insert(offset, *weight);
        Ok(true)
    }

    /// Turns what overlaps the range back into rows; whether there was anything.
    pub(super) fn untile(&mut self, buffer: &Buffer, range: Range<u64>) -> Result<bool, BackendError> {
        let found = self.overlapping(&range);
        for (offset, weight) in &found {
            let rows = weight.unpack(buffer, *offset)?;
            buffer.write(*offset, &rows)?;
            self.tiled.remove(offset);
        }
        Ok(!found.is_empty())
    }

    /// Forgets what overlaps the range, whose bytes mean nothing any more; whether there was anything.
    pub(super) fn forget(&mut self, range: Range<u64>) -> bool {
        let found = self.overlapping(&range);
        for (offset, _) in &found {
            self.tiled.remove(offset);
        }
        !found.is_empty()
    }

    /// Copies bytes out as if everything were rows.
    pub(super) fn read(&self, buffer: &Buffer, offset: u64, data: &mut [u8]) -> Result<(), BackendError> {
        buffer.read(offset, data)?;
        let end = offset + data.len() as u64;
        for (start, weight) in self.overlapping(&(offset..end)) {
            let rows = weight.unpack(buffer, start)?;
            let (from, to) = (offset.max(start), end.min(start + rows.len() as u64));
            if from < to {
                let len = (to - from) as usize;
                let source = &rows[(from - start) as usize..][..len];
                data[(from - offset) as usize..][..len].copy_from_slice(source);
            }
        }
        Ok(())
    }

    fn overlapping(&self, range: &Range<u64>) -> Vec<(u64, Weight)> {
        // They do not overlap each other, so only the last one before the range can reach into it.
        let before = self.tiled.range(..range.start).next_back();
        let within = self.tiled.range(range.clone());
        let touching = |found: &(&u64, &Weight)| found.0 + found.1.bytes() > range.start;
        let found = before.into_iter().filter(touching).chain(within);
        found.map(|(&offset, &weight)| (offset, weight)).collect()
    }
}

/// Runs `work` over parts of `items` on all processors when there is much to do.
fn on_threads<T: Sync>(
    items: &[T],
    bytes: u64,
    work: impl Fn(&[T]) -> Result<(), MapError> + Sync,
) -> Result<(), MapError> {
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    if bytes < ALONE_BYTES || n_threads == 1 {
        return work(items);
    }
    std::thread::scope(|scope| {
        let parts = items.chunks(items.len().div_ceil(n_threads).max(1));
        let threads: Vec<_> = parts.map(|part| scope.spawn(|| work(part))).collect();
        let mut results = threads
            .into_iter()
            .map(|thread| thread.join().expect("packing checks its sizes"));
        results.try_for_each(|result| result)
    })
}

#[cfg(test)]
mod tests;
