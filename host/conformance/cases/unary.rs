//! SILU, the GELUs, SCALE, CLAMP: values up to 1e4, tails, strides, special values.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

const OPS: [(Opcode, [f32; 2]); 6] = [
    (Opcode::Silu, [0.0, 0.0]),
    (Opcode::Gelu, [0.0, 0.0]),
    (Opcode::GeluErf, [0.0, 0.0]),
    (Opcode::GeluQuick, [0.0, 0.0]),
    (Opcode::Scale, [-1.5, 0.25]),
    (Opcode::Clamp, [-0.5, 0.75]),
];

fn each(x: &Operand, out: &Operand) -> Vec<Case> {
    let case = |(op, [first, second]): (Opcode, [f32; 2])| {
        Case::new(op)
            .named(format_args!(
                "{} {:?} {:?} {:?} to {} {:?}",
                x.dtype, x.ne, x.layout, x.fill, out.dtype, out.layout
            ))
            .src(x.clone())
            .dst(out.clone().fill(Fill::Junk))
            .param_f32(0, first)
            .param_f32(1, second)
    };
    OPS.into_iter().map(case).collect()
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for ne in [
        [128, 2, 2, 2],
        [5, 7, 11, 13],
        [1, 1, 1, 1],
        [4099, 2, 1, 1],
        [0, 3, 1, 1],
    ] {
        for limit in [0.1, 10.0, 1e4] {
            let x = Operand::f32(ne).fill(Fill::Uniform(limit));
            cases.extend(each(&x, &Operand::f32(ne)));
        }
    }
    let ne = [37, 4, 3, 2];
    for (from, to) in [
        (DType::F16, DType::F16),
        (DType::F16, DType::F32),
        (DType::F32, DType::F16),
    ] {
        cases.extend(each(
            &Operand::new(from, ne).fill(Fill::Uniform(4.0)),
            &Operand::new(to, ne),
        ));
    }
    let layouts = [
        Layout::Permuted([1, 0, 2, 3]),
        Layout::Padded(0, 3),
        Layout::Padded(2, 1),
        Layout::EverySecond,
    ];
    for layout in layouts {
        let (dense, other) = (Operand::f32(ne), Operand::f32(ne).layout(layout));
        cases.extend(each(&other, &dense));
        cases.extend(each(&dense, &other));
    }
    cases.extend(each(
        &Operand::f32([96, 30, 1, 1]).fill(Fill::Special),
        &Operand::f32([96, 30, 1, 1]),
    ));
    cases
}
