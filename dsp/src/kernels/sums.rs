//! SUM, SUM_ROWS, MEAN, L2_NORM, CUMSUM: sums along rows, each row by one thread.
//!
//! Lane l sums elements l, l + 32, ... in order; the lanes fold in the layer's order.

use hexloom_abi::{Opcode, Status};

use super::rows::Row;
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, Part};
use crate::tensor::Tensor;

pub(super) fn sums<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = Sums {
        x: args.src(0)?,
        out: args.dst(0)?,
        opcode: args.op.opcode,
        eps: args.op.param_f32(0),
    };
    // All rows go into one number of SUM.
    match args.op.opcode {
        Opcode::Sum => cx.run_sized::<I, _>(&kernel, 0),
        _ => cx.run_rows::<I, _>(&kernel, args.op.src(0)),
    }
}

struct Sums<'a> {
    x: Tensor<'a>,
    out: Tensor<'a>,
    opcode: Opcode,
    eps: f32,
}

impl Kernel for Sums<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        if self.opcode == Opcode::Sum {
            let total = (0..self.x.rows()).fold(0.0, |total, row| total + sum::<I>(&self.row(row)));
            return Row::new(&self.out, [0; 3]).set(0, total);
        }
        for row in part.range(self.x.rows()) {
            let index = self.x.row_index(row);
            let (x, out) = (self.row(row), Row::new(&self.out, index));
            match self.opcode {
                Opcode::SumRows => out.set(0, sum::<I>(&x)),
                Opcode::Mean => out.set(0, sum::<I>(&x) / self.x.ne()[0] as f32),
                Opcode::Cumsum => {
                    let mut total = 0.0;
                    for idx in 0..self.x.ne()[0] {
                        total += x.get(idx);
                        out.set(idx, total);
                    }
                }
                _ => self.normalize::<I>(&x, &out),
            }
        }
    }
}

impl<'a> Sums<'a> {
    #[inline(always)]
    fn row(&self, row: usize) -> Row<'a> {
        Row::new(&self.x, self.x.row_index(row))
    }

    /// x / max(sqrt(sum of x^2), eps).
    #[inline(always)]
    fn normalize<I: Isa>(&self, x: &Row<'_>, out: &Row<'_>) {
        let mut squares = I::splat(0.0);
        for start in x.starts() {
            let x = x.load::<I>(start, 0.0);
            squares = I::add(squares, I::mul(x, x));
        }
        let [length, ..] = I::to_array(I::sqrt(I::splat(I::sum(squares))));
        let length = if length < self.eps { self.eps } else { length };
        for start in x.starts() {
            out.store::<I>(start, I::div(x.load::<I>(start, 0.0), I::splat(length)));
        }
    }
}

#[inline(always)]
fn sum<I: Isa>(x: &Row<'_>) -> f32 {
    let mut total = I::splat(0.0);
    for start in x.starts() {
        total = I::add(total, x.load::<I>(start, 0.0));
    }
    I::sum(total)
}
