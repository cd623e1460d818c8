//! ROPE: normal and neox pairs, part of a row, YaRN, frequency factors, far positions.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

/// Parameters beyond the operands.
#[derive(Clone, Copy, Debug)]
struct Yarn {
    scale: f32,
    ext: f32,
    attn: f32,
}

const NONE: Yarn = Yarn {
    scale: 1.0,
    ext: 0.0,
    attn: 1.0,
};

fn case(x: &Operand, n_dims: u32, mode: u32, yarn: Yarn, factors: bool, first: f64) -> Case {
    let [.., tokens, _] = x.ne;
    let positions = (0..tokens).map(|idx| first + f64::from(idx)).collect();
    let factors = factors.then(|| {
        let values = vec![1.0, 1.25, 2.0, 0.75, 3.5];
        Operand::f32([n_dims / 2, 1, 1, 1]).fill(Fill::Values(values))
    });
    Case::new(Opcode::Rope)
        .named(format_args!(
            "{} {:?} {:?} dims {n_dims} mode {mode} {yarn:?} factors {} from {first}",
            x.dtype,
            x.ne,
            x.layout,
            factors.is_some()
        ))
        .src(x.clone())
        .src(Operand::i32([tokens, 1, 1, 1], Fill::Values(positions)))
        .src_opt(factors)
        .dst(Operand::new(x.dtype, x.ne).fill(Fill::Junk))
        .param(1, n_dims)
        .param(2, mode)
        .param(4, 512)
        .param_f32(5, 10_000.0)
        .param_f32(6, yarn.scale)
        .param_f32(7, yarn.ext)
        .param_f32(8, yarn.attn)
        .param_f32(9, 32.0)
        .param_f32(10, 1.0)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let ne = [128, 32, 2, 1];
    for attn in [1.0, 1.4245] {
        for factors in [false, true] {
            for mode in [0, 2] {
                let yarn = Yarn {
                    scale: 1.4245,
                    ext: 0.7465,
                    attn,
                };
                cases.push(case(&Operand::f32(ne), 128, mode, yarn, factors, 0.0));
            }
        }
    }
    for mode in [0, 2] {
        for (size, n_dims) in [(64, 64), (80, 32), (96, 96), (33, 2), (256, 128)] {
            cases.push(case(&Operand::f32([size, 3, 5, 2]), n_dims, mode, NONE, false, 0.0));
            cases.push(case(&Operand::f16([size, 3, 5, 1]), n_dims, mode, NONE, true, 3.0));
        }
        for first in [1000.0, 131_000.0] {
            cases.push(case(&Operand::f32([64, 2, 3, 1]), 64, mode, NONE, false, first));
        }
        let x = Operand::f32([64, 3, 4, 1]);
        for layout in [
            Layout::Padded(0, 5),
            Layout::Padded(1, 2),
            Layout::Permuted([0, 2, 1, 3]),
            Layout::EverySecond,
        ] {
            cases.push(case(&x.clone().layout(layout), 64, mode, NONE, false, 7.0));
        }
        let stretched = Yarn {
            scale: 0.25,
            ext: 1.0,
            attn: 1.0,
        };
        cases.push(case(&x, 48, mode, stretched, true, 600.0));
    }
    // An operand of another type than the result.
    let mut mixed = case(&Operand::f16([64, 2, 3, 1]), 64, 0, NONE, false, 0.0).named("to F32");
    mixed.dsts[0].dtype = DType::F32;
    cases.push(mixed);
    cases
}
