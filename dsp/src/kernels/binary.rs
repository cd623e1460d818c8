//! ADD, SUB, MUL, DIV; the second operand repeats in every dimension. Division by zero follows IEEE.

use hexloom_abi::{Opcode, Status};

use super::rows::{Pieces, Row};
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, Part};
use crate::tensor::Tensor;

pub(super) fn binary<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    match args.op.opcode {
        Opcode::Add => run::<I, Add>(cx, args),
        Opcode::Sub => run::<I, Sub>(cx, args),
        Opcode::Mul => run::<I, Mul>(cx, args),
        _ => run::<I, Div>(cx, args),
    }
}

fn run<I: Isa, F: Formula>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = Binary {
        a: args.src(0)?,
        b: args.src(1)?,
        out: args.dst(0)?,
        formula: core::marker::PhantomData::<F>,
    };
    cx.run_sized::<I, _>(&kernel, args.op.dst(0).map_or(0, |out| out.elems()))
}

struct Binary<'a, F> {
    a: Tensor<'a>,
    b: Tensor<'a>,
    out: Tensor<'a>,
    formula: core::marker::PhantomData<F>,
}

/// What happens to a pair of vectors.
trait Formula: Sync {
    fn apply<I: Isa>(a: I::F32, b: I::F32) -> I::F32;
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
                let x = F::apply::<I>(a.load::<I>(start, 0.0), b.load_repeated::<I>(start));
                out.store::<I>(start, x);
            }
        }
    }
}

macro_rules! formulas {
    ($($name:ident: $op:ident;)*) => {
        $(struct $name;
        impl Formula for $name {
            #[inline(always)]
            fn apply<I: Isa>(a: I::F32, b: I::F32) -> I::F32 {
                I::$op(a, b)
            }
        })*
    };
}

formulas! {
    Add: add;
    Sub: sub;
    Mul: mul;
    Div: div;
}
