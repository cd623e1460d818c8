//! Functions of one element.

use hexloom_abi::{Opcode, Status};

use super::element::{get, indices, put};
use crate::kernels::OpArgs;
use crate::real;

pub(super) fn function(args: &OpArgs<'_>) -> Result<(), Status> {
    let (x, out) = (args.src(0)?, args.dst(0)?);
    for index in indices(&out) {
        put(&out, index, value(args, get(&x, index))?);
    }
    Ok(())
}

fn value(args: &OpArgs<'_>, x: f64) -> Result<f64, Status> {
    let param = |idx: usize| f64::from(args.op.param_f32(idx));
    let hard = || ((x + 3.0) / 6.0).clamp(0.0, 1.0);
    Ok(match args.op.opcode {
        Opcode::Abs => f64::from_bits(x.to_bits() & !(1 << 63)),
        Opcode::Sgn => f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
        Opcode::Neg => -x,
        Opcode::Step => f64::from(u8::from(x > 0.0)),
        Opcode::Tanh => tanh(x),
        Opcode::Elu if x > 0.0 => x,
        Opcode::Elu | Opcode::Expm1 => expm1(x),
        // Not `max`, which drops a NaN.
        Opcode::Relu if x < 0.0 => 0.0,
        Opcode::Relu => x,
        Opcode::Sigmoid => 1.0 / (1.0 + real::exp(-x)),
        Opcode::HardSwish => x * hard(),
        Opcode::HardSigmoid => hard(),
        Opcode::Exp => real::exp(x),
        Opcode::Softplus if x > 0.0 => x + log1p(real::exp(-x)),
        Opcode::Softplus => log1p(real::exp(x)),
        Opcode::Floor => whole(x, real::floor),
        Opcode::Ceil => whole(x, real::ceil),
        Opcode::Round => whole(x, |x| {
            if x < 0.0 {
                real::ceil(x - 0.5)
            } else {
                real::floor(x + 0.5)
            }
        }),
        Opcode::Trunc => whole(x, |x| if x < 0.0 { real::ceil(x) } else { real::floor(x) }),
        Opcode::Sqr => x * x,
        Opcode::Sqrt => real::sqrt(x),
        Opcode::Log => real::ln(x),
        Opcode::Sin => real::sin_cos(x).0,
        Opcode::Cos => real::sin_cos(x).1,
        Opcode::Fill => param(0),
        Opcode::LeakyRelu if x > 0.0 => x,
        Opcode::LeakyRelu => x * param(0),
        Opcode::Xielu if x > 0.0 => param(1) * x * x + param(2) * x,
        Opcode::Xielu => (expm1(x.min(param(3))) - x) * param(0) + param(2) * x,
        _ => return Err(Status::Unsupported),
    })
}

/// A rounding, for values that have a fraction.
fn whole(x: f64, round: impl Fn(f64) -> f64) -> f64 {
    if x.abs() < 8_388_608.0 { round(x) } else { x }
}

fn tanh(x: f64) -> f64 {
    let e = expm1(-2.0 * x.abs());
    let value = -e / (e + 2.0);
    if x < 0.0 { -value } else { value }
}

/// Near 0 by its series: e^x - 1 has no digits left there.
fn expm1(x: f64) -> f64 {
    if x.abs() > 0.01 {
        return real::exp(x) - 1.0;
    }
    x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0)))))
}

fn log1p(x: f64) -> f64 {
    if x > 0.01 {
        return real::ln(1.0 + x);
    }
    x * (1.0 - x * (1.0 / 2.0 - x * (1.0 / 3.0 - x * (1.0 / 4.0 - x * (1.0 / 5.0 - x / 6.0)))))
}
