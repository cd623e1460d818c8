//! ADD, SUB, MUL, DIV; the second operand repeats in every dimension. Division by zero follows IEEE.

use hexloom_abi::{Opcode, Status};

use super::rows::{Pieces, Row};
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, Part};
use crate::tensor::Tensor;

pub(super) fn binary<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    match args.op.opcode {
        Opcode::Add => run::<I, _>(cx, args, Add),
        Opcode::Mul => run::<I, _>(cx, args, Mul),
        opcode => run::<I, _>(cx, args, Rare(opcode)),
    }
}

fn run<I: Isa, F: Formula>(cx: &Context<'_>, args: &OpArgs<'_>, formula: F) -> Result<(), Status> {
    let kernel = Binary {
        a: args.src(0)?,
        b: args.src(1)?,
        out: args.dst(0)?,
        formula,
    };
    cx.run_sized::<I, _>(&kernel, args.op.dst(0).map_or(0, |out| out.elems()))
}

struct Binary<'a, F> {
    a: Tensor<'a>,
    b: Tensor<'a>,
    out: Tensor<'a>,
    formula: F,
}

/// What happens to a pair of vectors.
trait Formula: Sync {
    fn apply<I: Isa>(&self, a: I::F32, b: I::F32) -> I::F32;
}

impl<F: Formula> Kernel for Binary<'_, F> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        for piece in Pieces::new(part, self.out.rows(), self.out.ne()[0]) {
            let index = self.out.row_index(piece.row);
            let a = Row::new(&self.a, index);
            let b = Row::repeated(&self.b, index);
            let out = Row::new(&self.out, index);
            for start in piece.starts() {
                let x = self
                    .formula
                    .apply::<I>(a.load::<I>(start, 0.0), b.load_repeated::<I>(start));
                out.store::<I>(start, x);
            }
        }
    }
}

struct Add;
struct Mul;
/// SUB and DIV, told apart for each vector: models have few, and each loop of its own costs 4 KiB of code.
struct Rare(Opcode);

impl Formula for Add {
    #[inline(always)]
    fn apply<I: Isa>(&self, a: I::F32, b: I::F32) -> I::F32 {
        I::add(a, b)
    }
}

impl Formula for Mul {
    #[inline(always)]
    fn apply<I: Isa>(&self, a: I::F32, b: I::F32) -> I::F32 {
        I::mul(a, b)
    }
}

impl Formula for Rare {
    #[inline(always)]
    fn apply<I: Isa>(&self, a: I::F32, b: I::F32) -> I::F32 {
        match self.0 {
            Opcode::Sub => I::sub(a, b),
            _ => I::div(a, b),
        }
    }
}
