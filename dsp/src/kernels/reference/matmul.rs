//! MUL_MAT family: weights dequantised to f32, products summed in f64, activations never quantised.
//!
//! Blocked by sixteen activation rows and 32 elements of k so that a whole model runs with it in bearable time.

use hexloom_abi::{Opcode, Status};

use crate::hvx::plain::Plain;
use crate::hvx::{Isa, Kernel, LANES, Part};
use crate::kernels::dequantize;
use crate::kernels::rows::Row;
use crate::kernels::{Context, OpArgs};
use crate::platform::Platform;
use crate::tensor::Tensor;

/// Activation rows that share the dequantised block.
const ROWS: usize = 16;

pub(super) fn matmul<P: Platform>(cx: &Context<'_, P>, args: &OpArgs<'_>) -> Result<(), Status> {
    let with_add = args.op.opcode == Opcode::MulMatAdd;
    let n_weights = args.op.n_srcs() - 1 - usize::from(with_add);
    for idx in 0..n_weights {
        cx.run::<Plain, _>(&Product {
            weight: args.src(idx)?,
            x: args.src(n_weights)?,
            addend: if with_add { Some(args.src(2)?) } else { None },
            out: args.dst(idx)?,
        })?;
    }
    Ok(())
}

struct Product<'a> {
    weight: Tensor<'a>,
    x: Tensor<'a>,
    addend: Option<Tensor<'a>>,
    out: Tensor<'a>,
}

impl Kernel for Product<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        for row in part.range(self.out.ne()[0]) {
            for first in (0..self.x.rows()).step_by(ROWS) {
                self.some_rows(row, first, ROWS.min(self.x.rows() - first));
            }
        }
    }
}

impl Product<'_> {
    /// Weight row `row` with `count` activation rows from `first`.
    fn some_rows(&self, row: usize, first: usize, count: usize) {
        let [k, _, w2, w3] = self.weight.ne();
        let [_, _, x2, x3] = self.x.ne();
        let matrix = |act_row: usize| {
            let [_, i2, i3] = self.x.row_index(act_row);
            [i2 / (x2 / w2), i3 / (x3 / w3)]
        };
        let mut sums = [[0.0f64; LANES]; ROWS];
        for block in 0..k.div_ceil(LANES) {
            let mut current = None;
            let mut weight = [0.0; LANES];
            for (idx, sums) in sums.iter_mut().enumerate().take(count) {
                let at = matrix(first + idx);
                if current != Some(at) {
                    weight = dequantize::block(&self.weight, [row, at[0], at[1]], block);
                    current = Some(at);
                }
                let x = Row::new(&self.x, self.x.row_index(first + idx)).load::<Plain>(block * LANES, 0.0);
                for (sum, (w, x)) in sums.iter_mut().zip(weight.iter().zip(&x)) {
                    *sum += f64::from(*w) * f64::from(*x);
                }
            }
        }
        for (idx, sums) in sums.iter().enumerate().take(count) {
            let index = self.out.row_index(first + idx);
            let addend = self.addend.map_or(0.0, |addend| {
                let [_, n1, n2, n3] = addend.ne();
                let at = [index[0] % n1, index[1] % n2, index[2] % n3];
                addend.row::<f32>(at).get(row)
            });
            let sum = sums.iter().sum::<f64>() + f64::from(addend);
            self.out.row::<f32>(index).set(row, sum as f32);
        }
    }
}
