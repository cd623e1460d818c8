//! ADD, SUB, MUL, DIV: repeats in every dimension, both float types, strides, special values.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

const OPS: [Opcode; 4] = [Opcode::Add, Opcode::Sub, Opcode::Mul, Opcode::Div];

fn each(a: &Operand, b: &Operand, out: &Operand) -> Vec<Case> {
    let case = |op| {
        Case::new(op)
            .named(format_args!(
                "{} {:?} {:?} by {} {:?} {:?} to {} {:?}",
                a.dtype, a.ne, a.layout, b.dtype, b.ne, b.layout, out.dtype, out.layout
            ))
            .src(a.clone())
            .src(b.clone())
            .dst(out.clone().fill(Fill::Junk))
    };
    OPS.into_iter().map(case).collect()
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let ne = [10, 5, 4, 3];
    for repeats in [
        [1, 1, 1, 1],
        [1, 2, 1, 1],
        [1, 1, 2, 1],
        [1, 1, 1, 2],
        [2, 1, 1, 1],
        [2, 2, 2, 2],
    ] {
        // `ne` is repeated, as ggml's test has it: the first operand is the larger one.
        let large = [0, 1, 2, 3].map(|dim| ne[dim] * repeats[dim]);
        cases.extend(each(&Operand::f32(large), &Operand::f32(ne), &Operand::f32(large)));
    }
    for small in [[10, 1, 1, 1], [1, 5, 4, 3], [1, 1, 1, 1], [10, 1, 4, 1]] {
        cases.extend(each(&Operand::f32(ne), &Operand::f32(small), &Operand::f32(ne)));
    }
    for ne in [
        [1, 1, 1, 1],
        [31, 1, 1, 1],
        [33, 2, 1, 1],
        [4099, 3, 1, 1],
        [0, 2, 1, 1],
    ] {
        cases.extend(each(&Operand::f32(ne), &Operand::f32(ne), &Operand::f32(ne)));
    }
    let ne = [37, 6, 2, 2];
    for (a, b, out) in [
        (DType::F16, DType::F16, DType::F16),
        (DType::F16, DType::F32, DType::F32),
        (DType::F32, DType::F16, DType::F16),
    ] {
        // A quotient of two small f16 numbers leaves the type's range, so divisors stay away from zero.
        let b = Operand::new(b, ne).fill(Fill::Values(vec![0.5, -1.25, 2.0, 3.0, -0.75]));
        cases.extend(each(&Operand::new(a, ne), &b, &Operand::new(out, ne)));
    }
    let layouts = [
        Layout::Permuted([1, 0, 2, 3]),
        Layout::Padded(0, 3),
        Layout::Padded(1, 2),
        Layout::EverySecond,
    ];
    for layout in layouts {
        let dense = Operand::f32(ne);
        let other = dense.clone().layout(layout);
        cases.extend(each(&other, &dense, &dense));
        cases.extend(each(&dense, &other, &dense));
        cases.extend(each(&other, &other, &other));
    }
    let special = Operand::f32([67, 9, 1, 1]).fill(Fill::Special);
    cases.extend(each(&special, &special, &special));
    cases
}
