//! Fence slots: how a session tells another that what it wrote is in memory, and how it waits to be told.
//!
//! Caches of two sessions are not coherent, and fences are what makes one see the other. A signal comes after everything
//! that the batch has written was written back; after a wait nothing counts as fresh, so that the next use of a buffer
//! reads memory. Every wait has a deadline in time, and the status of whoever signals comes with the signal.

use core::sync::atomic::{AtomicU32, Ordering, fence};

use hexloom_abi::descriptor::TENSOR_FENCE;
use hexloom_abi::limits::{FENCE_SLOT_BYTES, LINE_BYTES};
use hexloom_abi::profile::TRACE_FENCE;
use hexloom_abi::{FenceSlot, Status, StatusCode, TensorDesc};

use crate::platform::{Base, Platform};
use crate::pool::{Fork, Pool};

/// One slot, in this session's pinned buffer or in another's.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    address: u64,
    seq: &'a AtomicU32,
    status: &'a AtomicU32,
    failed_seq: &'a AtomicU32,
    failed_after: &'a AtomicU32,
}

/// How a wait failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitError {
    /// The deadline passed.
    Timeout,
    /// The signaller failed with this.
    Peer(Status),
}

impl<'a> Slot<'a> {
    /// Slot `idx` of a tensor whose buffer begins at `base`.
    ///
    /// # Safety
    /// - `tensor` is part of a checked view;
    /// - as many bytes as its buffer's descriptor says are accessible at `base` for `'a`.
    pub(super) unsafe fn new(tensor: &TensorDesc, idx: u32, base: Base) -> Result<Self, Status> {
        if tensor.flags & TENSOR_FENCE == 0 || idx >= tensor.ne[1] {
            return Err(Status::Invalid);
        }
        let first = base.address().and_then(|base| base.checked_add(tensor.offset));
        let address = first.and_then(|first| first.checked_add(u64::from(idx) * FENCE_SLOT_BYTES));
        let address = address.filter(|address| address.is_multiple_of(LINE_BYTES));
        let address = address.ok_or(Status::Invalid)?;
        let word = |idx: usize| {
            let word = (address as usize as *mut u32).wrapping_add(idx);
            // SAFETY: the slot lies in the tensor, whose extent the view has checked, on a line of its own; both sides
            // touch its words only as atomics, or copy the line.
            unsafe { AtomicU32::from_ptr(word) }
        };
        Ok(Self {
            address,
            seq: word(0),
            status: word(1),
            failed_seq: word(2),
            failed_after: word(3),
        })
    }

    /// Tells waiters that `seq` is reached and how. What it stands for must be in memory, not only in a cache.
    pub(super) fn signal<P: Platform>(&self, platform: &P, seq: u32, status: Status) {
        self.write(platform, self.read(platform).signalled(seq, status));
    }

    /// Forgets an earlier failure: nobody can wait for its numbers any more.
    pub(super) fn settle<P: Platform>(&self, platform: &P) {
        let slot = self.read(platform);
        if slot.has_failure() {
            self.write(platform, slot.settled());
        }
    }

    /// Waits until `seq` is reached, at most `timeout_us`.
    pub(super) fn wait<P: Platform>(&self, pool: &Pool<P>, seq: u32, timeout_us: u32) -> Result<(), WaitError> {
        let platform = pool.platform();
        if let Some(status) = self.read(platform).outcome(seq) {
            return ended(status);
        }
        pool.mark(0, TRACE_FENCE, false);
        let deadline = platform.nanos().saturating_add(u64::from(timeout_us) * 1000);
        let result = loop {
            // The clock is read first: a signal that came before the deadline is seen even by a late look.
            let is_late = platform.nanos() >= deadline;
            if let Some(status) = self.read(platform).outcome(seq) {
                break ended(status);
            }
            if is_late {
                break Err(WaitError::Timeout);
            }
            platform.relax();
        };
        pool.mark(0, TRACE_FENCE, true);
        result
    }

    fn write<P: Platform>(&self, platform: &P, slot: FenceSlot) {
        fence(Ordering::SeqCst);
        self.failed_after.store(slot.failed_after, Ordering::Relaxed);
        self.failed_seq.store(slot.failed_seq, Ordering::Release);
        self.status.store(slot.status.0, Ordering::Release);
        self.seq.store(slot.seq, Ordering::Release);
        platform.clean(self.address, FENCE_SLOT_BYTES);
    }

    /// The slot as it is in memory.
    fn read<P: Platform>(&self, platform: &P) -> FenceSlot {
        platform.invalidate(self.address, FENCE_SLOT_BYTES);
        let seq = self.seq.load(Ordering::Acquire);
        let status = StatusCode(self.status.load(Ordering::Acquire));
        FenceSlot {
            seq,
            status,
            failed_seq: self.failed_seq.load(Ordering::Acquire),
            failed_after: self.failed_after.load(Ordering::Acquire),
            ..FenceSlot::new()
        }
    }
}

fn ended(status: Status) -> Result<(), WaitError> {
    match status {
        Status::Ok => Ok(()),
        failed => Err(WaitError::Peer(failed)),
    }
}
