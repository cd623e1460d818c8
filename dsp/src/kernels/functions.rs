//! Functions of one element beside those of [`super::unary`]: signs, steps, roundings, exponentials, the rest of ggml's set.
//!
//! Differences that would cancel near 0 (e^x - 1) go by way of the hyperbolic tangent. NaN gives NaN but for STEP and SGN,
//! which compare.

use hexloom_abi::{Opcode, Status};

use super::unary::{Formula, run};
use super::{Context, OpArgs};
use crate::hvx::{Isa, math};

pub(super) fn function<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let param = |idx: usize| args.op.param_f32(idx);
    match args.op.opcode {
        Opcode::Abs => run::<I, _>(cx, args, Abs),
        Opcode::Sgn => run::<I, _>(cx, args, Sgn),
        Opcode::Neg => run::<I, _>(cx, args, Neg),
        Opcode::Step => run::<I, _>(cx, args, Step),
        Opcode::Tanh => run::<I, _>(cx, args, Tanh),
        Opcode::Elu => run::<I, _>(cx, args, Elu),
        Opcode::Relu => run::<I, _>(cx, args, Relu),
        Opcode::Sigmoid => run::<I, _>(cx, args, Sigmoid),
        Opcode::HardSwish => run::<I, _>(cx, args, HardSwish),
        Opcode::HardSigmoid => run::<I, _>(cx, args, HardSigmoid),
        Opcode::Exp => run::<I, _>(cx, args, Exp),
        Opcode::Expm1 => run::<I, _>(cx, args, Expm1),
        Opcode::Softplus => run::<I, _>(cx, args, Softplus),
        Opcode::Floor => run::<I, _>(cx, args, Floor),
        Opcode::Ceil => run::<I, _>(cx, args, Ceil),
        Opcode::Round => run::<I, _>(cx, args, Round),
        Opcode::Trunc => run::<I, _>(cx, args, Trunc),
        Opcode::Sqr => run::<I, _>(cx, args, Sqr),
        Opcode::Sqrt => run::<I, _>(cx, args, Sqrt),
        Opcode::Log => run::<I, _>(cx, args, Log),
        Opcode::Sin => run::<I, _>(cx, args, Sin),
        Opcode::Cos => run::<I, _>(cx, args, Cos),
        Opcode::LeakyRelu => run::<I, _>(cx, args, LeakyRelu { slope: param(0) }),
        Opcode::Xielu => {
            let formula = Xielu {
                negative: param(0),
                positive: param(1),
                linear: param(2),
                eps: param(3),
            };
            run::<I, _>(cx, args, formula)
        }
        _ => Err(Status::Unsupported),
    }
}

/// Declares a function without parameters.
macro_rules! functions {
    ($($name:ident: |$x:ident| $value:expr;)*) => {
        $(pub(super) struct $name;
        impl Formula for $name {
            #[inline(always)]
            fn apply<I: Isa>(&self, $x: I::F32) -> I::F32 {
                $value
            }
        })*
    };
}

functions! {
    Abs: |x| math::abs::<I>(x);
    Sgn: |x| {
        let above = I::select(I::gt(x, I::splat(0.0)), I::splat(1.0), I::splat(0.0));
        I::select(I::gt(I::splat(0.0), x), I::splat(-1.0), above)
    };
    Neg: |x| I::from_bits(I::xor(I::bits(x), I::splat_i(i32::MIN)));
    Step: |x| I::select(I::gt(x, I::splat(0.0)), I::splat(1.0), I::splat(0.0));
    Tanh: |x| math::tanh::<I>(x);
    Elu: |x| I::select(I::gt(x, I::splat(0.0)), x, expm1::<I>(x));
    // In this order of operands a NaN comes through.
    Relu: |x| I::max(I::splat(0.0), x);
    Sigmoid: |x| math::sigmoid::<I>(x);
    HardSwish: |x| I::mul(x, hard_sigmoid::<I>(x));
    HardSigmoid: |x| hard_sigmoid::<I>(x);
    Exp: |x| math::exp::<I>(x);
    Expm1: |x| expm1::<I>(x);
    Softplus: |x| {
        let tail = math::exp::<I>(Neg.apply::<I>(math::abs::<I>(x)));
        I::add(I::max(I::splat(0.0), x), log1p::<I>(tail))
    };
    Floor: |x| {
        let near = nearest::<I>(x);
        I::select(I::gt(near, x), I::sub(near, I::splat(1.0)), near)
    };
    Ceil: |x| {
        let near = nearest::<I>(x);
        I::select(I::gt(x, near), I::add(near, I::splat(1.0)), near)
    };
    Round: |x| {
        let whole = Trunc.apply::<I>(x);
        let rest = I::exact_sub(x, whole);
        let up = I::select(I::gt(I::splat(0.5), rest), whole, I::add(whole, I::splat(1.0)));
        I::select(I::gt(rest, I::splat(-0.5)), up, I::sub(whole, I::splat(1.0)))
    };
    Trunc: |x| I::select(I::gt(I::splat(0.0), x), Ceil.apply::<I>(x), Floor.apply::<I>(x));
    Sqr: |x| I::mul(x, x);
    Sqrt: |x| I::sqrt(x);
    Log: |x| math::log::<I>(x);
    Sin: |x| math::sin_cos::<I>(x).0;
    Cos: |x| math::sin_cos::<I>(x).1;
}

struct LeakyRelu {
    slope: f32,
}

impl Formula for LeakyRelu {
    #[inline(always)]
    fn apply<I: Isa>(&self, x: I::F32) -> I::F32 {
        I::select(I::gt(x, I::splat(0.0)), x, I::mul(x, I::splat(self.slope)))
    }
}

struct Xielu {
    negative: f32,
    positive: f32,
    linear: f32,
    eps: f32,
}

impl Formula for Xielu {
    #[inline(always)]
    fn apply<I: Isa>(&self, x: I::F32) -> I::F32 {
        let linear = I::mul(I::splat(self.linear), x);
        let above = I::add(I::mul(I::splat(self.positive), I::mul(x, x)), linear);
        let curve = I::sub(expm1::<I>(I::min(x, I::splat(self.eps))), x);
        let below = I::add(I::mul(curve, I::splat(self.negative)), linear);
        I::select(I::gt(x, I::splat(0.0)), above, below)
    }
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
