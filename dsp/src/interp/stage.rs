//! Operands in extended buffers, which have no address: they are brought to scratch by DMA before the kernel runs.

use hexloom_abi::{Status, support};

use super::Failure;
use super::op::{OpRunner, fail};
use super::operands::Operands;
use super::written::WrittenRanges;
use crate::platform::Platform;

pub(super) fn run<'a, P: Platform>(
    _runner: &OpRunner<'a, P>,
    operands: Operands<'a>,
    (srcs, dsts): (u16, u16),
    _written: &mut WrittenRanges,
) -> Result<(), Failure> {
    let op = operands.op();
    support::check_extended(&op, srcs, dsts).map_err(|refusal| fail(Status::Unsupported, refusal.detail()))?;
    Err(fail(Status::Unsupported, 0))
}
