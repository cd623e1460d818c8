//! Binary, unary and gated ops.

use hexloom_abi::{AllreduceParams, DType, Opcode, Status};

use super::element::{get, indices, put, wrap};
use crate::hvx::plain::{f16_to_f32, f32_to_f16};
use crate::kernels::{OpArgs, REDUCE_START_PARAM};
use crate::real;

pub(super) fn binary(args: &OpArgs<'_>) -> Result<(), Status> {
    let (a, b, out) = (args.src(0)?, args.src(1)?, args.dst(0)?);
    for index in indices(&out) {
        let (x, y) = (get(&a, index), get(&b, wrap(index, &b)));
        let value = match args.op.opcode {
            Opcode::Add => x + y,
            Opcode::Sub => x - y,
            Opcode::Mul => x * y,
            _ => x / y,
        };
        put(&out, index, value);
    }
    Ok(())
}

pub(super) fn unary(args: &OpArgs<'_>) -> Result<(), Status> {
    let (x, out) = (args.src(0)?, args.dst(0)?);
    let [first, second] = [0, 1].map(|idx| f64::from(args.op.param_f32(idx)));
    for index in indices(&out) {
        let x = get(&x, index);
        let value = match args.op.opcode {
            Opcode::Silu => silu(x),
            Opcode::Gelu => gelu(x),
            Opcode::GeluErf => gelu_erf(x),
            Opcode::GeluQuick => gelu_quick(x),
            Opcode::Scale => x * first + second,
            // Not `clamp`: bounds come from outside and may be in any order.
            _ if x < first => first.min(second),
            _ if x > second => second,
            _ => x,
        };
        put(&out, index, value);
    }
    Ok(())
}

pub(super) fn gated(args: &OpArgs<'_>) -> Result<(), Status> {
    let (x, out) = (args.src(0)?, args.dst(0)?);
    let half = out.ne()[0];
    let swapped = args.op.param(0) != 0;
    for index @ [i0, i1, i2, i3] in indices(&out) {
        let (value, gate) = match args.src_opt(1) {
            Some(gate) => (get(&x, index), get(&gate, index)),
            None => {
                let (first, second) = (get(&x, index), get(&x, [half + i0, i1, i2, i3]));
                if swapped { (second, first) } else { (first, second) }
            }
        };
        let activated = match args.op.opcode {
            Opcode::Swiglu => silu(value),
            Opcode::Geglu => gelu(value),
            Opcode::GegluErf => gelu_erf(value),
            Opcode::Reglu if value < 0.0 => 0.0,
            Opcode::Reglu => value,
            _ => gelu_quick(value),
        };
        put(&out, index, activated * gate);
    }
    Ok(())
}

/// Each sum is rounded to the type of the tensors, as between two ADDs.
pub(super) fn reduce(args: &OpArgs<'_>) -> Result<(), Status> {
    let n_ranks = AllreduceParams::of(&args.op.params).n_ranks as usize;
    let first = args.op.param(REDUCE_START_PARAM) as usize;
    for index @ [i0, ..] in indices(&args.dst(0)?) {
        let mut sum = get(&args.src(0)?, index);
        for rank in 1..n_ranks {
            sum = rounded(args, sum + get(&args.src(rank)?, index))?;
        }
        if args.op.opcode == Opcode::AllreduceAdd {
            let addend = args.src(2 * n_ranks)?;
            sum = rounded(args, sum + get(&addend, wrap([first + i0, 0, 0, 0], &addend)))?;
        }
        for dst in args.dsts.iter().flatten() {
            put(dst, index, sum);
        }
    }
    Ok(())
}

fn rounded(args: &OpArgs<'_>, sum: f64) -> Result<f64, Status> {
    Ok(match args.dst(0)?.dtype() {
        DType::F16 => f64::from(f16_to_f32(f32_to_f16(sum as f32))),
        _ => f64::from(sum as f32),
    })
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + real::exp(-x))
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

fn gelu(x: f64) -> f64 {
    let root = real::sqrt(2.0 / core::f64::consts::PI);
    x * sigmoid(2.0 * root * x * (1.0 + 0.044715 * x * x))
}

fn gelu_erf(x: f64) -> f64 {
    x * 0.5 * real::erfc(-x * core::f64::consts::FRAC_1_SQRT_2)
}

fn gelu_quick(x: f64) -> f64 {
    x * sigmoid(1.702 * x)
}
