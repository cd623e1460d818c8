//! The mapping table: which buffers this session sees, and [`MappingTable::resolve`], which finds or makes them visible.
//!
//! An entry is keyed by (fd, generation, flags) and checked against the size asked for, so a recycled fd never hits the
//! mapping of the buffer that had the number before. The host models the rule in `hexloom::plan::window::Table`:
//!
//! 1. While bytes or entries are too few for all that the batch lacks, mappings that it does not need are evicted: what the
//!    host's plan uses last first, then what was used longest ago.
//! 2. What is missing is mapped largest first. When a map fails, the platform waits for space of earlier unmaps, and it is
//!    tried again.
//! 3. When it still fails, the cheapest [`stretch`] of neighbouring mappings is dropped and made again with what is missing.
//! 4. When that fails, the window is smaller than its number or holds what the table does not know of: evictions go on, then
//!    all mappings in the window are dropped and those of the batch made again. If that fails too, the batch fails with a
//!    status.
//!
//! The session's own buffer is in none of this: it has no entry.

use core::cmp::Reverse;

use heapless::Vec;
use hexloom_abi::descriptor::BUFFER_EXTENDED;
use hexloom_abi::limits::{MAX_BUFFERS, MAX_MAPPINGS};
use hexloom_abi::{BufferDesc, Status};

use crate::log;
use crate::platform::{Base, Mapped, Platform};

mod stretch;

use stretch::Span;

/// Where a batch's buffers begin, by buffer index.
pub type Bases = [Base; MAX_BUFFERS as usize];

/// Longest wait for space of earlier unmaps.
const SETTLE_US: u32 = 100_000;
/// Such waits for each way of making room.
const MAX_SETTLES: u32 = 16;

/// Where the session's own queue-and-fence buffer lies, as the packet that carried the request tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinnedBuffer {
    /// Its fd.
    pub fd: u32,
    /// Address of its first byte: the block's address less its offset.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
}

/// Live mappings of one session.
#[derive(Debug)]
pub struct MappingTable {
    entries: Vec<Entry, MAX_MAPPINGS>,
    window_bytes: u64,
    batch: u64,
    n_maps: u32,
    /// Whether something was unmapped since the platform was last asked whether its space has come back.
    unsettled: bool,
    /// Waits for space that this batch may still have.
    settles_left: u32,
    /// The lowest place that a mapping ever had: where the window begins, as far as is known.
    origin: u64,
}

/// A buffer of a batch that could not be resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolveError {
    /// What failed.
    pub status: Status,
    /// Index of the buffer descriptor.
    pub buffer_idx: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    desc: BufferDesc,
    mapped: Mapped,
    /// The last batch that used it; equal to the current one means pinned.
    last_batch: u64,
}

/// A mapping to be made.
#[derive(Clone, Copy)]
struct Due {
    desc: BufferDesc,
    last_batch: u64,
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
    /// An empty table that lets at most `window_bytes` be mapped in the 32-bit window.
    pub fn new(window_bytes: u64) -> Self {
        Self {
            entries: Vec::new(),
            window_bytes,
            batch: 0,
            n_maps: 0,
            unsettled: false,
            settles_left: 0,
            origin: u64::MAX,
        }
    }

    /// Mappings made since the table was created, those made again included.
    pub fn n_maps(&self) -> u32 {
        self.n_maps
    }

    /// Live mappings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Resolves all buffers of a batch, to places that stay valid until the next call.
    pub fn resolve<P: Platform>(
        &mut self,
        platform: &P,
        buffers: &[BufferDesc],
        pinned: PinnedBuffer,
    ) -> Result<Bases, ResolveError> {
        self.batch += 1;
        self.settles_left = MAX_SETTLES;
        // What is mapped already is pinned before anything is evicted for the rest, of which there mostly is none.
        let mut bases = [Base::Window(pinned.address); MAX_BUFFERS as usize];
        let mut is_whole = true;
        for (base, desc) in bases.iter_mut().zip(buffers) {
            if desc.fd == pinned.fd {
                is_whole &= fits(desc, pinned);
            } else if let Some(entry) = self.entries.iter_mut().find(|entry| entry.serves(desc)) {
                entry.last_batch = self.batch;
                entry.desc.next_use = desc.next_use;
                *base = entry.mapped.base;
            } else {
                is_whole = false;
            }
        }
        if is_whole {
            return Ok(bases);
        }
        let missing = self.missing(platform, buffers, pinned)?;
        self.make_room(platform, buffers, &missing)?;
        self.map_missing(platform, buffers, pinned, &missing)?;
        // What was mapped before may have moved, so places are read off at the end.
        for ((buffer_idx, desc), base) in (0u32..).zip(buffers).zip(&mut bases) {
            // One fd cannot be two buffers at a time.
            let status = Status::Invalid;
            *base = self.base_of(desc, pinned).ok_or(ResolveError { status, buffer_idx })?;
        }
        Ok(bases)
    }

