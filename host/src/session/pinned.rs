//! The pinned buffer of one connection: queue slots first, fence slots behind, each on 128-byte lines of its own.
//!
//! It is one allocation, mapped as long as the connection is open. A [`Slot`] is owned by whoever writes a block, a
//! [`FenceRun`] by whoever signals it; both return to their free list when dropped, and neither ever unmaps what it
//! lies in: that is the connection's.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hexloom_abi::fence::seq_reached;
use hexloom_abi::layout::align_up;
use hexloom_abi::limits::{FENCE_SLOT_BYTES, LINE_BYTES};
use hexloom_abi::{FenceSlot, Status, StatusCode};
use zerocopy::IntoBytes;

use super::SessionOptions;
use super::free_runs::FreeRuns;
use crate::memory::Buffer;

/// The pinned buffer and which of its slots are free.
#[derive(Debug)]
pub(crate) struct Pinned {
    buffer: Buffer,
    slot_bytes: u64,
    n_slots: u32,
    free_slots: Mutex<FreeRuns>,
    fences_offset: u64,
    free_fences: Mutex<FreeRuns>,
    /// The last sequence number that was promised on each fence slot; 0 = none.
    promised: Vec<AtomicU32>,
}

/// One queue slot, owned.
#[derive(Debug)]
pub(crate) struct Slot {
    pinned: Arc<Pinned>,
    idx: u32,
}

/// Fence slots side by side, owned.
#[derive(Debug)]
pub(crate) struct FenceRun {
    pinned: Arc<Pinned>,
    first: u32,
    n: u32,
}

impl Pinned {
    /// Bytes for the slots and fences that `options` ask for; `None` when that exceeds an address space.
    pub(crate) fn bytes(options: &SessionOptions) -> Option<u64> {
        let fences = FENCE_SLOT_BYTES.checked_mul(options.n_fences.into())?;
        fences_offset(options)?.checked_add(fences)
    }

