//! MUL_MAT family: weights dequantised to f32, products summed in f64, activations never quantised.
//!
//! Blocked by sixteen activation rows and 32 elements of k so that a whole model runs with it in bearable time.

use hexloom_abi::{Opcode, Status};

use crate::hvx::plain::Plain;
use crate::hvx::{Isa, Kernel, LANES, Part};
use crate::kernels::dequantize::Blocks;
use crate::kernels::rows::Row;
use crate::kernels::{Context, OpArgs};
use crate::tensor::Tensor;

/// Activation rows that share the dequantised block.
const ROWS: usize = 16;

pub(super) fn matmul(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
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
            let mut first = 0;
            while first < self.x.rows() {
                first += self.some_rows(row, first);
            }
        }
    }
}

impl Product<'_> {
    /// The weight matrix that activation row `act_row` meets.
    fn matrix(&self, act_row: usize) -> [usize; 2] {
        let [_, _, w2, w3] = self.weight.ne();
        let [_, _, x2, x3] = self.x.ne();
        let [_, i2, i3] = self.x.row_index(act_row);
        [i2 / (x2 / w2), i3 / (x3 / w3)]
    }

    /// Weight row `row` with up to sixteen activation rows from `first` that meet the same matrix; returns how many.
    fn some_rows(&self, row: usize, first: usize) -> usize {
        let matrix = self.matrix(first);
        let end = self.x.rows().min(first + ROWS);
        let count = (first..end)
            .take_while(|&act_row| self.matrix(act_row) == matrix)
            .count();
        let weight = Blocks::new(&self.weight, [row, matrix[0], matrix[1]]);
        let x: [Row<'_>; ROWS] =
            core::array::from_fn(|idx| Row::new(&self.x, self.x.row_index((first + idx).min(end - 1))));
        let mut sums = [[0.0f64; LANES]; ROWS];
        for block in 0..self.weight.ne()[0].div_ceil(LANES) {
            let weight = weight.get(block).map(f64::from);
            for (x, sums) in x.iter().zip(&mut sums).take(count) {
                let x = x.load::<Plain>(block * LANES, 0.0);
                for lane in 0..LANES {
                    sums[lane] += weight[lane] * f64::from(x[lane]);
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
        count
    }
}
