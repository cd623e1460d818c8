//! How room is made in the window. The host models this rule in `hexloom::plan::window::Table`, and a test holds both together:
//!
//! 1. While bytes or entries are too few for all that the batch lacks, mappings that it does not need are evicted: what the
//!    host's plan uses last first, then what was used longest ago.
//! 2. What is missing is mapped largest first. When a map fails, the platform waits for space of earlier unmaps, and it is
//!    tried again.
//! 3. When it still fails, the cheapest [`stretch`] of neighbouring mappings is dropped and made again with what is missing.
//! 4. When that fails, the window is smaller than its number or holds what the table does not know of: evictions go on, then
//!    all mappings in the window are dropped and those of the batch made again. If that fails too, the batch fails with a
//!    status.

use core::cmp::Reverse;

use heapless::Vec;
use hexloom_abi::limits::{MAX_BUFFERS, MAX_MAPPINGS};
use hexloom_abi::{BufferDesc, Status};

use super::stretch::{self, Span};
use super::{Entry, MappingTable, PinnedBuffer, ResolveError, is_extended, window_bytes};
use crate::log;
use crate::platform::Platform;

/// Longest wait for space of earlier unmaps.
const SETTLE_US: u32 = 100_000;
/// Such waits for one batch: in each the space of one mapping may come back.
const MAX_SETTLES: u32 = MAX_MAPPINGS as u32;

/// A mapping to be made.
#[derive(Clone, Copy)]
pub(super) struct Due {
    pub(super) desc: BufferDesc,
    pub(super) last_batch: u64,
}

/// What a batch lacks.
type Missing = Vec<Due, { MAX_BUFFERS as usize }>;

/// What an eviction is to make room for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// An entry of the table.
    Entry,
    /// Bytes of the window.
    Window,
}

impl MappingTable {
    /// Makes all buffers of a batch visible of which some are not.
    pub(super) fn map_missing<P: Platform>(
        &mut self,
        platform: &P,
        buffers: &[BufferDesc],
        pinned: PinnedBuffer,
    ) -> Result<(), ResolveError> {
        let missing = self.missing(platform, buffers, pinned)?;
        self.make_room(platform, buffers, &missing)?;
        self.settles_left = MAX_SETTLES;
        let failed = missing
            .iter()
            .find_map(|due| Some((due, self.map_waiting(platform, due).err()?)));
        match failed {
            None => Ok(()),
            Some((due, status)) if is_extended(&due.desc) => Err(due.error(status, buffers)),
            Some(_) => self.move_until_mapped(platform, buffers, pinned),
        }
    }

    /// Maps of a batch that fails what can be mapped one by one.
    pub(super) fn map_some<P: Platform>(&mut self, platform: &P, buffers: &[BufferDesc], pinned: PinnedBuffer) {
        for desc in buffers {
            let one = core::slice::from_ref(desc);
            if let Ok(missing) = self.missing(platform, one, pinned)
                && self.make_room(platform, one, &missing).is_ok()
            {
                for due in &missing {
                    let _ = self.map(platform, due);
                }
            }
        }
    }

    /// What has no mapping, largest first after what takes no window, once it is known that it may have one. Mappings of
    /// buffers whose fd now is another's are taken back.
    fn missing<P: Platform>(
        &mut self,
        platform: &P,
        buffers: &[BufferDesc],
        pinned: PinnedBuffer,
    ) -> Result<Missing, ResolveError> {
        let mut missing = Missing::new();
        for (buffer_idx, desc) in (0u32..).zip(buffers) {
            let error = |status| Err(ResolveError { status, buffer_idx });
            if self.base_of(desc, pinned).is_some() {
                continue;
            }
            if desc.fd == pinned.fd {
                return error(Status::Invalid);
            }
            if is_extended(desc) && !platform.has_extended() {
                return error(Status::NoExtended);
            }
            if desc.bytes > platform.map_bytes_max() {
                return error(Status::MapFailed);
            }
            self.forget(platform, desc.fd);
            let due = Due {
                desc: *desc,
                last_batch: self.batch,
            };
            if let Some(same) = missing.iter_mut().find(|due| due.desc.fd == desc.fd) {
                if desc.bytes > same.desc.bytes {
                    *same = due;
                }
            } else if missing.push(due).is_err() {
                return error(Status::TooMany);
            }
        }
        sort_largest_first(&mut missing);
        Ok(missing)
    }

    /// Evicts until table and window have room for all that is missing, going by their numbers.
    fn make_room<P: Platform>(
        &mut self,
        platform: &P,
        buffers: &[BufferDesc],
        missing: &Missing,
    ) -> Result<(), ResolveError> {
        let of_batch = self.entries.iter().filter(|entry| entry.last_batch == self.batch);
        let mut needed: u64 = of_batch.map(|entry| window_bytes(&entry.desc)).sum();
        for (buffer_idx, desc) in (0u32..).zip(buffers) {
            let is_first = !buffers.iter().take(buffer_idx as usize).any(|other| other == desc);
            if is_first && missing.iter().any(|due| due.desc == *desc) {
                needed = needed.saturating_add(window_bytes(desc));
            }
            if needed > self.window_bytes {
                let status = Status::WindowFull;
                return Err(ResolveError { status, buffer_idx });
            }
        }
        let extra: u64 = missing.iter().map(|due| window_bytes(&due.desc)).sum();
        loop {
            let room = match self.window_used() > self.window_bytes - extra {
                true => Room::Window,
                false if self.entries.len() + missing.len() > MAX_MAPPINGS => Room::Entry,
                false => return Ok(()),
            };
            // What the batch needs fits by itself, so there is something else to evict.
            if !self.evict(platform, room) {
                let (status, buffer_idx) = (Status::TooMany, 0);
                return Err(ResolveError { status, buffer_idx });
            }
        }
    }

