//! ALLREDUCE and ALLREDUCE_ADD: one rank's share.

use hexloom_abi::{AllreduceParams, DType, Opcode};

use crate::support::{Case, Fill, Spec, kernel_tests};

fn case(opcode: Opcode, n_ranks: u32, dtype: DType, len: u32, fill: Fill) -> Case {
    let params = AllreduceParams {
        rank: 0,
        n_ranks,
        entry_seq: 1,
        exit_seq: 2,
        timeout_us: 1,
    };
    let x = || Spec::new(dtype, [len, 1, 1, 1]).fill(fill.clone());
    let mut case = Case::new(opcode);
    case.params = params.params();
    for _ in 0..n_ranks {
        case = case.src(x());
    }
    for _ in 0..n_ranks {
        case = case.src(Spec::new(DType::I32, [32, 1, 1, 1]).fill(Fill::Value(0.0)));
    }
    if opcode == Opcode::AllreduceAdd {
        case = case.src(x());
    }
    let case = (0..n_ranks).fold(case, |case, _| case.dst(x()));
    match dtype {
        // Every sum on the way is rounded, and parts that cancel leave the rounding of larger ones.
        DType::F16 => case.nmse(1e-5),
        _ => case,
    }
}

fn cases(fill: Fill) -> impl Iterator<Item = Case> {
    let opcodes = [Opcode::Allreduce, Opcode::AllreduceAdd].into_iter();
    opcodes.flat_map(move |opcode| {
        let fill = fill.clone();
        (1..=4).flat_map(move |n_ranks| {
            let fill = fill.clone();
            [DType::F32, DType::F16].into_iter().flat_map(move |dtype| {
                let fill = fill.clone();
                [7, 31, 64, 3000].map(move |len| case(opcode, n_ranks, dtype, len, fill.clone()))
            })
        })
    })
}

kernel_tests! {
    any_ranks: cases(Fill::Random(1.0));
    special_values: cases(Fill::Special);
}
