//! SWIGLU, GEGLU and their kin: two operands, or both halves in one, either way round.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

const OPS: [Opcode; 5] = [
    Opcode::Swiglu,
    Opcode::Geglu,
    Opcode::GegluErf,
    Opcode::GegluQuick,
    Opcode::Reglu,
];

fn halves(x: &Operand, dtype: DType) -> Vec<Case> {
    let [n0, n1, n2, n3] = x.ne;
    let out = Operand::new(dtype, [n0 / 2, n1, n2, n3]).fill(Fill::Junk);
    let case = |op, swapped| {
        Case::new(op)
            .named(format_args!(
                "halves {} {:?} {:?} {:?} swapped {swapped}",
                x.dtype, x.ne, x.layout, x.fill
            ))
            .src(x.clone())
            .dst(out.clone())
            .param(0, swapped)
    };
    OPS.into_iter().flat_map(|op| [case(op, 0), case(op, 1)]).collect()
}

fn pairs(x: &Operand, gate: &Operand) -> Vec<Case> {
    let case = |op| {
        Case::new(op)
            .named(format_args!(
                "{} {:?} {:?} {:?} by {:?}",
                x.dtype, x.ne, x.layout, x.fill, gate.layout
            ))
            .src(x.clone())
            .src(gate.clone())
            .dst(Operand::new(x.dtype, x.ne).fill(Fill::Junk))
    };
    OPS.into_iter().map(case).collect()
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for [n0, n1, n2, n3] in [[128, 2, 2, 2], [5, 7, 11, 13], [1, 1, 1, 1], [2049, 2, 1, 1]] {
        for limit in [1.0, 10.0, 1e4] {
            let x = Operand::f32([n0, n1, n2, n3]).fill(Fill::Uniform(limit));
            cases.extend(pairs(&x, &x));
            cases.extend(halves(
                &Operand::f32([2 * n0, n1, n2, n3]).fill(Fill::Uniform(limit)),
                DType::F32,
            ));
        }
    }
    let ne = [34, 5, 2, 1];
    for layout in [
        Layout::Padded(0, 3),
        Layout::Padded(1, 1),
        Layout::Permuted([1, 0, 2, 3]),
        Layout::EverySecond,
    ] {
        let x = Operand::f32(ne);
        cases.extend(pairs(&x.clone().layout(layout), &x));
        cases.extend(pairs(&x, &x.clone().layout(layout)));
        cases.extend(halves(&x.layout(layout), DType::F32));
    }
    cases.extend(pairs(&Operand::f16(ne), &Operand::f16(ne)));
    cases.extend(halves(&Operand::f16(ne), DType::F16));
    let special = Operand::f32([65, 8, 1, 1]).fill(Fill::Special);
    cases.extend(pairs(&special, &special));
    cases
}
