//! SOFT_MAX: masks of both float types, slopes, sinks, hidden rows, large scores.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

fn case(x: &Operand, mask: Option<Operand>, sinks: bool, scale: f32, max_bias: f32) -> Case {
    let sinks = sinks.then(|| Operand::f32([x.ne[2], 1, 1, 1]));
    Case::new(Opcode::SoftMax)
        .named(format_args!(
            "{:?} {:?} {:?} mask {:?} sinks {} scale {scale} bias {max_bias}",
            x.ne,
            x.layout,
            x.fill,
            mask.as_ref().map(|mask| (mask.dtype, mask.ne, &mask.fill)),
            sinks.is_some()
        ))
        .src(x.clone())
        .src_opt(mask)
        .src_opt(sinks)
        .dst(Operand::f32(x.ne).fill(Fill::Junk))
        .param_f32(0, scale)
        .param_f32(1, max_bias)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for ne in [
        [1, 1, 1, 1],
        [31, 2, 1, 1],
        [64, 5, 3, 2],
        [513, 4, 2, 1],
        [2048, 1, 1, 1],
    ] {
        let x = Operand::f32(ne);
        let [n0, n1, ..] = ne;
        cases.push(case(&x, None, false, 1.0, 0.0));
        cases.push(case(&x, None, true, 0.125, 0.0));
        for dtype in [DType::F32, DType::F16] {
            let mask = Operand::new(dtype, [n0, n1, 1, 1]);
            cases.push(case(&x, Some(mask.clone()), false, 0.5, 0.0));
            cases.push(case(&x, Some(mask.clone().fill(Fill::Causal)), true, 2.0, 8.0));
        }
    }
    let x = Operand::f32([40, 6, 12, 2]);
    cases.push(case(&x, Some(Operand::f16([40, 8, 1, 2])), false, 0.3, 8.0));
    cases.push(case(&x, Some(Operand::f32([40, 6, 12, 1])), true, 0.3, 4.0));
    cases.push(case(&x.clone().fill(Fill::Uniform(1e4)), None, false, 1.0, 0.0));
    cases.push(case(&x.clone().fill(Fill::Constant(3.0)), None, true, 1.0, 0.0));
    cases.push(case(&x.clone().layout(Layout::Padded(0, 5)), None, false, 1.0, 0.0));
    cases.push(case(
        &x.layout(Layout::Permuted([0, 2, 1, 3])),
        Some(Operand::f16([40, 6, 1, 1])),
        true,
        1.0,
        0.0,
    ));
    cases
}
