//! Sums along rows, and products with chosen matrices.

use hexloom_abi::{Opcode, Status};

use super::element::{get, indices, put, rows};
use crate::kernels::OpArgs;
use crate::kernels::get_rows::check;
use crate::kernels::get_rows::table_row;
use crate::real;

pub(super) fn sums(args: &OpArgs<'_>) -> Result<(), Status> {
    let (x, out) = (args.src(0)?, args.dst(0)?);
    let [len, ..] = x.ne();
    let mut all = 0.0;
    for [i1, i2, i3] in rows(&x) {
        let value = |i0: usize| get(&x, [i0, i1, i2, i3]);
        let sum: f64 = (0..len).map(value).sum();
        match args.op.opcode {
            Opcode::Sum => all += sum,
            Opcode::SumRows => put(&out, [0, i1, i2, i3], sum),
            Opcode::Mean => put(&out, [0, i1, i2, i3], sum / len as f64),
            Opcode::Cumsum => {
                let mut total = 0.0;
                for i0 in 0..len {
                    total += value(i0);
                    put(&out, [i0, i1, i2, i3], total);
                }
            }
            _ => {
                let squares: f64 = (0..len).map(|i0| value(i0) * value(i0)).sum();
                let length = real::sqrt(squares).max(f64::from(args.op.param_f32(0)));
                for i0 in 0..len {
                    put(&out, [i0, i1, i2, i3], value(i0) / length);
                }
            }
        }
    }
    if args.op.opcode == Opcode::Sum {
        put(&out, [0; 4], all);
    }
    Ok(())
}

pub(super) fn matmul_id(args: &OpArgs<'_>) -> Result<(), Status> {
    let (weights, x, ids, out) = (args.src(0)?, args.src(1)?, args.src(2)?, args.dst(0)?);
    let [k, n_x, ..] = x.ne();
    let n_matrices = weights.ne()[2];
    check(&ids, &out, n_matrices)?;
    for index @ [row, used, token, _] in indices(&out) {
        let matrix = table_row(&ids, [used, token, 0], n_matrices).ok_or(Status::IndexOutOfRange)?;
        let product = |i0: usize| get(&weights, [i0, row, matrix, 0]) * get(&x, [i0, used % n_x, token, 0]);
        put(&out, index, (0..k).map(product).sum());
    }
    Ok(())
}
