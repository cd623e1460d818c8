//! MUL_MAT_ID: each activation row by the weight matrix that an index chooses, as mixtures of experts do.
//!
//! Weights of any type are read as f32, 32 elements at a time; lane l of a sum has the products of k = l, l + 32, ... in
//! order. Indices are checked before anything is written, and again where they are used, as in GET_ROWS.

use core::sync::atomic::{AtomicBool, Ordering};

use hexloom_abi::Status;

use super::dequantize::Blocks;
use super::get_rows::{check, table_row};
use super::rows::{Pieces, Row};
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, LANES, Part};
use crate::tensor::Tensor;

pub(super) fn matmul_id<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = MulMatId {
        weights: args.src(0)?,
        x: args.src(1)?,
        ids: args.src(2)?,
        out: args.dst(0)?,
        outside: AtomicBool::new(false),
    };
    check(&kernel.ids, &kernel.out, kernel.weights.ne()[2])?;
    let products = args
        .op
        .dst(0)
        .map_or(0, |out| out.elems())
        .saturating_mul(kernel.x.ne()[0] as u64);
    cx.run_sized::<I, _>(&kernel, products)?;
    match kernel.outside.into_inner() {
        true => Err(Status::IndexOutOfRange),
        false => Ok(()),
    }
}

struct MulMatId<'a> {
    weights: Tensor<'a>,
    x: Tensor<'a>,
    ids: Tensor<'a>,
    out: Tensor<'a>,
    outside: AtomicBool,
}

impl Kernel for MulMatId<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let ([k, n_x, ..], [_, _, n_matrices, _]) = (self.x.ne(), self.weights.ne());
        for piece in Pieces::new(part, self.out.rows(), self.out.ne()[0]) {
            let index @ [used, token, _] = self.out.row_index(piece.row);
            let Some(matrix) = table_row(&self.ids, [used, token, 0], n_matrices) else {
                self.outside.store(true, Ordering::Relaxed);
                continue;
            };
            let x = Row::new(&self.x, [used % n_x, token, 0]);
            let out = Row::new(&self.out, index);
            for row in piece.start..piece.end {
                let weight = Blocks::new(&self.weights, [row, matrix, 0]);
                let mut sum = I::splat(0.0);
                for start in (0..k).step_by(LANES) {
                    let w = I::from_array(weight.get(start / LANES));
                    sum = I::add(sum, I::mul(w, x.load::<I>(start, 0.0)));
                }
                out.set(row, I::sum(sum));
            }
        }
    }
}