    /// Where a buffer begins if it is the session's own or mapped now.
    pub fn base_of(&self, desc: &BufferDesc, pinned: PinnedBuffer) -> Option<Base> {
        if desc.fd == pinned.fd {
            return fits(desc, pinned).then_some(Base::Window(pinned.address));
        }
        let entry = self.entries.iter().find(|entry| entry.serves(desc))?;
        Some(entry.mapped.base)
    }

    /// Takes every mapping back.
    pub fn clear<P: Platform>(&mut self, platform: &P) {
        while let Some(entry) = self.entries.pop() {
            platform.unmap(entry.desc.fd, entry.mapped);
        }
    }

    /// Takes the mappings of one fd back; the host calls this before it closes the descriptor.
    pub fn forget<P: Platform>(&mut self, platform: &P, fd: u32) {
        while let Some(idx) = self.entries.iter().position(|entry| entry.desc.fd == fd) {
            self.remove(platform, idx);
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
            let room = match self.window_used() + extra > self.window_bytes {
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

    fn map_missing<P: Platform>(
        &mut self,
        platform: &P,
        buffers: &[BufferDesc],
        pinned: PinnedBuffer,
        missing: &Missing,
    ) -> Result<(), ResolveError> {
        let failed = missing
            .iter()
            .find_map(|due| Some((due, self.map_waiting(platform, due).err()?)));
        match failed {
            None => Ok(()),
            Some((due, status)) if is_extended(&due.desc) => Err(due.error(status, buffers)),
            Some(_) => self.move_until_mapped(platform, buffers, pinned),
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
        // There is room for all: the table is one smaller, and has room for what is missing.
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
        self.settles_left = MAX_SETTLES;
        while self.settle(platform) {}
        self.settles_left = MAX_SETTLES;
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

    fn map<P: Platform>(&mut self, platform: &P, due: &Due) -> Result<(), Status> {
        let mapped = platform.map(&due.desc)?;
        self.n_maps = self.n_maps.wrapping_add(1);
        let entry = Entry {
            desc: due.desc,
            mapped,
            last_batch: due.last_batch,
        };
        self.origin = entry
            .place(platform)
            .map_or(self.origin, |place| place.min(self.origin));
        self.entries.push(entry).map_err(|entry| {
            platform.unmap(entry.desc.fd, entry.mapped);
            Status::TooMany
        })
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

    fn remove<P: Platform>(&mut self, platform: &P, idx: usize) -> Entry {
        // Of equals, what was mapped first goes first: the order is kept.
        let entry = self.entries.remove(idx);
        platform.unmap(entry.desc.fd, entry.mapped);
        self.unsettled = true;
        entry
    }

    fn window_used(&self) -> u64 {
        self.entries.iter().map(|entry| window_bytes(&entry.desc)).sum()
    }
}

impl Entry {
    /// Whether it is the mapping of `desc`, at its size.
    fn serves(&self, desc: &BufferDesc) -> bool {
        self.desc.fd == desc.fd
            && self.desc.generation == desc.generation
            && self.desc.flags == desc.flags
            && self.mapped.bytes >= desc.bytes
    }

    /// Where it lies in the window, if it does.
    fn place<P: Platform>(&self, platform: &P) -> Option<u64> {
        Some(platform.window_place(self.mapped.address()?))
    }

    /// The batch that uses it next by the host's plan; 0 when that is unknown or has passed.
    fn next_batch(&self, now: u64) -> u64 {
        match self.last_batch.saturating_add(u64::from(self.desc.next_use)) {
            next if self.desc.next_use != 0 && next >= now => next,
            _ => 0,
        }
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
    all.sort_unstable_by_key(|due| (!is_extended(&due.desc), Reverse(due.desc.bytes), due.desc.fd));
}

/// Whether a descriptor of the session's own buffer is one of it.
fn fits(desc: &BufferDesc, pinned: PinnedBuffer) -> bool {
    desc.bytes <= pinned.bytes && !is_extended(desc)
}

fn is_extended(desc: &BufferDesc) -> bool {
    desc.flags & BUFFER_EXTENDED != 0
}

/// What a buffer takes of the window.
fn window_bytes(desc: &BufferDesc) -> u64 {
    if is_extended(desc) { 0 } else { desc.bytes }
}

#[cfg(test)]
mod tests;
