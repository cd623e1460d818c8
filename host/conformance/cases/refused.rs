//! What no kernel takes is refused by the same rules everywhere, and values that cannot be served end with a status.

use hexloom::DType;
use hexloom::abi::{Opcode, Status};

use crate::{Case, Expect, Fill, Layout, Operand};

pub(super) fn cases() -> Vec<Case> {
    let ne = [32, 4, 1, 1];
    let x = || Operand::f32(ne);
    let positions = || Operand::i32([1, 1, 1, 1], Fill::Counting);
    let rope = |n_dims, mode| {
        Case::new(Opcode::Rope)
            .named(format_args!("{n_dims} dims, mode {mode}"))
            .src(x())
            .src(positions())
            .dst(x())
            .param(1, n_dims)
            .param(2, mode)
            .param_f32(5, 10_000.0)
            .param_f32(6, 1.0)
    };
    let product = |weight, x| {
        Case::new(Opcode::MulMat)
            .src(weight)
            .src(x)
            .dst(Operand::f32([4, 4, 1, 1]))
    };
    let unsupported = [
        Case::new(Opcode::Add)
            .named("of a row that does not repeat")
            .src(x())
            .src(Operand::f32([3, 1, 1, 1]))
            .dst(x()),
        Case::new(Opcode::Add)
            .named("of integers")
            .src(Operand::i32(ne, Fill::Counting))
            .src(x())
            .dst(x()),
        Case::new(Opcode::Silu)
            .named("to other dimensions")
            .src(x())
            .dst(Operand::f32([4, 32, 1, 1])),
        Case::new(Opcode::Swiglu)
            .named("of odd halves")
            .src(Operand::f32([33, 1, 1, 1]))
            .dst(Operand::f32([16, 1, 1, 1])),
        rope(31, 0),
        rope(34, 0),
        rope(32, 8),
        product(Operand::f32([64, 4, 1, 1]), x()).named("of other lengths"),
        product(Operand::f32(ne).transposed(), x()).named("of a transposed weight"),
        Case::new(Opcode::SoftMax)
            .named("of columns")
            .src(x().transposed())
            .dst(x()),
        Case::new(Opcode::Cpy)
            .named("to fewer elements")
            .src(x())
            .dst(Operand::f32([31, 4, 1, 1])),
        Case::new(Opcode::Cpy)
            .named("of tiles")
            .src(Operand::weight(DType::Q8_0, ne))
            .dst(x()),
        Case::new(Opcode::Argmax)
            .named("to floats")
            .src(x())
            .dst(Operand::f32([4, 1, 1, 1])),
        Case::new(Opcode::Fence).named("of no mode"),
        Case::new(Opcode::CpyFence).named("without a slot").src(x()).dst(x()),
        Case::new(Opcode::MdevGroup).named("of nobody"),
        Case::new(Opcode::Allreduce).named("of nobody").src(x()).dst(x()),
        Case::new(Opcode::AllreduceAdd)
            .named("of nobody")
            .src(x())
            .src(x())
            .dst(x()),
    ];
    let mut cases: Vec<Case> = unsupported
        .into_iter()
        .map(|case| case.expect(Expect::Unsupported))
        .collect();
    for index in [4.0, -1.0, 2e9] {
        let index = || Operand::i32([2, 1, 1, 1], Fill::Values(vec![0.0, index]));
        let rows = || Operand::f32([32, 2, 1, 1]);
        let get = Case::new(Opcode::GetRows)
            .src(x())
            .src(index())
            .dst(rows().fill(Fill::Junk));
        let set = Case::new(Opcode::SetRows).src(rows()).src(index()).dst(x());
        let tiled = Case::new(Opcode::GetRows)
            .src(Operand::weight(DType::Q4_0, ne))
            .src(index())
            .dst(rows().layout(Layout::Padded(0, 1)).fill(Fill::Junk));
        for case in [get, set, tiled] {
            cases.push(
                case.named("out of range")
                    .expect(Expect::Status(Status::IndexOutOfRange)),
            );
        }
    }
    cases
}
