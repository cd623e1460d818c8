//! CPY: elements in storage order from one shape to another, with conversion between the float types.
//!
//! Work goes by runs: the elements that lie in one row on both sides.

use hexloom_abi::{DType, Status};

use super::rows::{Pieces, Row};
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, Part};
use crate::tensor::{Plain, Tensor};

pub(super) fn cpy<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = Cpy {
        from: args.src(0)?,
        to: args.dst(0)?,
    };
    cx.run_sized::<I, _>(&kernel, args.op.dst(0).map_or(0, |out| out.elems()))
}

struct Cpy<'a> {
    from: Tensor<'a>,
    to: Tensor<'a>,
}

/// `len` elements from `from.1` of row `from.0` to `to.1` of row `to.0`.
struct Run {
    from: ([usize; 3], usize),
    to: ([usize; 3], usize),
    len: usize,
}

impl Kernel for Cpy<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let ([from_len, ..], [to_len, ..]) = (self.from.ne(), self.to.ne());
        for piece in Pieces::new(part, self.to.rows(), to_len) {
            let to = self.to.row_index(piece.row);
            let mut at = piece.start;
            while at < piece.end {
                let place = piece.row * to_len + at;
                let start = place % from_len;
                let run = Run {
                    from: (self.from.row_index(place / from_len), start),
                    to: (to, at),
                    len: (piece.end - at).min(from_len - start),
                };
                at += run.len;
                match (self.from.dtype(), self.to.dtype()) {
                    (DType::F16, DType::F16) => self.move_run::<u16>(&run),
                    (DType::F32, DType::F32) | (DType::I32, DType::I32) => self.move_run::<u32>(&run),
                    (DType::I64, DType::I64) => self.move_run::<i64>(&run),
                    _ => self.convert_run::<I>(&run),
                }
            }
        }
    }
}

impl Cpy<'_> {
    /// Between types of the same bits.
    #[inline(always)]
    fn move_run<T: Plain>(&self, run: &Run) {
        let ((from_row, from_start), (to_row, to_start)) = (run.from, run.to);
        if self.from.shape().rows_dense() && self.to.shape().rows_dense() {
            let from = self.from.row::<T>(from_row).part(from_start, run.len);
            self.to.row::<T>(to_row).part(to_start, run.len).copy_from(from);
            return;
        }
        for idx in 0..run.len {
            let value = self.from.element::<T>(from_start + idx, from_row).get(0);
            self.to.element::<T>(to_start + idx, to_row).set(0, value);
        }
    }

    #[inline(always)]
    fn convert_run<I: Isa>(&self, run: &Run) {
        let ((from_row, from_start), (to_row, to_start)) = (run.from, run.to);
        let from = Row::new(&self.from, from_row).part(from_start, run.len);
        let to = Row::new(&self.to, to_row).part(to_start, run.len);
        for start in from.starts() {
            to.store::<I>(start, from.load::<I>(start, 0.0));
        }
    }
}
