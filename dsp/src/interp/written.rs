//! Byte ranges that a batch has written and not yet cleaned, so that only needed cache maintenance is done.
//!
//! The host sees a destination after it was cleaned; this side sees what the host wrote after it was invalidated. A
//! range that this batch wrote itself must never be invalidated before it is cleaned.

use heapless::Vec;
use hexloom_abi::TensorDesc;
use hexloom_abi::descriptor::{TENSOR_FENCE, TENSOR_WEIGHT};
use hexloom_abi::limits::LINE_BYTES;

use super::operands::address_of;
use crate::mapping::Bases;
use crate::platform::Platform;

/// Ranges kept apart; one more merges the two nearest.
const MAX_RANGES: usize = 64;

/// Whole cache lines written by this batch, sorted by start and disjoint.
#[derive(Debug, Default)]
pub(super) struct WrittenRanges {
    ranges: Vec<(u64, u64), MAX_RANGES>,
}

impl WrittenRanges {
    /// Makes what the host wrote into `tensor` visible. Weights and fences need nothing here.
    pub(super) fn before_use<P: Platform>(&mut self, platform: &P, tensor: &TensorDesc, bases: &Bases) {
        if tensor.flags & (TENSOR_WEIGHT | TENSOR_FENCE) != 0 {
            return;
        }
        let Some((start, end)) = lines(tensor, bases) else {
            return;
        };
        if self.ranges.iter().any(|&(from, to)| from <= start && end <= to) {
            return;
        }
        let mut idx = 0;
        while let Some(&(from, to)) = self.ranges.get(idx) {
            if from < end && start < to {
                platform.clean(from, to - from);
                self.ranges.remove(idx);
            } else {
                idx += 1;
            }
        }
        platform.invalidate(start, end - start);
    }

    /// Remembers that this batch wrote `tensor`.
    pub(super) fn after_write<P: Platform>(&mut self, platform: &P, tensor: &TensorDesc, bases: &Bases) {
        let Some((mut start, mut end)) = lines(tensor, bases) else {
            return;
        };
        let mut idx = 0;
        while let Some(&(from, to)) = self.ranges.get(idx) {
            if from <= end && start <= to {
                (start, end) = (start.min(from), end.max(to));
                self.ranges.remove(idx);
            } else {
                idx += 1;
            }
        }
        if self.ranges.is_full() {
            self.clean_all(platform);
        }
        let at = self.ranges.partition_point(|&(from, _)| from < start);
        // There is room: a full list has just been emptied.
        let _ = self.ranges.insert(at.min(self.ranges.len()), (start, end));
    }

    /// Whether this batch wrote bytes of `tensor`, or bytes on a line with them, that are not cleaned yet.
    pub(super) fn touches(&self, tensor: &TensorDesc, bases: &Bases) -> bool {
        let touches = |(start, end)| self.ranges.iter().any(|&(from, to)| from < end && start < to);
        lines(tensor, bases).is_some_and(touches)
    }

    /// Cleans everything and forgets it.
    pub(super) fn clean_all<P: Platform>(&mut self, platform: &P) {
        for &(from, to) in &self.ranges {
            platform.clean(from, to - from);
        }
        self.ranges.clear();
    }
}

/// First and one past the last cache line of a tensor; `None` for an empty one and for one that no cache holds.
fn lines(tensor: &TensorDesc, bases: &Bases) -> Option<(u64, u64)> {
    let start = address_of(tensor, bases)?;
    let end = start.checked_add(tensor.bytes)?;
    let down = start / LINE_BYTES * LINE_BYTES;
    (tensor.bytes != 0).then_some((down, end.next_multiple_of(LINE_BYTES)))
}
