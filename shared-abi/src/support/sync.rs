//! Rules of the ops that order sessions: fences, groups and reductions.

use super::{Check, Part, Reason, ensure, floats, of_type, operand, refuse, src_part};
use crate::code::DType;
use crate::fence::{
    AllreduceParams, FENCE_SIGNAL, FENCE_WAIT, FenceRef, GroupParams, MAX_MEMBERS, MAX_RANKS, MAX_TIMEOUT_US,
    SLOT_WORDS,
};
use crate::op::Op;

pub(super) fn fence(op: &Op) -> Check {
    let FenceRef { mode, timeout_us, .. } = FenceRef::of(&op.params);
    match mode {
        FENCE_SIGNAL => {
            ensure(op.src(0).is_none(), Part::Src(0), Reason::Value)?;
            signal(op, Part::Dst(0))
        }
        FENCE_WAIT => {
            ensure(op.dst(0).is_none(), Part::Dst(0), Reason::Value)?;
            deadline(timeout_us, 3)?;
            slots(op, Part::Src(0), 1)
        }
        _ => Err(refuse(Part::Param(2), Reason::Value)),
    }
}

pub(super) fn signal(op: &Op, slot: Part) -> Check {
    let FenceRef { reserved, mode, .. } = FenceRef::of(&op.params);
    ensure(reserved == 0, Part::Param(0), Reason::Value)?;
    ensure(mode == FENCE_SIGNAL, Part::Param(2), Reason::Value)?;
    slots(op, slot, 1)
}

pub(super) fn group(op: &Op) -> Check {
    let group = GroupParams::of(&op.params);
    ensure(
        (1..=MAX_MEMBERS).contains(&group.n_members),
        Part::Param(1),
        Reason::Value,
    )?;
    ensure(group.member < group.n_members, Part::Param(0), Reason::Value)?;
    deadline(group.timeout_us, 3)?;
    ensure(op.dst(0).is_none(), Part::Dst(0), Reason::Value)?;
    slots(op, Part::Src(0), group.n_members)
}

pub(super) fn allreduce(op: &Op, with_add: bool) -> Check {
    let AllreduceParams {
        rank,
        n_ranks,
        entry_seq,
        exit_seq,
        timeout_us,
    } = AllreduceParams::of(&op.params);
    ensure((1..=MAX_RANKS).contains(&n_ranks), Part::Param(1), Reason::Value)?;
    ensure(rank < n_ranks, Part::Param(0), Reason::Value)?;
    ensure(
        entry_seq != exit_seq && crate::fence::seq_reached(exit_seq, entry_seq),
        Part::Param(3),
        Reason::Value,
    )?;
    deadline(timeout_us, 4)?;
    let first = floats(op, Part::Src(0))?;
    let alike = |part: Part| {
        let shape = of_type(op, part, &[first.dtype])?;
        ensure(shape.ne == first.ne, part, Reason::Shape)?;
        ensure(shape.dense_everywhere(), part, Reason::Strides)
    };
    for idx in 0..n_ranks {
        alike(src_part(idx))?;
        slots(op, src_part(n_ranks.saturating_add(idx)), 1)?;
    }
    let addend = src_part(n_ranks.saturating_mul(2));
    if with_add {
        let shape = of_type(op, addend, &[first.dtype])?;
        let row = [first.ne[0], 1, 1, 1];
        ensure(shape.ne == first.ne || shape.ne == row, addend, Reason::Shape)?;
        ensure(shape.dense_everywhere(), addend, Reason::Strides)?;
    } else {
        ensure(operand(op, addend).is_err(), addend, Reason::Shape)?;
    }
    let n_dsts = (0u32..).zip(&op.dsts).filter(|(_, dst)| dst.is_some()).count();
    let n_dsts = u32::try_from(n_dsts).unwrap_or(u32::MAX);
    ensure(n_dsts == 1 || n_dsts == n_ranks, Part::Op, Reason::Shape)?;
    (0..n_dsts).try_for_each(|idx| alike(Part::Dst(u8::try_from(idx).unwrap_or(u8::MAX))))
}

/// `count` fence slots side by side.
fn slots(op: &Op, part: Part, count: u32) -> Check {
    let shape = of_type(op, part, &[DType::I32])?;
    ensure(shape.ne == [SLOT_WORDS, count, 1, 1], part, Reason::Shape)?;
    ensure(shape.dense_everywhere(), part, Reason::Strides)
}

fn deadline(timeout_us: u32, param: u8) -> Check {
    let bounded = (1..=MAX_TIMEOUT_US).contains(&timeout_us);
    ensure(bounded, Part::Param(param), Reason::Value)
}
