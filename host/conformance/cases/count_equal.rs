//! COUNT_EQUAL: vectors and tails, rows of any layout, nothing and everything equal.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

pub(super) fn cases() -> Vec<Case> {
    let numbers = |ne, values: &[f64]| Operand::i32(ne, Fill::Values(values.to_vec()));
    let case = |a: Operand, b: Operand| {
        Case::new(Opcode::CountEqual)
            .named(format_args!("{:?} {:?} {:?}", a.ne, a.layout, b.layout))
            .src(a)
            .src(b)
            .dst(Operand::new(DType::I64, [1; 4]).fill(Fill::Junk))
    };
    let (some, others) = ([1.0, -2.0, 3.0, 70_000.0], [1.0, 2.0, 3.0, -70_000.0, 5.0]);
    let mut cases: Vec<Case> = [
        [1, 1, 1, 1],
        [31, 2, 1, 1],
        [32, 3, 2, 2],
        [100, 7, 1, 2],
        [5_000, 2, 1, 1],
    ]
    .into_iter()
    .map(|ne| case(numbers(ne, &some), numbers(ne, &others)))
    .collect();
    let ne = [65, 3, 2, 1];
    cases.push(case(numbers(ne, &some), numbers(ne, &some)).named("all"));
    cases.push(case(numbers(ne, &[1.0]), numbers(ne, &[2.0])).named("none"));
    cases.push(case(numbers(ne, &some).transposed(), numbers(ne, &others)));
    cases.push(case(
        numbers(ne, &some),
        numbers(ne, &others).layout(Layout::Padded(0, 3)),
    ));
    cases
}
