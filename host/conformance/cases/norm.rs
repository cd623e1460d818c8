//! RMS_NORM, RMS_NORM_MUL, NORM: tails, offsets that cancel, weights by row and in full.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

fn norms(x: &Operand, out: DType, eps: f32) -> Vec<Case> {
    let case = |op: Opcode| {
        Case::new(op)
            .named(format_args!(
                "{} {:?} {:?} {:?} eps {eps}",
                x.dtype, x.ne, x.layout, x.fill
            ))
            .src(x.clone())
    };
    let [n0, n1, ..] = x.ne;
    let out = Operand::new(out, x.ne).fill(Fill::Junk);
    let mut cases = vec![case(Opcode::RmsNorm), case(Opcode::Norm)];
    for weight in [[n0, 1, 1, 1], [n0, n1, 1, 1], x.ne] {
        let weight = Operand::f32(weight);
        cases.push(
            case(Opcode::RmsNormMul)
                .named(format_args!("by {:?}", weight.ne))
                .src(weight),
        );
    }
    let finish = |case: Case| case.dst(out.clone()).param_f32(0, eps);
    cases.into_iter().map(finish).collect()
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for ne in [
        [64, 5, 4, 3],
        [1, 1, 1, 1],
        [31, 2, 1, 1],
        [33, 3, 2, 1],
        [576, 2, 1, 1],
        [4100, 1, 1, 1],
    ] {
        for eps in [0.0, 1e-6, 1e-2] {
            cases.extend(norms(&Operand::f32(ne), DType::F32, eps));
        }
    }
    let ne = [97, 4, 2, 1];
    for layout in [
        Layout::Padded(0, 3),
        Layout::Padded(1, 1),
        Layout::Permuted([1, 0, 2, 3]),
        Layout::EverySecond,
    ] {
        cases.extend(norms(&Operand::f32(ne).layout(layout), DType::F32, 1e-5));
    }
    for (x, out) in [
        (DType::F16, DType::F16),
        (DType::F16, DType::F32),
        (DType::F32, DType::F16),
    ] {
        cases.extend(norms(&Operand::new(x, ne), out, 1e-5));
    }
    for limit in [1e-4, 1e4] {
        cases.extend(norms(&Operand::f32(ne).fill(Fill::Uniform(limit)), DType::F32, 1e-5));
    }
    // A mean far from zero: the variance must not be the difference of two large sums.
    let offset = Fill::Values(vec![1000.0, 1000.25, 999.5, 1000.125, 999.875]);
    cases.extend(norms(&Operand::f32(ne).fill(offset), DType::F32, 1e-5));
    cases.extend(norms(&Operand::f32(ne).fill(Fill::Constant(0.0)), DType::F32, 1e-5));
    cases
}
