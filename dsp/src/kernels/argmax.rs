//! ARGMAX: the first index of a row's largest value. NaN never wins; a row of nothing but NaN or -infinity gives 0.

use hexloom_abi::Status;

use super::rows::Row;
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, LANES, Part};
use crate::tensor::Tensor;

pub(super) fn argmax<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = Argmax {
        x: args.src(0)?,
        out: args.dst(0)?,
    };
    cx.run_rows::<I, _>(&kernel, args.op.src(0))
}

struct Argmax<'a> {
    x: Tensor<'a>,
    out: Tensor<'a>,
}

impl Kernel for Argmax<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [width, ..] = self.out.ne();
        for row in part.range(self.x.rows()) {
            let x = Row::new(&self.x, self.x.row_index(row));
            let mut best = I::splat(f32::NEG_INFINITY);
            let mut best_start = I::from_bits(I::splat_i(0));
            for start in x.starts() {
                let value = x.load::<I>(start, f32::NEG_INFINITY);
                let wins = I::gt(value, best);
                best = I::select(wins, value, best);
                best_start = I::select(wins, I::from_bits(I::splat_i(start as i32)), best_start);
            }
            let (values, starts) = (I::to_array(best), I::to_array(best_start));
            let (mut value, mut first) = (f32::NEG_INFINITY, 0);
            for lane in 0..LANES {
                let idx = starts[lane].to_bits() as usize + lane;
                let earlier = values[lane] == value && idx < first;
                if values[lane] > value || earlier {
                    (value, first) = (values[lane], idx);
                }
            }
            let out = self.out.element::<i32>(row % width, self.out.row_index(row / width));
            out.set(0, first as i32);
        }
    }
}
