//! Functions of one element beside those of `unary`: values on both sides of 0, tails, types, strides, special values.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

/// Each with its parameters and the largest magnitude that means something to it.
const OPS: [(Opcode, [f32; 4], f64); 25] = [
    (Opcode::Abs, [0.0; 4], 1e4),
    (Opcode::Sgn, [0.0; 4], 1e4),
    (Opcode::Neg, [0.0; 4], 1e4),
    (Opcode::Step, [0.0; 4], 1e4),
    (Opcode::Tanh, [0.0; 4], 10.0),
    (Opcode::Elu, [0.0; 4], 10.0),
    (Opcode::Relu, [0.0; 4], 1e4),
    (Opcode::Sigmoid, [0.0; 4], 30.0),
    (Opcode::HardSwish, [0.0; 4], 10.0),
    (Opcode::HardSigmoid, [0.0; 4], 10.0),
    (Opcode::Exp, [0.0; 4], 10.0),
    (Opcode::Expm1, [0.0; 4], 3.0),
    (Opcode::Softplus, [0.0; 4], 30.0),
    (Opcode::Floor, [0.0; 4], 100.0),
    (Opcode::Ceil, [0.0; 4], 100.0),
    (Opcode::Round, [0.0; 4], 100.0),
    (Opcode::Trunc, [0.0; 4], 100.0),
    (Opcode::Xielu, [0.8, 0.5, 0.25, -1e-6], 4.0),
    (Opcode::Sqr, [0.0; 4], 100.0),
    (Opcode::Sqrt, [0.0; 4], 100.0),
    (Opcode::Log, [0.0; 4], 100.0),
    (Opcode::Sin, [0.0; 4], 100.0),
    (Opcode::Cos, [0.0; 4], 100.0),
    (Opcode::LeakyRelu, [0.1, 0.0, 0.0, 0.0], 100.0),
    (Opcode::Fill, [-1.5, 0.0, 0.0, 0.0], 100.0),
];

fn case(op: (Opcode, [f32; 4], f64), x: Operand, out: &Operand) -> Case {
    let (opcode, params, limit) = op;
    let mut x = x;
    if x.fill == Fill::Uniform(1.0) {
        // Of roots and logarithms only positive values are compared: squares of the others.
        x = match opcode {
            Opcode::Sqrt | Opcode::Log => x.fill(Fill::Values(vec![0.25, 1.0, 3.5, 1e-3, 77.0, 1e6, 0.9])),
            _ => x.fill(Fill::Uniform(limit)),
        };
    }
    let case = Case::new(opcode)
        .named(format_args!(
            "{} {:?} {:?} {:?} to {} {:?}",
            x.dtype, x.ne, x.layout, x.fill, out.dtype, out.layout
        ))
        .src(x)
        .dst(out.clone().fill(Fill::Junk));
    (0..4).fold(case, |case, idx| case.param_f32(idx, params[idx]))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in OPS {
        for ne in [[128, 2, 2, 2], [5, 7, 11, 1], [1, 1, 1, 1], [0, 3, 1, 1]] {
            cases.push(case(op, Operand::f32(ne), &Operand::f32(ne)));
        }
        let ne = [37, 4, 3, 2];
        for (from, to) in [(DType::F16, DType::F16), (DType::F32, DType::F16)] {
            // A result near a rounding step of f16 may fall on either side; halves are kept where that is small.
            cases.push(case(
                op,
                Operand::new(from, ne).fill(Fill::Values(vec![0.5, -0.5, 1.75, 2.0])),
                &Operand::new(to, ne),
            ));
        }
        let other = Operand::f32(ne).layout(Layout::Permuted([1, 0, 2, 3]));
        cases.push(case(op, other.clone(), &Operand::f32(ne)));
        cases.push(case(op, Operand::f32(ne).layout(Layout::EverySecond), &other));
    }
    cases
}
