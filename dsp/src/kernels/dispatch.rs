//! From opcode to kernel: the one match that both the vector kernels and the references go through.

use hexloom_abi::{Opcode, Status};

use super::{Context, OpArgs, argmax, binary, cpy, gated, norm, reference, rope, set_rows, soft_max, unary};
use crate::hvx::Isa;
use crate::hvx::plain::Plain;
use crate::platform::Platform;

/// Which kernels a session runs, chosen when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelSet {
    /// The plain f32 references, for `--exact` and for tests.
    Reference,
    /// Vector kernels on the plain member of the vector layer.
    Plain,
}

impl KernelSet {
    /// The fastest vector kernels that this processor has.
    pub fn best() -> Self {
        Self::Plain
    }

    /// Runs one op. Support and scratch were checked by the caller.
    pub fn run<P: Platform>(self, cx: &Context<'_, P>, args: &OpArgs<'_>) -> Result<(), Status> {
        match self {
            Self::Reference => reference::run(cx, args),
            Self::Plain => run::<Plain, P>(cx, args),
        }
    }
}

fn run<I: Isa, P: Platform>(cx: &Context<'_, P>, args: &OpArgs<'_>) -> Result<(), Status> {
    match args.op.opcode {
        Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Div => binary::binary::<I, P>(cx, args),
        Opcode::RmsNorm | Opcode::RmsNormMul | Opcode::Norm => norm::norm::<I, P>(cx, args),
        Opcode::Silu | Opcode::Gelu | Opcode::GeluErf | Opcode::GeluQuick | Opcode::Scale | Opcode::Clamp => {
            unary::unary::<I, P>(cx, args)
        }
        Opcode::Swiglu | Opcode::Geglu | Opcode::GegluErf | Opcode::GegluQuick => gated::gated::<I, P>(cx, args),
        Opcode::Rope => rope::rope::<I, P>(cx, args),
        Opcode::SoftMax => soft_max::soft_max::<I, P>(cx, args),
        Opcode::SetRows => set_rows::set_rows::<I, P>(cx, args),
        Opcode::Cpy => cpy::cpy::<I, P>(cx, args),
        Opcode::Argmax => argmax::argmax::<I, P>(cx, args),
        _ => Err(Status::Unsupported),
    }
}
