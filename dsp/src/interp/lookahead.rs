//! Which weights DMA may read, and which product of the batch comes next: weights are fetched ahead of their op.
//!
//! DMA reads memory past the caches and at a time of its own, so it gets only weights that the batch has not written, and
//! ahead of their op only such as no op in between writes.

use hexloom_abi::descriptor::{TENSOR_TILED, TENSOR_WEIGHT};
use hexloom_abi::{OpDesc, Opcode, TensorDesc, scratch, support};

use super::op::OpRunner;
use super::operands::{Operands, overlaps};
use super::written::WrittenRanges;
use crate::kernels::{Constants, OpArgs};
use crate::platform::Platform;
use crate::pool::Fork;

/// Ops that are looked at ahead: as many as lie between two products of a decoder layer, and some more.
const OPS: usize = 16;

/// Whether an op is a product with weights.
pub(super) fn is_product(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx)
}

/// Sources of an op that are tiled weights which this batch has not written, or whose writes are cleaned.
pub(super) fn constants<P>(runner: &OpRunner<'_, P>, operands: &Operands<'_>, written: &WrittenRanges) -> Constants {
    let constant = |tensor: &TensorDesc| {
        let wanted = TENSOR_WEIGHT | TENSOR_TILED;
        tensor.flags & wanted == wanted && !written.touches(tensor, runner.bases)
    };
    let bits = operands.srcs.iter().enumerate();
    let bits = bits.map(|(idx, tensor)| u16::from(tensor.as_ref().is_some_and(constant)) << idx);
    Constants(bits.fold(0, |all, bit| all | bit))
}

/// The product that comes next after op `op_idx`, with those of its sources that can be read from now on; `None` if none
/// can, or if the op will not run with `scratch_bytes`.
pub(super) fn next_product<'a, P: Platform>(
    runner: &OpRunner<'a, P>,
    op_idx: usize,
    scratch_bytes: u64,
    written: &WrittenRanges,
) -> Option<(OpArgs<'a>, Constants)> {
    let ops = runner.view.ops().get(op_idx..)?;
    let of = |desc: &OpDesc| Opcode::try_from(desc.opcode).is_ok_and(is_product);
    let (this, later) = ops.split_first()?;
    if !of(this) {
        return None;
    }
    let ahead = later.iter().take(OPS).position(of)?;
    let next = later.get(ahead)?;
    let operands = runner.share(Operands::new(&runner.view, next).ok()?)?;
    let mut sources = constants(runner, &operands, written);
    for (idx, weight) in operands.srcs.iter().enumerate() {
        let is_written = weight.as_ref().is_some_and(|weight| {
            let dsts = ops.iter().take(ahead + 1).flat_map(|op| &op.dsts);
            let mut dsts = dsts.filter_map(|&dst| runner.view.operand(dst));
            dsts.any(|dst| overlaps(weight, dst))
        });
        if is_written {
            sources.0 &= !(1 << idx);
        }
    }
    if sources == Constants::default() {
        return None;
    }
    let op = operands.op();
    support::check(&runner.view.op(next).ok()?).ok()?;
    scratch::check(&op, runner.pool.n_threads(), scratch_bytes).ok()?;
    // SAFETY: the caller of `OpRunner::new` vouches for view and places.
    let args = unsafe { operands.resolve(runner.bases) }.ok()?;
    Some((args, sources))
}
