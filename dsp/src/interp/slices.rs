//! A product with weights in extended buffers that are too large for scratch: slices of rows, one after the other.
//!
//! A slice of the weight's rows makes the same elements of the destination's rows, from the same activation, so each slice
//! is an op of its own. Two slices have room at a time where scratch allows: one is multiplied while the next one comes.

use hexloom_abi::op::Shape;
use hexloom_abi::tile::{TILE_ROWS, TileLayout};
use hexloom_abi::{Opcode, Status, TensorDesc};

use super::Failure;
use super::op::fail;
use super::operands::{Operands, cut};
use super::stage::{Mover, Room, copy_of, lines};
use crate::platform::Platform;
use crate::tensor::Span;

/// How the rows of one weight are sliced.
struct Slicing<'a> {
    weight: TensorDesc,
    shape: Shape,
    /// Rows of a slice.
    rows: u32,
    /// Where slices come to: in turn.
    slots: [Span<'a, u8>; 2],
    n_slots: u32,
    kernel: Span<'a, u8>,
}

/// Runs a product; bit i of `large` says that weight i comes in slices. Other operands are in place.
pub(super) fn run<'a, P: Platform>(
    mover: &Mover<'a, '_, P>,
    operands: &Operands<'a>,
    large: u16,
    room: Room<'a>,
) -> Result<(), Failure> {
    let n_weights = operands.dsts.iter().flatten().count();
    for idx in 0..n_weights {
        let single = single(operands, idx, n_weights);
        match large >> idx & 1 {
            0 => mover.run_kernel(&single, room.0)?,
            _ => in_slices(mover, &single, room)?,
        }
    }
    Ok(())
}

/// One product of an op that may have several.
fn single<'a>(operands: &Operands<'a>, idx: usize, n_weights: usize) -> Operands<'a> {
    let mut single = operands.clone();
    if operands.opcode == Opcode::MulMatNx {
        single.opcode = Opcode::MulMat;
        (single.srcs, single.staged, single.dsts) = ([None; 10], [None; 10], [None; 4]);
        for (to, from) in [(0, idx), (1, n_weights)] {
            single.srcs[to] = operands.srcs[from];
            single.staged[to] = operands.staged[from];
        }
        single.dsts[0] = operands.dsts[idx];
    }
    single
}

fn in_slices<'a, P: Platform>(
    mover: &Mover<'a, '_, P>,
    operands: &Operands<'a>,
    room: Room<'a>,
) -> Result<(), Failure> {
    let slicing = Slicing::new(mover, operands, room).ok_or(fail(Status::ScratchTooSmall, 0x100))?;
    let n_slices = slicing.shape.ne[1].div_ceil(slicing.rows);
    let mut ticket = None;
    for idx in 0..n_slices {
        if idx == 0 || slicing.n_slots == 1 {
            slicing.bring(mover, idx)?;
            ticket = mover.ticket();
        }
        mover.wait(ticket)?;
        if slicing.n_slots == 2 && idx + 1 < n_slices {
            slicing.bring(mover, idx + 1)?;
            ticket = mover.ticket();
        }
        mover.run_kernel(&slicing.operands(operands, idx), slicing.kernel)?;
    }
    Ok(())
}

