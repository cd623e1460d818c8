//! ARGSORT: up and down, whole rows and their first elements, equal ones, rows of any layout.

use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

pub(super) fn cases() -> Vec<Case> {
    let case = |x: Operand, n: u32, down: u32| {
        let [_, n1, n2, n3] = x.ne;
        Case::new(Opcode::Argsort)
            .named(format_args!("{n} of {:?} {:?} {:?}, {down}", x.ne, x.layout, x.fill))
            .src(x)
            .dst(Operand::i32([n, n1, n2, n3], Fill::Junk))
            .param(0, down)
    };
    let mut cases = Vec::new();
    for down in [0, 1] {
        for (ne, n) in [
            ([1, 1, 1, 1], 1),
            ([31, 3, 2, 2], 31),
            ([64, 2, 1, 1], 64),
            ([500, 2, 1, 1], 7),
            ([33, 1, 1, 1], 1),
        ] {
            cases.push(case(Operand::f32(ne), n, down));
        }
        let ne = [97, 4, 2, 1];
        cases.push(case(Operand::f32(ne).fill(Fill::Constant(1.5)), 97, down));
        let equal = Operand::f32(ne).fill(Fill::Values(vec![0.0, 3.0, -1.0, 3.0, 2.0]));
        cases.push(case(equal, 40, down));
        cases.push(case(Operand::f32(ne).layout(Layout::Padded(0, 7)), 97, down));
        cases.push(case(Operand::f32(ne).transposed(), 20, down));
    }
    cases
}
