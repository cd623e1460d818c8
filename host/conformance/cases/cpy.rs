//! CPY and CONT: conversions, any strides on either side, other dimensions with the same elements.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

fn case(from: Operand, to: Operand) -> Case {
    Case::new(Opcode::Cpy)
        .named(format_args!(
            "{} {:?} {:?} to {} {:?} {:?}",
            from.dtype, from.ne, from.layout, to.dtype, to.ne, to.layout
        ))
        .src(from)
        .dst(to.fill(Fill::Junk))
}

pub(super) fn cases() -> Vec<Case> {
    let layouts = [
        Layout::Dense,
        Layout::Permuted([1, 0, 2, 3]),
        Layout::Permuted([2, 0, 1, 3]),
        Layout::Permuted([0, 2, 1, 3]),
        Layout::Padded(0, 5),
        Layout::Padded(2, 1),
        Layout::EverySecond,
    ];
    let mut cases = Vec::new();
    // Equal dimensions, the inner stride of either side being another than the element size included.
    for ne in [[37, 5, 3, 2], [64, 4, 1, 1], [1, 7, 1, 1], [0, 3, 1, 1]] {
        for from in layouts {
            for to in layouts {
                cases.push(case(Operand::f32(ne).layout(from), Operand::f32(ne).layout(to)));
            }
        }
    }
    let ne = [70, 6, 2, 1];
    for (from, to) in [
        (DType::F32, DType::F16),
        (DType::F16, DType::F32),
        (DType::F16, DType::F16),
    ] {
        for layout in layouts {
            let source = Operand::new(from, ne).fill(Fill::Uniform(100.0)).layout(layout);
            cases.push(case(source.clone(), Operand::new(to, ne)));
            cases.push(case(source.layout(Layout::Dense), Operand::new(to, ne).layout(layout)));
        }
        let special = Operand::new(from, ne).fill(Fill::Special);
        cases.push(case(special, Operand::new(to, ne)).named("special"));
    }
    for dtype in [DType::I32, DType::I64] {
        let numbers = Operand::new(dtype, ne).fill(Fill::Below(1 << 30));
        cases.push(case(numbers.clone(), Operand::new(dtype, ne)));
        cases.push(case(numbers.transposed(), Operand::new(dtype, ne)));
    }
    for to in [[840, 1, 1, 1], [12, 70, 1, 1], [7, 5, 6, 4], [1, 1, 1, 840]] {
        cases.push(case(Operand::f32(ne), Operand::f32(to)));
        cases.push(case(
            Operand::f32(ne).transposed(),
            Operand::f16(to).layout(Layout::Padded(0, 2)),
        ));
    }
    cases
}