    /// Moves mappings. Where that is not enough the window is smaller than its number, so evictions go on.
    fn move_until_mapped<P: Platform>(
        &mut self,
        platform: &P,
        buffers: &[BufferDesc],
        pinned: PinnedBuffer,
    ) -> Result<(), ResolveError> {
        loop {
            let missing = self.missing(platform, buffers, pinned)?;
            if missing.is_empty() || self.move_stretch(platform, pinned, &missing) {
                return Ok(());
            }
            if !self.evict(platform, Room::Window) {
                return self.defragment(platform, buffers, pinned);
            }
        }
    }

    /// Drops the cheapest stretch and makes it again with `missing`; false when some of it could not be made.
    fn move_stretch<P: Platform>(&mut self, platform: &P, pinned: PinnedBuffer, missing: &[Due]) -> bool {
        let mut spans: Vec<Span, { stretch::MAX_SPANS }> = Vec::new();
        // None of these pushes fails: a span for each entry, each missing buffer and the session's own.
        let own = platform.window_place(pinned.address);
        let _ = spans.push(Span::fixed(own, pinned.bytes));
        for entry in &self.entries {
            if let Some(place) = entry.place(platform) {
                let _ = spans.push(Span::new(place, entry.mapped.bytes));
            }
        }
        let start = self.origin.min(own);
        let window = start..start.saturating_add(self.window_bytes);
        let sizes = missing.iter().map(|due| due.desc.bytes);
        let Some(moved) = stretch::cheapest(&mut spans, sizes, window) else {
            return false;
        };
        let mut again: Vec<Due, { stretch::MAX_SPANS }> = Vec::new();
        let inside = |entry: &Entry| entry.place(platform).is_some_and(|place| moved.contains(&place));
        while let Some(idx) = self.entries.iter().position(inside) {
            let entry = self.remove(platform, idx);
            let _ = again.push(Due {
                desc: entry.desc,
                last_batch: entry.last_batch,
            });
        }
        let _ = again.extend_from_slice(missing);
        self.map_again(platform, &mut again).is_ok()
    }

    /// Drops all mappings in the window and makes those of this batch again.
    fn defragment<P: Platform>(
        &mut self,
        platform: &P,
        buffers: &[BufferDesc],
        pinned: PinnedBuffer,
    ) -> Result<(), ResolveError> {
        while let Some(idx) = self.entries.iter().position(|entry| !is_extended(&entry.desc)) {
            self.remove(platform, idx);
        }
        let mut again = self.missing(platform, buffers, pinned)?;
        self.map_again(platform, &mut again)
            .map_err(|(due, status)| due.error(status, buffers))
    }

    /// Maps largest first, once space of what was dropped has come back: while it comes piece by piece, it would be cut up.
    fn map_again<P: Platform>(&mut self, platform: &P, again: &mut [Due]) -> Result<(), (Due, Status)> {
        log::window_defragmented(again.len() as u32, again.iter().map(|due| due.desc.bytes).sum());
        while self.settle(platform) {}
        sort_largest_first(again);
        again
            .iter()
            .try_for_each(|due| self.map_waiting(platform, due).map_err(|status| (*due, status)))
    }

    /// Maps, waiting for space as long as some comes back.
    fn map_waiting<P: Platform>(&mut self, platform: &P, due: &Due) -> Result<(), Status> {
        while let Err(status) = self.map(platform, due) {
            if !self.settle(platform) {
                return Err(status);
            }
        }
        Ok(())
    }

    /// Lets the platform wait for space if some may be on its way back; false when none came.
    fn settle<P: Platform>(&mut self, platform: &P) -> bool {
        if !self.unsettled || self.settles_left == 0 {
            return false;
        }
        self.settles_left -= 1;
        // While space comes, more may be under way.
        self.unsettled = platform.settle(SETTLE_US);
        self.unsettled
    }

    /// Unmaps what this batch does not need and others need last; false when there is none.
    fn evict<P: Platform>(&mut self, platform: &P, room: Room) -> bool {
        let entries = self.entries.iter().enumerate();
        let last = entries
            .filter(|(_, entry)| entry.last_batch != self.batch)
            .filter(|(_, entry)| room == Room::Entry || !is_extended(&entry.desc))
            .min_by_key(|(_, entry)| (Reverse(entry.next_batch(self.batch)), entry.last_batch))
            .map(|(idx, _)| idx);
        match last {
            Some(idx) => {
                let entry = self.remove(platform, idx);
                log::mapping_evicted(entry.desc.fd, entry.mapped.bytes);
                true
            }
            None => false,
        }
    }

    fn window_used(&self) -> u64 {
        self.entries.iter().map(|entry| window_bytes(&entry.desc)).sum()
    }
}

impl Due {
    /// That this one could not be mapped.
    fn error(&self, status: Status, buffers: &[BufferDesc]) -> ResolveError {
        let at = buffers.iter().position(|desc| *desc == self.desc);
        ResolveError {
            status,
            buffer_idx: at.unwrap_or(0) as u32,
        }
    }
}

fn sort_largest_first(all: &mut [Due]) {
    stretch::sort_by_key(all, |due| {
        (!is_extended(&due.desc), Reverse(due.desc.bytes), due.desc.fd)
    });
}
