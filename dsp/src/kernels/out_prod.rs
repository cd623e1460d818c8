//! OUT_PROD: rows of one matrix weighted by the rows of another and summed, 32 columns of a result row at a time.

use hexloom_abi::Status;

use super::dequantize::Blocks;
use super::rows::{Pieces, Row};
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, LANES, Part};
use crate::tensor::Tensor;

pub(super) fn out_prod<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = OutProd {
        a: args.src(0)?,
        b: args.src(1)?,
        out: args.dst(0)?,
    };
    let elems = args.op.dst(0).map_or(0, |out| out.elems());
    cx.run_sized::<I, _>(&kernel, elems.saturating_mul(kernel.a.ne()[1] as u64))
}

struct OutProd<'a> {
    a: Tensor<'a>,
    b: Tensor<'a>,
    out: Tensor<'a>,
}

impl Kernel for OutProd<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [_, depth, a2, a3] = self.a.ne();
        let [_, _, b2, b3] = self.b.ne();
        for piece in Pieces::new(part, self.out.rows(), self.out.ne()[0]) {
            let index @ [i1, i2, i3] = self.out.row_index(piece.row);
            let matrix = [i2 / (b2 / a2), i3 / (b3 / a3)];
            let out = Row::new(&self.out, index);
            for start in piece.starts() {
                let mut sum = I::splat(0.0);
                for k in 0..depth {
                    let weight = Row::new(&self.b, [k, i2, i3]).get(i1);
                    let row = [k, matrix[0], matrix[1]];
                    let x = if self.a.dtype().is_quantized() {
                        I::from_array(Blocks::new(&self.a, row).get(start / LANES))
                    } else {
                        Row::new(&self.a, row).load::<I>(start, 0.0)
                    };
                    sum = I::add(sum, I::mul(x, I::splat(weight)));
                }
                out.store::<I>(start, sum);
            }
        }
    }
}
