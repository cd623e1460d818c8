//! GET_ROWS from a table in an extended buffer that is too large for scratch: only rows that are asked for come.
//!
//! Rows, or the groups of 32 in which tiles have them, are put side by side, and the kernel runs on that small table with
//! indices of its own. Where scratch does not hold one of them, it comes in pieces along the row.

use hexloom_abi::limits::LINE_BYTES;
use hexloom_abi::op::Shape;
use hexloom_abi::tile::{TILE_K, TILE_ROWS, TileLayout};
use hexloom_abi::{DType, Status, TensorDesc};

use super::Failure;
use super::op::fail;
use super::operands::{Operands, cut};
use super::stage::{Mover, Room, copy_of, lines};
use crate::platform::Platform;
use crate::tensor::{Span, Tensor};

/// Rows brought at a time, at most: as many as have indices on a line.
const MAX_ROWS: u32 = LINE_BYTES as u32 / 4;

/// The small table.
struct Rows<'a> {
    table: TensorDesc,
    shape: Shape,
    /// Elements of a row that come at a time, and where in the row they begin.
    piece: (u32, u32),
    indices: Span<'a, i32>,
    copies: Span<'a, u8>,
}

pub(super) fn run<'a, P: Platform>(
    mover: &Mover<'a, '_, P>,
    operands: &Operands<'a>,
    mut room: Room<'a>,
) -> Result<(), Failure> {
    let of = |status| fail(status, 0);
    let (table, dst) = (*operands.src(0).map_err(of)?, *operands.dst(0).map_err(of)?);
    let shape = Shape::try_from(&table).map_err(|_| of(Status::BadDType))?;
    let chosen = mover.tensor(operands, 1)?;
    let [_, n1, n2, n3] = dst.ne;
    for i3 in 0..n3 {
        for i2 in 0..n2 {
            let all = (0..n1).all(|i1| row(&chosen, [i1, i2, i3]).is_some_and(|row| row < shape.ne[1]));
            if !all {
                return Err(of(Status::IndexOutOfRange));
            }
        }
    }
    let too_small = || fail(Status::ScratchTooSmall, 0x100);
    let indices = room.take_end(LINE_BYTES).ok_or_else(too_small)?.cast::<i32>();
    let free = room.0.len() as u64;
    let fits = |elems: u32| copy_bytes(&shape, elems).is_some_and(|bytes| bytes <= free);
    // Whole rows, or as many blocks of one as fit.
    let k = shape.ne[0];
    let piece = match fits(k) {
        true => k,
        false => {
            let blocks = (1..=k.div_ceil(TILE_K)).rev().map(|blocks| blocks * TILE_K);
            blocks
                .into_iter()
                .find(|&elems| elems < k && fits(elems))
                .ok_or_else(too_small)?
        }
    };
    let bytes = copy_bytes(&shape, piece).ok_or_else(too_small)?.max(1);
    let at_once = u32::try_from(free / bytes).unwrap_or(u32::MAX).clamp(1, MAX_ROWS);
    for i3 in 0..n3 {
        for i2 in 0..n2 {
            for first in (0..n1).step_by(at_once as usize) {
                let count = at_once.min(n1 - first);
                for start in (0..k).step_by(piece.max(1) as usize) {
                    let rows = Rows {
                        table,
                        shape,
                        piece: (piece.min(k - start), start),
                        indices,
                        copies: room.0,
                    };
                    let plane = cut(&cut(&dst, 3, i3, 1), 2, i2, 1);
                    let to = cut(&cut(&plane, 1, first, count), 0, start, rows.piece.0);
                    for idx in 0..count {
                        // Read again, since it lies in memory that others write.
                        let row = row(&chosen, [first + idx, i2, i3]).filter(|&row| row < shape.ne[1]);
                        rows.bring(mover, idx, [row.ok_or(of(Status::IndexOutOfRange))?, i2, i3])?;
                    }
                    mover.finish()?;
                    mover.run_kernel(
                        &rows.operands(operands, to, count).ok_or_else(too_small)?,
                        room.0.part(0, 0),
                    )?;
                }
            }
        }
    }
    Ok(())
}

