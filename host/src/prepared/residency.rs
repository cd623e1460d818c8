//! Batches for a graph whose buffers do not all fit the window: cut fine, and told what is needed when.
//!
//! A decode step uses the same batches in the same order each time, so the future of every buffer is known. Each batch
//! tells how many batches later a buffer is used again, and the DSP, when it needs room, takes back what is needed last.
//! Evicting by age would map everything again for every token. Short batches leave the most to stay: a batch needs all its
//! buffers at once.

use std::collections::HashSet;

use hexloom_abi::limits::MAX_BUFFERS;

use crate::batch::{BatchLimits, Encoded, OpRecord};

/// How many buffers a batch may add to those of its first op: no limit where everything fits, otherwise the fewest with
/// which `records` make at most `n_batches`.
pub(super) fn fresh_max(records: &[OpRecord], limits: &BatchLimits, n_batches: usize) -> usize {
    let mut seen = HashSet::new();
    let operands = records.iter().flat_map(OpRecord::operands);
    let distinct = operands.filter(|tensor| seen.insert(tensor.buffer.fd()));
    let bytes: u64 = distinct.map(|tensor| limits.bytes_of(&tensor.buffer)).sum();
    let unlimited = MAX_BUFFERS as usize;
    if bytes <= limits.mapped_bytes {
        return unlimited;
    }
    let fine = (0..unlimited).find(|&fresh| count(records, fresh) <= n_batches);
    fine.unwrap_or(unlimited)
}

/// Batches that `records` make when each may add `fresh` buffers.
fn count(records: &[OpRecord], fresh: usize) -> usize {
    let mut n_batches = 0;
    let mut cut = FreshCut::default();
    for record in records {
        if n_batches == 0 || cut.is_before(record, fresh) {
            n_batches += 1;
            cut = FreshCut::default();
        }
        cut.add(record);
    }
    n_batches
}

/// The buffers of a batch in the making.
#[derive(Default)]
pub(super) struct FreshCut {
    used: HashSet<u32>,
    added: usize,
    begun: bool,
}

impl FreshCut {
    /// Whether a batch must end before `record`, to which it would add more than `fresh` buffers.
    pub(super) fn is_before(&self, record: &OpRecord, fresh: usize) -> bool {
        let added: HashSet<u32> = record.operands().map(|tensor| tensor.buffer.fd()).collect();
        self.begun && self.added + added.difference(&self.used).count() > fresh
    }

    pub(super) fn add(&mut self, record: &OpRecord) {
        for tensor in record.operands() {
            let fresh = self.used.insert(tensor.buffer.fd());
            self.added += usize::from(fresh && self.begun);
        }
        self.begun = true;
    }
}

/// Tells every batch how many batches later each of its weight buffers is used again, run after run.
///
/// Caches and computed tensors are left unknown, which the DSP evicts last: they are small, every token writes to them,
/// and the weights are packed for the window that they leave.
pub(super) fn tell_next_uses(batches: &mut [Encoded]) {
    let n = batches.len();
    let fds: Vec<Vec<u32>> = batches
        .iter()
        .map(|batch| batch.buffers.iter().map(crate::Buffer::fd).collect())
        .collect();
    for (idx, batch) in batches.iter_mut().enumerate() {
        let next_use = |fd: &u32| (1..=n).find(|later| fds[(idx + later) % n].contains(fd)).unwrap_or(n) as u32;
        let told = (0u16..)
            .zip(&fds[idx])
            .map(|(buffer_idx, fd)| match batch.has_weights(buffer_idx) {
                true => next_use(fd),
                false => 0,
            });
        batch.next_uses = told.collect();
    }
}
