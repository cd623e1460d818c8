//! ARGMAX: the first of equal maxima, rows of any layout.

use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

pub(super) fn cases() -> Vec<Case> {
    let case = |x: Operand| {
        let [_, n1, n2, n3] = x.ne;
        Case::new(Opcode::Argmax)
            .named(format_args!("{:?} {:?} {:?}", x.ne, x.layout, x.fill))
            .src(x)
            .dst(Operand::i32([n1, n2, n3, 1], Fill::Junk))
    };
    let mut cases: Vec<Case> = [
        [1, 1, 1, 1],
        [31, 3, 2, 2],
        [32, 5, 1, 1],
        [33, 1, 1, 1],
        [49_152, 2, 1, 1],
    ]
    .into_iter()
    .map(|ne| case(Operand::f32(ne)))
    .collect();
    let ne = [97, 4, 2, 1];
    cases.push(case(Operand::f32(ne).fill(Fill::Constant(1.5))));
    cases.push(case(
        Operand::f32(ne).fill(Fill::Values(vec![0.0, 3.0, -1.0, 3.0, 2.0])),
    ));
    cases.push(case(Operand::f32(ne).fill(Fill::Constant(f64::NEG_INFINITY))));
    cases.push(case(Operand::f32(ne).layout(Layout::Padded(0, 7))));
    cases.push(case(Operand::f32(ne).transposed()));
    cases
}
