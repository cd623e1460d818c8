//! Rules that hold for the operands of every op, whatever its kernel: that there are no more of them than it knows, and
//! that what it writes and how much it reads is bounded by memory.

use super::{Check, Part, Reason, ensure, small};
use crate::code::Opcode;
use crate::fence::{AllreduceParams, MAX_RANKS};
use crate::limits::MAX_ELEMS;
use crate::op::{Op, Shape};
use crate::recurrence;

/// Checks the operands of an op whose kernel takes those that it knows.
pub(super) fn check(op: &Op) -> Check {
    let (n_srcs, n_dsts) = most(op);
    for (idx, src) in op.srcs.iter().enumerate() {
        let Some(src) = src else { continue };
        let part = Part::Src(small(idx));
        ensure(idx < n_srcs, part, Reason::Unknown)?;
        ensure(src.elems() <= MAX_ELEMS, part, Reason::Shape)?;
    }
    for (idx, dst) in op.dsts.iter().enumerate() {
        let Some(dst) = dst else { continue };
        let part = Part::Dst(small(idx));
        ensure(idx < n_dsts, part, Reason::Unknown)?;
        ensure(dst.tiled || has_its_own_bytes(dst), part, Reason::Strides)?;
    }
    Ok(())
}

/// Most sources and destinations of an op.
fn most(op: &Op) -> (usize, usize) {
    match op.opcode {
        Opcode::MulMatNx => (op.n_srcs(), op.n_srcs().saturating_sub(1)),
        Opcode::FlashAttnExt => (5, 1),
        Opcode::MulMatAdd | Opcode::MulMatId | Opcode::Rope | Opcode::SoftMax => (3, 1),
        Opcode::MulMat | Opcode::OutProd | Opcode::Conv => (2, 1),
        Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Div | Opcode::RmsNormMul => (2, 1),
        Opcode::Swiglu | Opcode::Geglu | Opcode::GegluErf | Opcode::GegluQuick | Opcode::Reglu => (2, 1),
        Opcode::GetRows | Opcode::SetRows | Opcode::CountEqual => (2, 1),
        Opcode::LinearAttn if op.param(0) == recurrence::LOW_RANK => (7, 2),
        Opcode::LinearAttn => (6, 2),
        Opcode::CpyFence => (1, 2),
        Opcode::Allreduce | Opcode::AllreduceAdd => {
            let n_ranks = AllreduceParams::of(&op.params).n_ranks.min(MAX_RANKS);
            let addend = usize::from(op.opcode == Opcode::AllreduceAdd);
            let n_ranks = usize::from(u8::try_from(n_ranks).unwrap_or(u8::MAX));
            (n_ranks.saturating_mul(2).saturating_add(addend), n_ranks)
        }
        _ => (1, 1),
    }
}

/// Whether no two elements can be the same bytes, as far as the room that they take tells: threads store into all of them.
fn has_its_own_bytes(shape: &Shape) -> bool {
    let [n0, ..] = shape.ne;
    let row = shape.dtype.row_bytes(u64::from(n0)).unwrap_or(u64::MAX);
    shape
        .extent_bytes()
        .is_some_and(|extent| row.saturating_mul(shape.rows()) <= extent)
}