/// The number of the row that an index chooses.
fn row(chosen: &Tensor<'_>, [i1, i2, i3]: [u32; 3]) -> Option<u32> {
    let (i0, rest) = (i1 as usize, [i2 as usize, i3 as usize, 0]);
    let number = match chosen.dtype() {
        DType::I64 => chosen.element::<i64>(i0, rest).get(0),
        _ => i64::from(chosen.element::<i32>(i0, rest).get(0)),
    };
    u32::try_from(number).ok()
}

/// Bytes that one row, or its group, takes with `elems` elements a row.
fn copy_bytes(shape: &Shape, elems: u32) -> Option<u64> {
    let bytes = match shape.tiled {
        true => u64::from(TileLayout::new(shape.dtype, elems)?.group_bytes),
        false => shape.dtype.row_bytes(u64::from(elems))?,
    };
    Some(lines(bytes))
}

impl<'a> Rows<'a> {
    /// Begins to bring a row to place `idx`, and notes its index.
    fn bring<P: Platform>(&self, mover: &Mover<'a, '_, P>, idx: u32, [row, i2, i3]: [u32; 3]) -> Result<(), Failure> {
        let bad = || fail(Status::Internal, 0);
        let (elems, start) = self.piece;
        let [_, b1, b2, b3] = self.shape.nb.map(u64::from);
        let plane = u64::from(i2) * b2 + u64::from(i3) * b3;
        let bytes = copy_bytes(&self.shape, elems).ok_or_else(bad)?;
        let to = self.copies.part((u64::from(idx) * bytes) as usize, bytes as usize);
        if !self.shape.tiled {
            self.indices.set(idx as usize, idx as i32);
            let dtype = self.shape.dtype;
            let skipped = dtype.row_bytes(u64::from(start)).ok_or_else(bad)?;
            let len = dtype.row_bytes(u64::from(elems)).ok_or_else(bad)?;
            let from = mover.address(&self.table, plane + u64::from(row) * b1 + skipped)?;
            return mover.bring(from, to.part(0, len as usize));
        }
        self.indices
            .set(idx as usize, (idx * TILE_ROWS + row % TILE_ROWS) as i32);
        let group = plane + u64::from(row / TILE_ROWS) * b1;
        let whole = TileLayout::new(self.shape.dtype, self.shape.ne[0]).ok_or_else(bad)?;
        let part = TileLayout::new(self.shape.dtype, elems).ok_or_else(bad)?;
        let first = u64::from(start / TILE_K);
        let (codes, scales) = (part.scales_offset as usize, (part.k_tiles * part.scale_bytes) as usize);
        let from = mover.address(&self.table, group + first * u64::from(whole.code_bytes))?;
        mover.bring(from, to.part(0, codes))?;
        let from = group + u64::from(whole.scales_offset) + first * u64::from(whole.scale_bytes);
        mover.bring(mover.address(&self.table, from)?, to.part(codes, scales))
    }

    /// The op on the small table, into `to`.
    fn operands(&self, operands: &Operands<'a>, to: TensorDesc, count: u32) -> Option<Operands<'a>> {
        let (elems, _) = self.piece;
        let bytes = u32::try_from(copy_bytes(&self.shape, elems)?).ok()?;
        let mut part = operands.clone();
        let mut shape = self.shape;
        if shape.tiled {
            shape.ne = [elems, TILE_ROWS * count, 1, 1];
            shape.nb = TileLayout::new(shape.dtype, elems)?.strides(shape.dtype, shape.ne)?;
        } else {
            shape.ne = [elems, count, 1, 1];
            let all = bytes.checked_mul(count)?;
            shape.nb = [shape.nb[0], bytes, all, all];
        }
        part.srcs[0] = Some(copy_of(&self.table, &shape));
        part.staged[0] = Some(self.copies);
        let indices = Shape::dense(DType::I32, [count, 1, 1, 1])?;
        part.srcs[1] = Some(TensorDesc {
            dtype: DType::I32.into(),
            ..copy_of(operands.src(1).ok()?, &indices)
        });
        part.staged[1] = Some(self.indices.cast::<u8>());
        part.dsts[0] = Some(to);
        Some(part)
    }
}
