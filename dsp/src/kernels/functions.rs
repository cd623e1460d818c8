//! Functions of one element, and the gated ops: such a function of one operand (or half a row) times another.

use hexloom_abi::{Opcode, Status};

use super::formulas::Function;
use super::rows::{Pieces, Row};
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, Part};
use crate::tensor::Tensor;

pub(super) fn function<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let function = Function {
        opcode: args.op.opcode,
        params: core::array::from_fn(|idx| args.op.param_f32(idx)),
    };
    run::<I>(cx, args, function, Gate::None)
}

pub(super) fn gated<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let opcode = match args.op.opcode {
        Opcode::Swiglu => Opcode::Silu,
        Opcode::Geglu => Opcode::Gelu,
        Opcode::GegluErf => Opcode::GeluErf,
        Opcode::GegluQuick => Opcode::GeluQuick,
        _ => Opcode::Relu,
    };
    let gate = match args.src_opt(1) {
        Some(gate) => Gate::Apart(gate),
        None if args.op.param(0) != 0 => Gate::FirstHalf,
        None => Gate::SecondHalf,
    };
    run::<I>(
        cx,
        args,
        Function {
            opcode,
            params: [0.0; 4],
        },
        gate,
    )
}

fn run<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>, function: Function, gate: Gate<'_>) -> Result<(), Status> {
    let kernel = Functions {
        x: args.src(0)?,
        out: args.dst(0)?,
        function,
        gate,
    };
    cx.run_sized::<I, _>(&kernel, args.op.dst(0).map_or(0, |out| out.elems()))
}

/// What a function's value is multiplied by.
enum Gate<'a> {
    None,
    Apart(Tensor<'a>),
    /// Each row of `x` holds the gate, then the function's operand.
    FirstHalf,
    /// The other way round.
    SecondHalf,
}

struct Functions<'a> {
    x: Tensor<'a>,
    out: Tensor<'a>,
    function: Function,
    gate: Gate<'a>,
}

impl Kernel for Functions<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [len, ..] = self.out.ne();
        for piece in Pieces::new(part, self.out.rows(), len) {
            let index = self.out.row_index(piece.row);
            let row = Row::new(&self.x, index);
            let (x, gate) = match &self.gate {
                Gate::None => (row, None),
                Gate::Apart(gate) => (row, Some(Row::new(gate, index))),
                Gate::FirstHalf => (row.part(len, len), Some(row.part(0, len))),
                Gate::SecondHalf => (row.part(0, len), Some(row.part(len, len))),
            };
            let out = Row::new(&self.out, index);
            for start in piece.starts() {
                let value = self.function.apply::<I>(x.load::<I>(start, 0.0));
                let value = match gate {
                    Some(gate) => I::mul(value, gate.load::<I>(start, 0.0)),
                    None => value,
                };
                out.store::<I>(start, value);
            }
        }
    }
}
