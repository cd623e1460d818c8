//! Queue slots: the pieces of the pinned buffer that blocks are written to, owned one by one.
//!
//! Layout of the pinned buffer: slots first, each on its own 128-byte lines, then fence slots. A [`Slot`] is owned by
//! whoever writes a block; it returns to the pool when dropped, so two batches never share one.

use std::sync::{Arc, Mutex, PoisonError};

use crate::transport::SharedMemory;

/// The pinned buffer and which of its slots are free.
#[derive(Debug)]
pub(crate) struct SlotPool {
    memory: SharedMemory,
    slot_bytes: u64,
    free: Mutex<Vec<u32>>,
    total: usize,
}

/// One slot, owned.
#[derive(Debug)]
pub(crate) struct Slot {
    pool: Arc<SlotPool>,
    idx: u32,
}

impl SlotPool {
    pub(crate) fn new(memory: SharedMemory, slot_bytes: u64, n_slots: u32) -> Self {
        Self {
            memory,
            slot_bytes,
            free: Mutex::new((0..n_slots).rev().collect()),
            total: n_slots as usize,
        }
    }

    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Takes a free slot; `None` when every slot is owned.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Slot> {
        let idx = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Slot {
            pool: Arc::clone(self),
            idx,
        })
    }

    /// Slots owned, and all slots.
    pub(crate) fn owned(&self) -> (usize, usize) {
        let n_free = self.free.lock().unwrap_or_else(PoisonError::into_inner).len();
        (self.total - n_free, self.total)
    }
}

impl Slot {
    pub(crate) fn is_of(&self, pool: &Arc<SlotPool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Byte offset in the pinned buffer.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.idx) * self.pool.slot_bytes
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
            end.is_some_and(|end| end <= self.pool.slot_bytes),
            "block larger than its slot"
        );
        let start = self.offset() + offset;
        self.pool.memory.as_ptr().as_ptr().wrapping_add(start as usize)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(self.idx);
    }
}
