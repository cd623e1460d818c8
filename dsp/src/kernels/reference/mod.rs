//! Plain references: what each op means, element by element, with sums in f64. Slow on purpose, never wrong on purpose.
//!
//! They read any type and stride through [`element`], run with `--exact`, and judge the vector kernels in tests.

mod matmul;

use hexloom_abi::{Opcode, Status};

use super::{Context, OpArgs};
use crate::platform::Platform;

pub(super) fn run<P: Platform>(cx: &Context<'_, P>, args: &OpArgs<'_>) -> Result<(), Status> {
    match args.op.opcode {
        Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx => matmul::matmul(cx, args),
        _ => Err(Status::Unsupported),
    }
}
