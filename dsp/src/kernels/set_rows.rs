//! SET_ROWS: rows stored at the indices of another tensor, converted to the destination's type.
//!
//! Every index is checked before anything is written, and, as others may write to the memory in which it lies, again when its
//! row is stored. Threads take columns, not rows, so that of two rows with one index the later always wins.

use core::sync::atomic::{AtomicBool, Ordering};

use hexloom_abi::{DType, Status};

use super::get_rows::table_row;
use super::rows::Row;
use super::{Context, OpArgs, encode};
use crate::hvx::plain::f32_to_f16;
use crate::hvx::{Isa, Kernel, LANES, Part, math};
use crate::tensor::{Span, Tensor};

pub(super) fn set_rows<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = SetRows {
        rows: args.src(0)?,
        targets: Targets(args.src(1)?),
        out: args.dst(0)?,
        outside: AtomicBool::new(false),
    };
    kernel.targets.check(kernel.out.ne()[1])?;
    cx.run_sized::<I, _>(&kernel, args.op.src(0).map_or(0, |rows| rows.elems()))?;
    match kernel.outside.into_inner() {
        true => Err(Status::IndexOutOfRange),
        false => Ok(()),
    }
}

/// Row numbers, I32 or I64, repeated over dimensions 2 and 3 of the rows.
pub(super) struct Targets<'a>(pub(super) Tensor<'a>);

impl Targets<'_> {
    /// Fails when a row number is negative or not below `n_rows`.
    pub(super) fn check(&self, n_rows: usize) -> Result<(), Status> {
        let [n0, n1, n2, _] = self.0.ne();
        for i2 in 0..n2 {
            for i1 in 0..n1 {
                for i0 in 0..n0 {
                    table_row(&self.0, [i0, i1, i2], n_rows).ok_or(Status::IndexOutOfRange)?;
                }
            }
        }
        Ok(())
    }

    /// Where row `[i1, i2, i3]` goes; `None` when there is no such row of `n_rows`.
    #[inline(always)]
    pub(super) fn of(&self, [i1, i2, i3]: [usize; 3], n_rows: usize) -> Option<usize> {
        let [_, n1, n2, _] = self.0.ne();
        table_row(&self.0, [i1, i2 % n1, i3 % n2], n_rows)
    }
}

struct SetRows<'a> {
    rows: Tensor<'a>,
    targets: Targets<'a>,
    out: Tensor<'a>,
    outside: AtomicBool,
}

impl Kernel for SetRows<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [len, ..] = self.rows.ne();
        let columns = part.range(len.div_ceil(LANES));
        if columns.is_empty() {
            return;
        }
        let columns = columns.start * LANES..(columns.end * LANES).min(len);
        for row in 0..self.rows.rows() {
            let index @ [_, i2, i3] = self.rows.row_index(row);
            let Some(to) = self.targets.of(index, self.out.ne()[1]) else {
                self.outside.store(true, Ordering::Relaxed);
                continue;
            };
            let to = [to, i2, i3];
            let from = Row::new(&self.rows, index);
            if self.out.dtype() == DType::Q8_0 {
                let bytes = self.out.row_bytes(to);
                for start in columns.clone().step_by(LANES) {
                    quantize::<I>(
                        from.load::<I>(start, 0.0),
                        bytes.part(start / LANES * Q8_BYTES, Q8_BYTES),
                    );
                }
                continue;
            }
            if self.out.dtype().is_quantized() {
                let (bytes, size) = (self.out.row_bytes(to), self.out.dtype().block_bytes() as usize);
                for start in columns.clone().step_by(LANES) {
                    let lanes = I::to_array(from.load::<I>(start, 0.0));
                    encode::block(self.out.dtype(), &lanes, bytes.part(start / LANES * size, size));
                }
                continue;
            }
            let out = Row::new(&self.out, to);
            for start in columns.clone().step_by(LANES) {
                out.store::<I>(start, from.load::<I>(start, 0.0));
            }
        }
    }
}

/// Bytes of 32 signed bytes with their f16 scale.
const Q8_BYTES: usize = 34;

/// One block as ggml makes it: scale amax / 127, kept as f16; codes are x * (127 / amax), to nearest even.
#[inline(always)]
fn quantize<I: Isa>(x: I::F32, block: Span<'_, u8>) {
    let largest = I::max_lane(math::abs::<I>(x));
    let scale = largest / 127.0;
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    let scaled = I::mul(x, I::splat(inverse));
    let codes = I::to_int(I::min(I::max(scaled, I::splat(-127.0)), I::splat(127.0)));
    let [low, high] = f32_to_f16(scale).to_le_bytes();
    block.set(0, low);
    block.set(1, high);
    // SAFETY: `part` has checked that 32 bytes follow the scale.
    unsafe { I::store_i8(block.part(2, LANES).as_ptr().cast(), codes) };
}
