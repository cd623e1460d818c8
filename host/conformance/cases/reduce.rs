//! SUM, SUM_ROWS, MEAN, L2_NORM, CUMSUM, and MUL_MAT_ID with every kind of weight and with indices outside.

use hexloom::DType;
use hexloom::abi::{Opcode, Status};

use crate::{Case, Expect, Fill, Layout, Operand};

fn along_rows(opcode: Opcode, x: Operand) -> Case {
    let [_, n1, n2, n3] = x.ne;
    let ne = match opcode {
        Opcode::Sum => [1; 4],
        Opcode::SumRows | Opcode::Mean => [1, n1, n2, n3],
        _ => x.ne,
    };
    Case::new(opcode)
        .named(format_args!("{} {:?} {:?}", x.dtype, x.ne, x.layout))
        .src(x)
        .dst(Operand::f32(ne).fill(Fill::Junk))
        .param_f32(0, 1e-3)
}

fn chosen(weights: Operand, n_x: u32, ids: Vec<f64>) -> Case {
    let [k, n, ..] = weights.ne;
    Case::new(Opcode::MulMatId)
        .named(format_args!("{} {:?} by {n_x}", weights.dtype, weights.ne))
        .src(weights)
        .src(Operand::f32([k, n_x, 3, 1]))
        .src(Operand::i32([2, 3, 1, 1], Fill::Values(ids)))
        .dst(Operand::f32([n, 2, 3, 1]).fill(Fill::Junk))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for opcode in [
        Opcode::Sum,
        Opcode::SumRows,
        Opcode::Mean,
        Opcode::L2Norm,
        Opcode::Cumsum,
    ] {
        for ne in [[33, 3, 2, 2], [1, 1, 1, 1], [1030, 2, 1, 1]] {
            // Sums of values of both signs come near 0, where their error is not small against them.
            cases.push(along_rows(
                opcode,
                Operand::f32(ne).fill(Fill::Values(vec![0.5, 0.25, 1.5, 0.75])),
            ));
        }
        let turned = Operand::f32([20, 6, 2, 1]).layout(Layout::Permuted([1, 0, 2, 3]));
        cases.push(along_rows(opcode, turned.fill(Fill::Values(vec![0.5, 0.25, 1.5]))));
    }
    let ids = || vec![3.0, 0.0, 1.0, 1.0, 2.0, 3.0];
    for n_x in [1, 2] {
        for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q4_1, DType::Q8_0] {
            cases.push(chosen(Operand::weight(dtype, [64, 37, 4, 1]), n_x, ids()));
        }
    }
    for wrong in [-1.0, 4.0] {
        let mut ids = ids();
        ids[4] = wrong;
        let case = chosen(Operand::f32([64, 37, 4, 1]), 1, ids).expect(Expect::Status(Status::IndexOutOfRange));
        cases.push(case);
    }
    cases
}
