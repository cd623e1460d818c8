//! Functions of one element: what ggml calls unary ops, SCALE and CLAMP, and what the gated ops apply to one operand.
//!
//! Differences that would cancel near 0 (e^x - 1) go by way of the hyperbolic tangent. NaN gives NaN but for STEP and SGN,
//! which compare. At -infinity SILU and the GELUs give NaN (infinity times 0), as they stand.

use hexloom_abi::Opcode;

use crate::hvx::{Isa, math};

/// Any of the functions, chosen for each vector: a loop of its own for each would be most of the library's code.
pub(super) struct Function {
    /// The function, by the op that is nothing else.
    pub(super) opcode: Opcode,
    /// The op's first parameters.
    pub(super) params: [f32; 4],
}

impl Function {
    /// The function of every lane.
    #[inline(always)]
    pub(super) fn apply<I: Isa>(&self, x: I::F32) -> I::F32 {
        let [zero, one] = [I::splat(0.0), I::splat(1.0)];
        let above = I::gt(x, zero);
        match self.opcode {
            Opcode::Silu | Opcode::Gelu | Opcode::GeluQuick | Opcode::Sigmoid => self.logistic::<I>(x),
            Opcode::GeluErf => gelu_erf::<I>(x),
            Opcode::Scale => I::add(I::mul(x, I::splat(self.params[0])), I::splat(self.params[1])),
            // In this order of operands a NaN comes through, here and in RELU.
            Opcode::Clamp => I::min(I::splat(self.params[1]), I::max(I::splat(self.params[0]), x)),
            Opcode::Abs => math::abs::<I>(x),
            Opcode::Sgn => {
                let below = I::select(I::gt(zero, x), I::splat(-1.0), zero);
                I::select(above, one, below)
            }
            Opcode::Neg => negated::<I>(x),
            Opcode::Step => I::select(above, one, zero),
            Opcode::Tanh => math::tanh::<I>(x),
            Opcode::Elu | Opcode::Expm1 | Opcode::Xielu => self.exponential::<I>(x),
            Opcode::HardSwish | Opcode::HardSigmoid => {
                let value = hard_sigmoid::<I>(x);
                if self.opcode == Opcode::HardSwish {
                    I::mul(x, value)
                } else {
                    value
                }
            }
            Opcode::Exp | Opcode::Softplus => {
                let is_exp = self.opcode == Opcode::Exp;
                let value = math::exp::<I>(if is_exp { x } else { negated::<I>(math::abs::<I>(x)) });
                if is_exp {
                    value
                } else {
                    I::add(I::max(zero, x), log1p::<I>(value))
                }
            }
            Opcode::Fill => I::splat(self.params[0]),
            Opcode::Floor => floor::<I>(x),
            Opcode::Ceil => ceil::<I>(x),
            Opcode::Round => round::<I>(x),
            Opcode::Trunc => trunc::<I>(x),
            Opcode::Sqr => I::mul(x, x),
            Opcode::Sqrt => I::sqrt(x),
            Opcode::Log => math::log::<I>(x),
            Opcode::Sin | Opcode::Cos => {
                let (sin, cos) = math::sin_cos::<I>(x);
                if self.opcode == Opcode::Sin { sin } else { cos }
            }
            Opcode::LeakyRelu => I::select(above, x, I::mul(x, I::splat(self.params[0]))),
            _ => I::max(zero, x),
        }
    }

    /// What is made of the logistic function: itself, and x times that of x, of 1.702 x, or of
    /// 2 sqrt(2/pi) (x + 0.044715 x^3), which makes 0.5 x (1 + tanh(...)) without its cancellation.
    #[inline(always)]
    fn logistic<I: Isa>(&self, x: I::F32) -> I::F32 {
        const TWO_SQRT_2_OVER_PI: f32 = core::f32::consts::FRAC_2_SQRT_PI * core::f32::consts::SQRT_2;
        let inner = match self.opcode {
            Opcode::Gelu => {
                let cubic = I::add(I::splat(1.0), I::mul(I::splat(0.044_715), I::mul(x, x)));
                I::mul(I::mul(I::splat(TWO_SQRT_2_OVER_PI), x), cubic)
            }
            Opcode::GeluQuick => I::mul(I::splat(1.702), x),
            _ => x,
        };
        let value = math::sigmoid::<I>(inner);
        match self.opcode {
            Opcode::Sigmoid => value,
            _ => I::mul(x, value),
        }
    }

