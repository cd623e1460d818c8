//! SILU, the GELUs, SCALE and CLAMP: one value in, one value out. The gated ops share these formulas.
//!
//! At -infinity the formulas give NaN (infinity times 0), as they stand; NaN gives NaN, CLAMP included.

use hexloom_abi::{Opcode, Status};

use super::rows::{Pieces, Row};
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, Part, math};
use crate::tensor::Tensor;

pub(super) fn unary<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let [first, second] = [args.op.param_f32(0), args.op.param_f32(1)];
    match args.op.opcode {
        Opcode::Silu => run::<I, _>(cx, args, Silu),
        Opcode::Gelu => run::<I, _>(cx, args, Gelu),
        Opcode::GeluErf => run::<I, _>(cx, args, GeluErf),
        Opcode::GeluQuick => run::<I, _>(cx, args, GeluQuick),
        Opcode::Scale => {
            let formula = Scale {
                factor: first,
                offset: second,
            };
            run::<I, _>(cx, args, formula)
        }
        _ => {
            let formula = Clamp {
                low: first,
                high: second,
            };
            run::<I, _>(cx, args, formula)
        }
    }
}

/// What happens to a vector.
pub(super) trait Formula: Sync {
    fn apply<I: Isa>(&self, x: I::F32) -> I::F32;
}

/// x * sigmoid(x).
pub(super) struct Silu;
/// x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)), which is 0.5 x (1 + tanh(...)) without its cancellation.
pub(super) struct Gelu;
/// x times the normal distribution's integral up to x; the negative tail keeps its relative accuracy.
pub(super) struct GeluErf;
/// x * sigmoid(1.702 x).
pub(super) struct GeluQuick;

struct Scale {
    factor: f32,
    offset: f32,
}

struct Clamp {
    low: f32,
    high: f32,
}

impl Formula for Silu {
    #[inline(always)]
    fn apply<I: Isa>(&self, x: I::F32) -> I::F32 {
        I::mul(x, math::sigmoid::<I>(x))
    }
}

impl Formula for Gelu {
    #[inline(always)]
    fn apply<I: Isa>(&self, x: I::F32) -> I::F32 {
        const TWO_SQRT_2_OVER_PI: f32 = core::f32::consts::FRAC_2_SQRT_PI * core::f32::consts::SQRT_2;
        let cubic = I::add(I::splat(1.0), I::mul(I::splat(0.044_715), I::mul(x, x)));
        let inner = I::mul(I::mul(I::splat(TWO_SQRT_2_OVER_PI), x), cubic);
        I::mul(x, math::sigmoid::<I>(inner))
    }
}

impl Formula for GeluErf {
    #[inline(always)]
    fn apply<I: Isa>(&self, x: I::F32) -> I::F32 {
        let scaled = I::mul(math::abs::<I>(x), I::splat(core::f32::consts::FRAC_1_SQRT_2));
        let tail = I::mul(I::splat(0.5), math::erfc::<I>(scaled));
        let negative = I::gt(I::splat(0.0), x);
        I::mul(x, I::select(negative, tail, I::sub(I::splat(1.0), tail)))
    }
}

impl Formula for GeluQuick {
    #[inline(always)]
    fn apply<I: Isa>(&self, x: I::F32) -> I::F32 {
        I::mul(x, math::sigmoid::<I>(I::mul(I::splat(1.702), x)))
    }
}

impl Formula for Scale {
    #[inline(always)]
    fn apply<I: Isa>(&self, x: I::F32) -> I::F32 {
        I::add(I::mul(x, I::splat(self.factor)), I::splat(self.offset))
    }
}

impl Formula for Clamp {
    #[inline(always)]
    fn apply<I: Isa>(&self, x: I::F32) -> I::F32 {
        // In this order of operands a NaN comes through.
        I::min(I::splat(self.high), I::max(I::splat(self.low), x))
    }
}

pub(super) fn run<I: Isa, F: Formula>(cx: &Context<'_>, args: &OpArgs<'_>, formula: F) -> Result<(), Status> {
    let kernel = Unary {
        x: args.src(0)?,
        out: args.dst(0)?,
        formula,
    };
    cx.run_sized::<I, _>(&kernel, args.op.dst(0).map_or(0, |out| out.elems()))
}

struct Unary<'a, F> {
    x: Tensor<'a>,
    out: Tensor<'a>,
    formula: F,
}

impl<F: Formula> Kernel for Unary<'_, F> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        for piece in Pieces::new(part, self.out.rows(), self.out.ne()[0]) {
            let index = self.out.row_index(piece.row);
            let x = Row::new(&self.x, index);
            let out = Row::new(&self.out, index);
            for start in piece.starts() {
                out.store::<I>(start, self.formula.apply::<I>(x.load::<I>(start, 0.0)));
            }
        }
    }
}
