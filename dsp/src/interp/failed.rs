//! A batch that fails tells its peers: what it should have signalled is signalled with the failure, so that nobody waits
//! for a deadline.

use hexloom_abi::fence::FENCE_SIGNAL;
use hexloom_abi::{AllreduceParams, BatchView, FenceRef, GroupParams, Opcode, Status, TensorDesc, support};

use super::fence::Slot;
use super::operands::Operands;
use crate::mapping::{MappingTable, PinnedBuffer};
use crate::platform::{Base, Platform};
use crate::pool::{Fork, Pool};

/// Where to signal what.
struct Signal<'a> {
    tensor: &'a TensorDesc,
    slot: u32,
    seq: u32,
}

/// Signals `status` in every slot that ops from `from` on would have signalled, and in the own slot of a group.
pub(super) fn tell_peers<P: Platform>(
    pool: &Pool<P>,
    mappings: &mut MappingTable,
    pinned: PinnedBuffer,
    view: &BatchView<'_>,
    from: usize,
    status: Status,
) {
    let group = |params: &[u32; 16]| GroupParams::of(params);
    let first = view
        .ops()
        .first()
        .map(|op| (Opcode::try_from(op.opcode), group(&op.params)));
    // Of a group one member signals for all; it hears of the failure at the next barrier.
    let leads = !matches!(first, Some((Ok(Opcode::MdevGroup), group)) if group.member != 0);
    for (idx, desc) in view.ops().iter().enumerate() {
        let Ok(operands) = Operands::new(view, desc) else {
            continue;
        };
        if support::check(&operands.op()).is_err() {
            continue;
        }
        let Some(signal) = signal(&operands, view.ops().len() as u32) else {
            continue;
        };
        let is_due = match operands.opcode {
            Opcode::MdevGroup => idx == 0,
            _ => idx >= from && leads,
        };
        let base = if is_due {
            base(pool, mappings, pinned, view, signal.tensor)
        } else {
            None
        };
        // SAFETY: the tensor is part of a checked view, and its buffer is mapped at its size until the table is asked for
        // another one, which is after the signal.
        let slot = base.map(|base| unsafe { Slot::new(signal.tensor, signal.slot, base) });
        if let Some(Ok(slot)) = slot {
            slot.signal(pool.platform(), signal.seq, status);
        }
    }
}

/// What an op signals when it is done.
fn signal<'a>(operands: &'a Operands<'_>, n_ops: u32) -> Option<Signal<'a>> {
    let fence = FenceRef::of(&operands.params);
    let (tensor, slot, seq) = match operands.opcode {
        Opcode::Fence if fence.mode == FENCE_SIGNAL => (operands.dst(0), 0, fence.seq),
        Opcode::CpyFence => (operands.dst(1), 0, fence.seq),
        Opcode::MdevGroup => {
            let group = GroupParams::of(&operands.params);
            (operands.src(0), group.member, group.last_seq(n_ops))
        }
        Opcode::Allreduce | Opcode::AllreduceAdd => {
            let AllreduceParams {
                rank,
                n_ranks,
                exit_seq,
                ..
            } = AllreduceParams::of(&operands.params);
            (operands.src(n_ranks.saturating_add(rank) as usize), 0, exit_seq)
        }
        _ => return None,
    };
    Some(Signal {
        tensor: tensor.ok()?,
        slot,
        seq,
    })
}

/// Where the buffer of a slot begins: it may be one that the batch did not get as far as mapping.
fn base<P: Platform>(
    pool: &Pool<P>,
    mappings: &mut MappingTable,
    pinned: PinnedBuffer,
    view: &BatchView<'_>,
    tensor: &TensorDesc,
) -> Option<Base> {
    let buffer = view.buffers().get(usize::from(tensor.buffer_idx))?;
    if let Some(base) = mappings.base_of(buffer, pinned) {
        return Some(base);
    }
    // Transfers of a poisoned session may still read what would have to go.
    if pool.is_poisoned() {
        return None;
    }
    let bases = mappings.resolve(pool.platform(), core::slice::from_ref(buffer), pinned);
    bases.ok()?.first().copied()
}
