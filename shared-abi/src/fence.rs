//! Fences: 128-byte slots in a pinned buffer that one session signals and another waits on, and the ops that use them.
//!
//! A slot's memory is named by an operand: a tensor flagged [`crate::descriptor::TENSOR_FENCE`], I32 of dimensions
//! `[32, n]` for n slots side by side. Numbers that change on every run lie at fixed parameters of the op, so that a host
//! that sends the same block again patches a word or two: the `_PARAM` constants name them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::code::{Status, StatusCode};
use crate::limits::MAX_PARAMS;

/// A fence slot. The signaller stores `failed_after`, `failed_seq` and `status` first, in this order, then `seq`; a waiter
/// reads them in the opposite order. Only one session signals a slot.
///
/// A failure stays after later signals, so that a waiter that looks late does not miss it, and says from which number on
/// it counts, so that a waiter for an earlier number does not take it for its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(128))]
pub struct FenceSlot {
    /// Last sequence number signalled; compared by [`seq_reached`].
    pub seq: u32,
    /// Ok until a signal fails; then the status of the last that did.
    pub status: StatusCode,
    /// Sequence number of the last signal that failed: waiters for it fail, and for the ones between it and `failed_after`.
    pub failed_seq: u32,
    /// Last sequence number that was signalled before the first failure that is remembered: waiters for it do not fail.
    pub failed_after: u32,
    /// Zero.
    pub reserved: [u32; 28],
}

/// What a fence op does: 16 bytes, carried by `FENCE` and `CPY_FENCE` in `params[0..4]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FenceRef {
    /// Zero.
    pub reserved: u32,
    /// Sequence number to signal or to wait for; changes on every run.
    pub seq: u32,
    /// [`FENCE_SIGNAL`] or [`FENCE_WAIT`].
    pub mode: u32,
    /// Longest wait in microseconds, 1 to [`MAX_TIMEOUT_US`]; zero for a signal.
    pub timeout_us: u32,
}

/// Which member of a group a session is: 16 bytes, carried by `MDEV_GROUP` in `params[0..4]`.
///
/// Members pass a barrier before every later op and at the batch's end, with the numbers from `base_seq` + 1 on; the last
/// is [`GroupParams::last_seq`], which the next batch of the group takes as its base.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GroupParams {
    /// The receiving session's number in the group; differs from member to member.
    pub member: u32,
    /// Members, 1 to [`MAX_MEMBERS`]; as many slots has source 0.
    pub n_members: u32,
    /// Number that all barriers of earlier batches have passed; changes on every run.
    pub base_seq: u32,
    /// Longest wait at one barrier in microseconds, 1 to [`MAX_TIMEOUT_US`].
    pub timeout_us: u32,
}

/// Which rank of a reduction a session is: 20 bytes, carried by `ALLREDUCE` and `ALLREDUCE_ADD` in `params[0..5]`.
///
/// Sources are the ranks' tensors, then the ranks' fences, then the addend. With `n_ranks` destinations each rank computes
/// a share and stores it into all of them; with one it computes everything for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AllreduceParams {
    /// The receiving session's rank; differs from rank to rank.
    pub rank: u32,
    /// Ranks, 1 to [`MAX_RANKS`].
    pub n_ranks: u32,
    /// Number that a rank signals when its tensor is ready; changes on every run.
    pub entry_seq: u32,
    /// Number that a rank signals when it has read and written what it had to; later than `entry_seq`.
    pub exit_seq: u32,
    /// Longest wait for each of the two in microseconds, 1 to [`MAX_TIMEOUT_US`].
    pub timeout_us: u32,
}

/// Mode: store status and sequence number.
pub const FENCE_SIGNAL: u32 = 1;
/// Mode: wait until the sequence number is reached.
pub const FENCE_WAIT: u32 = 2;
/// Longest time-out of any wait inside the DSP: ten minutes.
pub const MAX_TIMEOUT_US: u32 = 600_000_000;
/// Members of a group.
pub const MAX_MEMBERS: u32 = 8;
/// Ranks of a reduction.
pub const MAX_RANKS: u32 = 4;
/// 32-bit words of a slot: `ne[0]` of its tensor.
pub const SLOT_WORDS: u32 = 32;

impl FenceSlot {
    /// A slot that nobody has signalled.
    pub const fn new() -> Self {
        Self {
            seq: 0,
            status: StatusCode(Status::Ok.number()),
            failed_seq: 0,
            failed_after: 0,
            reserved: [0; 28],
        }
    }

    /// How the wait for `wanted` ends; `None` while it is not signalled. A status that is no code counts as internal error.
    pub fn outcome(&self, wanted: u32) -> Option<Status> {
        if !seq_reached(self.seq, wanted) {
            return None;
        }
        let counts = seq_reached(self.failed_seq, wanted) && !seq_reached(self.failed_after, wanted);
        if self.has_failure() && counts {
            return Some(Status::try_from(self.status).unwrap_or(Status::Internal));
        }
        Some(Status::Ok)
    }

