//! The host's picture of a session's window, and buffers that suit it.
//!
//! The host knows every map and unmap that it causes, so it can follow first-fit placement. New tensors are packed under
//! several caps; the packing whose buffers would find room without moving anything is taken, with the fewest buffers
//! where several do. The picture may be wrong, for a driver can place differently: then a batch moves mappings that it
//! need not have moved, and nothing else happens.

use hexloom_abi::limits::{LINE_BYTES, MAX_BUFFERS, MAX_MAPPINGS};

use super::{Making, Need, Table, Window, stretch};
use crate::plan::buffers::{BufferLimits, BufferPlan, BufferPlanError, PlannedBuffer, TensorNeed};

/// Caps tried, in thirty-seconds of the limits' cap.
const CAPS: [u64; 10] = [32, 24, 20, 16, 12, 10, 8, 6, 4, 2];
/// Entries of the mapping table that other sessions' buffers and fences may need.
const SPARE_ENTRIES: usize = 4;

/// What is mapped in a session, and what is about to be.
#[derive(Clone, Debug)]
pub struct Outlook {
    table: Table,
    pending: Vec<Need>,
}

impl Outlook {
    /// An empty window of `bytes`, net of the pinned buffer.
    pub fn new(bytes: u64) -> Self {
        Self {
            table: Table::new(Window::new(bytes), Making::Stretch),
            pending: Vec::new(),
        }
    }

    /// Packs `tensors` for the window as it is.
    ///
    /// # Errors
    /// As [`BufferPlan::new`].
    pub fn plan(&self, tensors: &[TensorNeed<'_>], limits: &BufferLimits) -> Result<BufferPlan, BufferPlanError> {
        let best = BufferPlan::new(tensors, limits)?;
        let mut best = (self.moves(&best), best);
        for parts in CAPS {
            let cap = (limits.cap_bytes / CAPS[0]).saturating_mul(parts);
            if best.0 == (0, 0) || limits.extended || cap < LINE_BYTES {
                break;
            }
            let plan = BufferPlan::new(tensors, &limits.with_cap(cap))?;
            let entries = self.table.len() + self.pending.len() + plan.buffers.len();
            let moves = self.moves(&plan);
            if moves < best.0 && entries + SPARE_ENTRIES <= MAX_MAPPINGS {
                best = (moves, plan);
            }
        }
        Ok(best.1)
    }

    /// Buffers have been made; the next flush maps them.
    pub fn add(&mut self, needs: &[Need]) {
        self.pending.extend(needs);
    }

    /// What to map before the next batch, so that large buffers find the large holes: largest first, as many together as
    /// a batch holds. They count as mapped from here on.
    pub fn take_pending(&mut self) -> Vec<Vec<Need>> {
        let mut pending = std::mem::take(&mut self.pending);
        stretch::sort_largest_first(&mut pending);
        let batches: Vec<Vec<Need>> = pending.chunks(MAX_BUFFERS as usize).map(<[Need]>::to_vec).collect();
        batches.iter().for_each(|batch| self.batch(batch));
        batches
    }

    /// A batch with these buffers has been sent.
    pub fn batch(&mut self, needs: &[Need]) {
        self.table.resolve(needs);
    }

    /// Buffers have been freed.
    pub fn free(&mut self, ids: &[u32]) {
        self.table.forget(ids);
        self.pending.retain(|need| !ids.contains(&need.id));
    }

    /// What is mapped, as far as the host can tell.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Moves and bytes moved if the buffers were mapped now, together with those that are pending.
    fn moves(&self, plan: &BufferPlan) -> (u64, u64) {
        let mut next = self.clone();
        let before = next.table.costs();
        let mapped = plan.buffers.iter().map(PlannedBuffer::mapped_bytes);
        // Numbers from the top are nobody's: real ones count from below.
        let needs = (0..u32::MAX).rev().zip(mapped).map(|(id, bytes)| Need { id, bytes });
        next.pending.extend(needs);
        next.take_pending();
        let costs = next.table.costs();
        (
            costs.defragmentations + costs.evictions - before.defragmentations - before.evictions,
            costs.remapped_bytes - before.remapped_bytes,
        )
    }
}
