//! SWIGLU, REGLU and the GEGLUs: an activation of one operand (or half a row) times another.

use hexloom_abi::{Opcode, Status};

use super::functions::Relu;
use super::rows::{Pieces, Row};
use super::unary::{Formula, Gelu, GeluErf, GeluQuick, Silu};
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, Part};
use crate::tensor::Tensor;

pub(super) fn gated<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    match args.op.opcode {
        Opcode::Swiglu => run::<I, _>(cx, args, Silu),
        Opcode::Geglu => run::<I, _>(cx, args, Gelu),
        Opcode::GegluErf => run::<I, _>(cx, args, GeluErf),
        Opcode::Reglu => run::<I, _>(cx, args, Relu),
        _ => run::<I, _>(cx, args, GeluQuick),
    }
}

fn run<I: Isa, F: Formula>(cx: &Context<'_>, args: &OpArgs<'_>, formula: F) -> Result<(), Status> {
    let kernel = Gated {
        x: args.src(0)?,
        gate: args.src_opt(1),
        out: args.dst(0)?,
        swapped: args.op.param(0) != 0,
        formula,
    };
    cx.run_sized::<I, _>(&kernel, args.op.dst(0).map_or(0, |out| out.elems()))
}

struct Gated<'a, F> {
    x: Tensor<'a>,
    /// Absent when `x` holds both halves of each row.
    gate: Option<Tensor<'a>>,
    out: Tensor<'a>,
    /// The gate is the first half. Without meaning for two operands.
    swapped: bool,
    formula: F,
}

impl<F: Formula> Kernel for Gated<'_, F> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [len, ..] = self.out.ne();
        let (x_start, gate_start) = if self.swapped { (len, 0) } else { (0, len) };
        for piece in Pieces::new(part, self.out.rows(), len) {
            let index = self.out.row_index(piece.row);
            let row = Row::new(&self.x, index);
            let (x, gate) = match &self.gate {
                Some(gate) => (row, Row::new(gate, index)),
                None => (row.part(x_start, len), row.part(gate_start, len)),
            };
            let out = Row::new(&self.out, index);
            for start in piece.starts() {
                let activated = self.formula.apply::<I>(x.load::<I>(start, 0.0));
                out.store::<I>(start, I::mul(activated, gate.load::<I>(start, 0.0)));
            }
        }
    }
}
