//! A group: sessions on several cores that run the same ops in step, each its share of the rows ([`super::share`]).
//!
//! The first op of the batch, MDEV_GROUP, says which member this session is. From then on a barrier stands before every op
//! and at the batch's end: what this member has written is written back, its slot is signalled, and it waits for the slots
//! of all others. A member that fails signals the number of the last barrier with its status, which every other member
//! meets at its next one. Once all have come to a batch's first barrier, nobody waits in an earlier batch any more, and
//! what failed there is forgotten.

use heapless::Vec;
use hexloom_abi::fence::MAX_MEMBERS;
use hexloom_abi::{GroupParams, Status, TensorDesc};

use super::Failure;
use super::fence::{Slot, WaitError};
use super::op::fail;
use super::written::WrittenRanges;
use crate::platform::{Base, Platform};
use crate::pool::Pool;

/// This session's place in a group, for the length of a batch.
pub(super) struct Group<'a> {
    params: GroupParams,
    slots: Vec<Slot<'a>, { MAX_MEMBERS as usize }>,
    /// Number of the last barrier passed.
    seq: u32,
}

impl<'a> Group<'a> {
    /// The group of checked parameters over its slots.
    ///
    /// # Safety
    /// As for [`Slot::new`].
    pub(super) unsafe fn new(params: GroupParams, slots: &TensorDesc, base: Base) -> Result<Self, Status> {
        let mut all = Vec::new();
        for idx in 0..params.n_members {
            // SAFETY: the caller's promise.
            let slot = unsafe { Slot::new(slots, idx, base) }?;
            all.push(slot).map_err(|_| Status::TooMany)?;
        }
        Ok(Self {
            params,
            slots: all,
            seq: params.base_seq,
        })
    }

    /// Which member this is.
    pub(super) fn member(&self) -> u32 {
        self.params.member
    }

    /// Members.
    pub(super) fn n_members(&self) -> u32 {
        self.params.n_members
    }

    /// Waits until every member has come here; what each has written before, all see after.
    pub(super) fn barrier<P: Platform>(&mut self, pool: &Pool<P>, written: &mut WrittenRanges) -> Result<(), Failure> {
        let is_first = self.seq == self.params.base_seq;
        self.seq = self.seq.wrapping_add(1);
        written.clean_all(pool.platform());
        let GroupParams { member, timeout_us, .. } = self.params;
        if let Some(own) = self.slots.get(member as usize) {
            own.signal(pool.platform(), self.seq, Status::Ok);
        }
        for (idx, slot) in (0u32..).zip(&self.slots) {
            if idx != member {
                slot.wait(pool, self.seq, timeout_us).map_err(|error| match error {
                    WaitError::Timeout => fail(Status::Timeout, 0x400 | idx),
                    WaitError::Peer(status) => fail(Status::PeerFailed, status.number()),
                })?;
            }
        }
        if is_first && let Some(own) = self.slots.get(member as usize) {
            own.settle(pool.platform());
        }
        Ok(())
    }
}