    /// Divides a buffer of [`Pinned::bytes`].
    pub(crate) fn new(buffer: Buffer, options: &SessionOptions) -> Self {
        Self {
            buffer,
            slot_bytes: options.slot_bytes(),
            n_slots: options.n_slots,
            free_slots: Mutex::new(FreeRuns::new(options.n_slots)),
            fences_offset: fences_offset(options).unwrap_or(0),
            free_fences: Mutex::new(FreeRuns::new(options.n_fences)),
            promised: (0..options.n_fences).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Takes a free slot; `None` when every slot is owned.
    pub(crate) fn take_slot(self: &Arc<Self>) -> Option<Slot> {
        let idx = lock(&self.free_slots).take(1)?;
        Some(Slot {
            pinned: Arc::clone(self),
            idx,
        })
    }

    /// Queue slots owned, and all of them.
    pub(crate) fn slots_owned(&self) -> (usize, usize) {
        let (n_free, _) = lock(&self.free_slots).free();
        ((self.n_slots - n_free) as usize, self.n_slots as usize)
    }

    /// Takes `n` fence slots side by side, never signalled; `None` when there is no such run.
    pub(crate) fn take_fences(self: &Arc<Self>, n: u32) -> Option<FenceRun> {
        let first = lock(&self.free_fences).take(n)?;
        let run = FenceRun {
            pinned: Arc::clone(self),
            first,
            n,
        };
        for idx in 0..n {
            run.write(idx, FenceSlot::new());
            run.promise(idx, 0);
        }
        Some(run)
    }

    /// Fence slots free, the longest run of them, and all of them.
    pub(crate) fn fences_free(&self) -> (u32, u32, u32) {
        let (free, longest) = lock(&self.free_fences).free();
        (free, longest, self.promised.len() as u32)
    }

    /// Signals failure on every fence that was promised, so that nobody waits for a session that is gone.
    pub(crate) fn fail_fences(&self) {
        for (idx, promised) in (0u32..).zip(&self.promised) {
            let seq = promised.load(Ordering::Acquire);
            if seq != 0 {
                self.signal(idx, seq, Status::PeerFailed);
            }
        }
    }

    /// Signals a slot that has not reached `seq`. Nobody else signals it: its session's DSP process is gone.
    fn signal(&self, slot: u32, seq: u32, status: Status) {
        let now = self.read(slot);
        if !seq_reached(now.seq, seq) {
            let after = now.signalled(seq, status);
            let [seq, status, failed_seq, failed_after] = self.words(slot);
            failed_after.store(after.failed_after, Ordering::Relaxed);
            failed_seq.store(after.failed_seq, Ordering::Relaxed);
            status.store(after.status.0, Ordering::Relaxed);
            seq.store(after.seq, Ordering::Release);
        }
    }

    /// A fence slot as it is: the number first, then what came with it.
    fn read(&self, slot: u32) -> FenceSlot {
        let [seq, status, failed_seq, failed_after] = self.words(slot);
        FenceSlot {
            seq: seq.load(Ordering::Acquire),
            status: StatusCode(status.load(Ordering::Acquire)),
            failed_seq: failed_seq.load(Ordering::Acquire),
            failed_after: failed_after.load(Ordering::Relaxed),
            ..FenceSlot::new()
        }
    }

    /// Number, status and range of failed numbers of a fence slot, as they lie in shared memory.
    fn words(&self, slot: u32) -> [&AtomicU32; 4] {
        let offset = self.fence_offset(slot);
        let words = [
            offset_of!(FenceSlot, seq),
            offset_of!(FenceSlot, status),
            offset_of!(FenceSlot, failed_seq),
            offset_of!(FenceSlot, failed_after),
        ];
        words.map(|word| {
            let at = word as u64;
            let word = self
                .buffer
                .memory()
                .address(offset + at, size_of::<u32>())
                .cast::<u32>();
            // SAFETY: `address` has found the word inside the allocation, which lives as long as `self`; it is aligned,
            // slots starting on 128-byte lines of page-aligned memory; both sides access it atomically.
            unsafe { AtomicU32::from_ptr(word) }
        })
    }

    fn fence_offset(&self, slot: u32) -> u64 {
        self.fences_offset + u64::from(slot) * FENCE_SLOT_BYTES
    }
}

impl Slot {
    pub(crate) fn is_of(&self, pinned: &Arc<Pinned>) -> bool {
        Arc::ptr_eq(&self.pinned, pinned)
    }

    /// Byte offset in the pinned buffer.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.idx) * self.pinned.slot_bytes
    }

    /// Copies `data` to `offset` in the slot. The slot must not be in flight.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let to = self.address(offset, data.len());
        // SAFETY: `address` has found the range inside this slot, which nobody else owns; `data` is private memory.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }

    /// Copies `data.len()` bytes from `offset` in the slot.
    pub(crate) fn read(&self, offset: u64, data: &mut [u8]) {
        let from = self.address(offset, data.len());
        // SAFETY: as in `write`; the DSP may write progress meanwhile, and a torn copy is only a diagnostic.
        unsafe { std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), data.len()) };
    }

    /// # Panics
    /// When the range leaves the slot: batches are limited to what a slot holds, so only a mistake in this crate can.
    fn address(&self, offset: u64, len: usize) -> *mut u8 {
        let end = offset.checked_add(len as u64);
        assert!(
            end.is_some_and(|end| end <= self.pinned.slot_bytes),
            "block larger than its slot"
        );
        self.pinned.buffer.memory().address(self.offset() + offset, len)
    }
}

impl FenceRun {
    /// The buffer that the slots lie in.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.pinned.buffer
    }

    /// Byte offset of slot `idx` of the run in that buffer.
    pub(crate) fn offset(&self, idx: u32) -> u64 {
        self.pinned.fence_offset(self.first + idx)
    }

    /// Notes that `seq` will be signalled on slot `idx`: by a batch, or with a failure when the session is lost.
    pub(crate) fn promise(&self, idx: u32, seq: u32) {
        self.pinned.promised[(self.first + idx) as usize].store(seq, Ordering::Release);
    }

    /// Slot `idx` as it is.
    pub(crate) fn read(&self, idx: u32) -> FenceSlot {
        self.pinned.read(self.first + idx)
    }

    fn write(&self, idx: u32, slot: FenceSlot) {
        self.pinned.buffer.memory().write(self.offset(idx), slot.as_bytes());
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.pinned.free_slots).give_back(self.idx, 1);
    }
}

impl Drop for FenceRun {
    fn drop(&mut self) {
        (0..self.n).for_each(|idx| self.promise(idx, 0));
        lock(&self.pinned.free_fences).give_back(self.first, self.n);
    }
}

fn fences_offset(options: &SessionOptions) -> Option<u64> {
    let slots = options.slot_bytes().checked_mul(options.n_slots.into())?;
    align_up(slots, LINE_BYTES)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
