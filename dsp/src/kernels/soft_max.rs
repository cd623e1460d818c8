//! SOFT_MAX of x * scale + slope * mask over dimension 0, with an optional sink per head in the denominator.
//!
//! A row that is -infinity throughout and has no sink becomes zeros (ggml leaves that case undefined); a row that holds
//! NaN or +infinity becomes NaN. The row's exponents wait in the destination between the passes.

use hexloom_abi::Status;

use super::rows::Row;
use super::slope::slope;
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, Part, math};
use crate::tensor::Tensor;

pub(super) fn soft_max<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = SoftMax {
        x: args.src(0)?,
        mask: args.src_opt(1),
        sinks: args.src_opt(2),
        out: args.dst(0)?,
        scale: args.op.param_f32(0),
        max_bias: args.op.param_f32(1),
    };
    cx.run_rows::<I, _>(&kernel, args.op.dst(0))
}

struct SoftMax<'a> {
    x: Tensor<'a>,
    mask: Option<Tensor<'a>>,
    sinks: Option<Tensor<'a>>,
    out: Tensor<'a>,
    scale: f32,
    max_bias: f32,
}

impl Kernel for SoftMax<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [_, _, n_heads, _] = self.out.ne();
        let scale = I::splat(self.scale);
        for row in part.range(self.out.rows()) {
            let index = self.out.row_index(row);
            let [_, head, _] = index;
            let x = Row::new(&self.x, index);
            let out = Row::new(&self.out, index);
            let mask = self.mask.as_ref().map(|mask| Row::repeated(mask, index));
            let slope = I::splat(slope(self.max_bias, n_heads, head));
            let sink = self.sinks.as_ref().map(|sinks| Row::new(sinks, [0; 3]).get(head));

            let mut max = I::splat(sink.unwrap_or(f32::NEG_INFINITY));
            for start in x.starts() {
                let mut score = I::mul(x.load::<I>(start, f32::NEG_INFINITY), scale);
                if let Some(mask) = &mask {
                    score = I::add(score, I::mul(slope, mask.load::<I>(start, 0.0)));
                }
                out.store::<I>(start, score);
                // Loaded again, because a lane past the end times a negative scale is not -infinity any more.
                max = I::max(max, out.load::<I>(start, f32::NEG_INFINITY));
            }
            let max = match I::max_lane(max) {
                f32::NEG_INFINITY => 0.0,
                max => max,
            };

            let mut sum = I::splat(0.0);
            for start in x.starts() {
                let weight = math::exp::<I>(I::sub(out.load::<I>(start, f32::NEG_INFINITY), I::splat(max)));
                out.store::<I>(start, weight);
                sum = I::add(sum, weight);
            }
            let mut total = I::splat(I::sum(sum));
            if let Some(sink) = sink {
                total = I::add(total, math::exp::<I>(I::splat(sink - max)));
            }
            let zero = I::splat(0.0);
            let inverse = I::select(I::eq(total, zero), zero, I::div(I::splat(1.0), total));
            for start in x.starts() {
                out.store::<I>(start, I::mul(out.load::<I>(start, 0.0), inverse));
            }
        }
    }
}