    /// What is made of e^x - 1. Parameters of XIELU: factor below 0, factor above, linear factor, largest exponent.
    #[inline(always)]
    fn exponential<I: Isa>(&self, x: I::F32) -> I::F32 {
        let [negative, positive, linear, eps] = self.params.map(I::splat);
        let is_xielu = self.opcode == Opcode::Xielu;
        let curve = expm1::<I>(if is_xielu { I::min(x, eps) } else { x });
        let (below, above) = if is_xielu {
            let linear = I::mul(linear, x);
            let below = I::add(I::mul(I::sub(curve, x), negative), linear);
            (below, I::add(I::mul(positive, I::mul(x, x)), linear))
        } else if self.opcode == Opcode::Elu {
            (curve, x)
        } else {
            (curve, curve)
        };
        I::select(I::gt(x, I::splat(0.0)), above, below)
    }
}

/// x times the normal distribution's integral up to x; the negative tail keeps its relative accuracy.
#[inline(always)]
fn gelu_erf<I: Isa>(x: I::F32) -> I::F32 {
    let scaled = I::mul(math::abs::<I>(x), I::splat(core::f32::consts::FRAC_1_SQRT_2));
    let tail = I::mul(I::splat(0.5), math::erfc::<I>(scaled));
    let negative = I::gt(I::splat(0.0), x);
    I::mul(x, I::select(negative, tail, I::sub(I::splat(1.0), tail)))
}

#[inline(always)]
fn negated<I: Isa>(x: I::F32) -> I::F32 {
    I::from_bits(I::xor(I::bits(x), I::splat_i(i32::MIN)))
}

#[inline(always)]
fn floor<I: Isa>(x: I::F32) -> I::F32 {
    let near = nearest::<I>(x);
    I::select(I::gt(near, x), I::sub(near, I::splat(1.0)), near)
}

#[inline(always)]
fn ceil<I: Isa>(x: I::F32) -> I::F32 {
    let near = nearest::<I>(x);
    I::select(I::gt(x, near), I::add(near, I::splat(1.0)), near)
}

#[inline(always)]
fn trunc<I: Isa>(x: I::F32) -> I::F32 {
    I::select(I::gt(I::splat(0.0), x), ceil::<I>(x), floor::<I>(x))
}

/// Halves go away from 0.
#[inline(always)]
fn round<I: Isa>(x: I::F32) -> I::F32 {
    let whole = trunc::<I>(x);
    let rest = I::exact_sub(x, whole);
    let up = I::select(I::gt(I::splat(0.5), rest), whole, I::add(whole, I::splat(1.0)));
    I::select(I::gt(rest, I::splat(-0.5)), up, I::sub(whole, I::splat(1.0)))
}

#[inline(always)]
fn hard_sigmoid<I: Isa>(x: I::F32) -> I::F32 {
    let ramp = I::div(I::add(x, I::splat(3.0)), I::splat(6.0));
    I::min(I::splat(1.0), I::max(I::splat(0.0), ramp))
}

/// e^x - 1: below 1 in magnitude as 2 t / (1 - t) with t = tanh(x / 2).
#[inline(always)]
fn expm1<I: Isa>(x: I::F32) -> I::F32 {
    let t = math::tanh::<I>(I::mul(x, I::splat(0.5)));
    let near = I::div(I::add(t, t), I::sub(I::splat(1.0), t));
    let far = I::sub(math::exp::<I>(x), I::splat(1.0));
    I::select(I::gt(I::splat(1.0), math::abs::<I>(x)), near, far)
}

/// ln(1 + x) for 0 <= x <= 1: what 1 + x rounds away is put back.
#[inline(always)]
fn log1p<I: Isa>(x: I::F32) -> I::F32 {
    let one = I::splat(1.0);
    let sum = I::exact_add(one, x);
    let lost = I::exact_sub(x, I::exact_sub(sum, one));
    I::add(math::log::<I>(sum), I::div(lost, sum))
}

/// The nearest integer, ties to even; values that have no fraction as they are.
#[inline(always)]
fn nearest<I: Isa>(x: I::F32) -> I::F32 {
    let small = I::gt(I::splat(8_388_608.0), math::abs::<I>(x));
    let near = I::to_float(I::to_int(I::select(small, x, I::splat(0.0))));
    I::select(small, near, x)
}