impl<'a> Slicing<'a> {
    /// Divides what is left of scratch; `None` when not even one unit of rows fits beside the kernel's least.
    fn new<P: Platform>(mover: &Mover<'a, '_, P>, operands: &Operands<'a>, room: Room<'a>) -> Option<Self> {
        let weight = *operands.src(0).ok()?;
        let shape = Shape::try_from(&weight).ok()?;
        let (least, full) = (mover.least(operands), mover.full(operands));
        let free = room.0.len() as u64 / 128 * 128;
        let spare = free.checked_sub(lines(least))?;
        let bytes = |rows: u32| slice_shape(&shape, rows)?.extent_bytes().map(lines);
        // Fewer rows than a group are a slice of floats only.
        let unit = match bytes(TILE_ROWS)? <= spare || shape.tiled {
            true => TILE_ROWS,
            false => 1,
        };
        let unit_bytes = bytes(unit)?.max(1);
        let n_slots = if 2 * unit_bytes <= spare { 2 } else { 1 };
        // The kernel gets what it would like, up to half; slices share the rest, and have room for a unit each.
        let wish = lines(full).clamp(lines(least), lines(least).max(free / 2 / 128 * 128));
        let area = (free - wish).max(unit_bytes * n_slots).min(spare);
        let slot_bytes = area / n_slots / 128 * 128;
        let units = u32::try_from(slot_bytes / unit_bytes)
            .ok()?
            .min(shape.ne[1].div_ceil(unit));
        if units == 0 {
            return None;
        }
        let mut room = Room(room.0.part(0, free as usize));
        let first = room.take_end(slot_bytes)?;
        let second = if n_slots == 2 {
            room.take_end(slot_bytes)?
        } else {
            first
        };
        Some(Self {
            weight,
            shape,
            rows: units * unit,
            slots: [first, second],
            n_slots: n_slots as u32,
            kernel: room.0,
        })
    }

    fn range(&self, idx: u32) -> (u32, u32) {
        let start = idx * self.rows;
        (start, self.rows.min(self.shape.ne[1] - start))
    }

    fn slot(&self, idx: u32) -> Span<'a, u8> {
        self.slots[(idx % self.n_slots) as usize]
    }

    /// Begins to bring slice `idx`.
    fn bring<P: Platform>(&self, mover: &Mover<'a, '_, P>, idx: u32) -> Result<(), Failure> {
        let bad = || fail(Status::Internal, 0);
        let (start, len) = self.range(idx);
        let to = slice_shape(&self.shape, len).ok_or_else(bad)?;
        let [_, b1, b2, b3] = self.shape.nb.map(u64::from);
        let [_, _, n2, n3] = self.shape.ne;
        let steps = if self.shape.tiled { start / TILE_ROWS } else { start };
        for i3 in 0..n3 {
            for i2 in 0..n2 {
                let from = u64::from(steps) * b1 + u64::from(i2) * b2 + u64::from(i3) * b3;
                let from = mover.address(&self.weight, from)?;
                let at = u64::from(i2) * u64::from(to.nb[2]) + u64::from(i3) * u64::from(to.nb[3]);
                let slot = self.slot(idx).part(at as usize, to.nb[2] as usize);
                if self.shape.tiled || self.shape.nb[1] == to.nb[1] {
                    mover.bring(from, slot)?;
                } else {
                    mover.bring_rows(from, (to.nb[1], self.shape.nb[1]), slot)?;
                }
            }
        }
        Ok(())
    }

    /// The op on slice `idx`.
    fn operands(&self, operands: &Operands<'a>, idx: u32) -> Operands<'a> {
        let (start, len) = self.range(idx);
        let mut slice = operands.clone();
        if let Some(shape) = slice_shape(&self.shape, len) {
            slice.srcs[0] = Some(copy_of(&self.weight, &shape));
        }
        slice.staged[0] = Some(self.slot(idx));
        if operands.opcode == Opcode::MulMatAdd
            && let Some(addend) = &operands.srcs[2]
        {
            let part = cut(addend, 0, start, len);
            let skipped = (part.offset - addend.offset) as usize;
            slice.staged[2] = operands.staged[2].map(|copy| copy.part(skipped, copy.len() - skipped));
            slice.srcs[2] = Some(part);
        }
        slice.dsts[0] = operands.dsts[0].as_ref().map(|dst| cut(dst, 0, start, len));
        slice
    }
}

/// The shape of a slice of `rows` rows that lies by itself.
fn slice_shape(shape: &Shape, rows: u32) -> Option<Shape> {
    let [k, _, n2, n3] = shape.ne;
    let ne = [k, rows, n2, n3];
    if !shape.tiled {
        return Shape::dense(shape.dtype, ne);
    }
    let nb = TileLayout::new(shape.dtype, k)?.strides(shape.dtype, ne)?;
    Some(Shape { ne, nb, ..*shape })
}