    /// The slot after a signal of `seq`. A failure so old that its number would count as a later one is forgotten; between
    /// two failures that are remembered, all numbers count as failed.
    pub fn signalled(&self, seq: u32, status: Status) -> Self {
        const OLD: u32 = 1 << 30;
        let mut slot = Self { seq, ..*self };
        if status != Status::Ok {
            if !self.has_failure() {
                slot.failed_after = self.seq;
            }
            (slot.status, slot.failed_seq) = (status.into(), seq);
        } else if seq.wrapping_sub(slot.failed_seq) >= OLD {
            slot = slot.settled();
        }
        slot
    }

    /// The slot without its failure: once all who could wait for a number that failed have looked.
    pub fn settled(&self) -> Self {
        Self {
            status: Status::Ok.into(),
            failed_seq: self.seq,
            failed_after: self.seq,
            ..*self
        }
    }

    /// Whether a failure is remembered. Memory that nobody has set up holds zeros, which is none.
    pub fn has_failure(&self) -> bool {
        self.status != StatusCode(0) && self.status != Status::Ok.into()
    }
}

impl Default for FenceSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl FenceRef {
    /// Parameter that holds `seq`.
    pub const SEQ_PARAM: usize = 1;

    /// Signals `seq`.
    pub const fn signal(seq: u32) -> Self {
        Self {
            reserved: 0,
            seq,
            mode: FENCE_SIGNAL,
            timeout_us: 0,
        }
    }

    /// Waits for `seq`.
    pub const fn wait(seq: u32, timeout_us: u32) -> Self {
        Self {
            reserved: 0,
            seq,
            mode: FENCE_WAIT,
            timeout_us,
        }
    }

    /// Read from an op's parameters.
    pub const fn of(params: &[u32; MAX_PARAMS]) -> Self {
        let [reserved, seq, mode, timeout_us, ..] = *params;
        Self {
            reserved,
            seq,
            mode,
            timeout_us,
        }
    }

    /// As an op's parameters.
    pub const fn params(&self) -> [u32; MAX_PARAMS] {
        let mut params = [0; MAX_PARAMS];
        let [first, second, third, fourth, ..] = &mut params;
        (*first, *second) = (self.reserved, self.seq);
        (*third, *fourth) = (self.mode, self.timeout_us);
        params
    }
}

impl GroupParams {
    /// Parameter that holds `member`.
    pub const MEMBER_PARAM: usize = 0;
    /// Parameter that holds `base_seq`.
    pub const BASE_SEQ_PARAM: usize = 2;

    /// Read from an op's parameters.
    pub const fn of(params: &[u32; MAX_PARAMS]) -> Self {
        let [member, n_members, base_seq, timeout_us, ..] = *params;
        Self {
            member,
            n_members,
            base_seq,
            timeout_us,
        }
    }

    /// As an op's parameters.
    pub const fn params(&self) -> [u32; MAX_PARAMS] {
        let mut params = [0; MAX_PARAMS];
        let [first, second, third, fourth, ..] = &mut params;
        (*first, *second) = (self.member, self.n_members);
        (*third, *fourth) = (self.base_seq, self.timeout_us);
        params
    }

    /// Number of the last barrier of a batch of `n_ops` ops, this one included.
    pub const fn last_seq(&self, n_ops: u32) -> u32 {
        self.base_seq.wrapping_add(n_ops)
    }
}

impl AllreduceParams {
    /// Parameter that holds `rank`.
    pub const RANK_PARAM: usize = 0;
    /// Parameter that holds `entry_seq`.
    pub const ENTRY_SEQ_PARAM: usize = 2;
    /// Parameter that holds `exit_seq`.
    pub const EXIT_SEQ_PARAM: usize = 3;

    /// Read from an op's parameters.
    pub const fn of(params: &[u32; MAX_PARAMS]) -> Self {
        let [rank, n_ranks, entry_seq, exit_seq, timeout_us, ..] = *params;
        Self {
            rank,
            n_ranks,
            entry_seq,
            exit_seq,
            timeout_us,
        }
    }

    /// As an op's parameters.
    pub const fn params(&self) -> [u32; MAX_PARAMS] {
        let mut params = [0; MAX_PARAMS];
        let [first, second, third, fourth, fifth, ..] = &mut params;
        (*first, *second) = (self.rank, self.n_ranks);
        (*third, *fourth, *fifth) = (self.entry_seq, self.exit_seq, self.timeout_us);
        params
    }
}

/// Whether `seq` is at or past `wanted`, across wrap-around.
pub const fn seq_reached(seq: u32, wanted: u32) -> bool {
    seq.wrapping_sub(wanted) < 0x8000_0000
}

crate::layout::assert_layout!(FenceSlot, 128, 128, { seq: 0, status: 4, failed_seq: 8, failed_after: 12, reserved: 16 });
crate::layout::assert_layout!(FenceRef, 16, 4, { reserved: 0, seq: 4, mode: 8, timeout_us: 12 });
crate::layout::assert_layout!(GroupParams, 16, 4, { member: 0, n_members: 4, base_seq: 8, timeout_us: 12 });
crate::layout::assert_layout!(AllreduceParams, 20, 4, {
    rank: 0, n_ranks: 4, entry_seq: 8, exit_seq: 12, timeout_us: 16,
});
