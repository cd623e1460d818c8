//! RMS_NORM, RMS_NORM_MUL and NORM: a row is scaled by what its own sum says, so a row stays with one thread.

use hexloom_abi::{Opcode, Status};

use super::rows::Row;
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, Part, math};
use crate::tensor::Tensor;

pub(super) fn norm<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = Norm {
        x: args.src(0)?,
        weight: match args.op.opcode {
            Opcode::RmsNormMul => Some(args.src(1)?),
            _ => None,
        },
        out: args.dst(0)?,
        eps: args.op.param_f32(0),
        centred: args.op.opcode == Opcode::Norm,
    };
    cx.run_rows::<I, _>(&kernel, args.op.dst(0))
}

struct Norm<'a> {
    x: Tensor<'a>,
    weight: Option<Tensor<'a>>,
    out: Tensor<'a>,
    eps: f32,
    /// The mean is taken off first.
    centred: bool,
}

impl Kernel for Norm<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [len, ..] = self.out.ne();
        let count = I::splat(len as f32);
        for row in part.range(self.out.rows()) {
            let index = self.out.row_index(row);
            let x = Row::new(&self.x, index);
            let out = Row::new(&self.out, index);
            let mut mean = 0.0;
            if self.centred {
                let mut sum = I::splat(0.0);
                for start in x.starts() {
                    sum = I::exact_add(sum, x.load::<I>(start, 0.0));
                }
                mean = I::to_array(I::div(I::splat(I::exact_sum(sum)), count))[0];
            }
            // Lanes past the end are the mean, so that they add nothing.
            let mut squares = I::splat(0.0);
            for start in x.starts() {
                let off = self.off::<I>(&x, start, mean);
                squares = I::add(squares, I::mul(off, off));
            }
            let variance = I::div(I::splat(I::sum(squares)), count);
            let scale = math::rsqrt::<I>(I::add(variance, I::splat(self.eps)));
            let weight = self.weight.as_ref().map(|weight| Row::repeated(weight, index));
            for start in x.starts() {
                let mut y = I::mul(self.off::<I>(&x, start, mean), scale);
                if let Some(weight) = &weight {
                    y = I::mul(y, weight.load::<I>(start, 0.0));
                }
                out.store::<I>(start, y);
            }
        }
    }
}

impl Norm<'_> {
    /// 32 elements less the mean. Equal elements have none left over: a trace would be divided by the root of eps.
    #[inline(always)]
    fn off<I: Isa>(&self, x: &Row<'_>, start: usize, mean: f32) -> I::F32 {
        let x = x.load::<I>(start, mean);
        if self.centred {
            I::exact_sub(x, I::splat(mean))
        } else {
            x
        }
    }
}
