//! The mapping table: which buffers this session sees, and [`MappingTable::resolve`], which finds or makes them visible.
//!
//! An entry is keyed by (fd, generation, flags) and checked against the size asked for, so a recycled fd never hits the
//! mapping of the buffer that had the number before. When the window is full, mappings that this batch does not need are
//! evicted: what the host's plan uses last first, then what was used longest ago. A map that still fails is tried again
//! after the platform has waited for space of earlier unmaps, then after every other eviction, then after all mappings in
//! the window were dropped, to be made again largest first, which closes holes. If that fails too, the batch fails with a
//! status. The session's own buffer is in none of this: it has no entry.

use core::cmp::Reverse;

use heapless::Vec;
use hexloom_abi::descriptor::BUFFER_EXTENDED;
use hexloom_abi::limits::{MAX_BUFFERS, MAX_MAPPINGS};
use hexloom_abi::{BufferDesc, Status};

use crate::log;
use crate::platform::{Base, Mapped, Platform};

/// Where a batch's buffers begin, by buffer index.
pub type Bases = [Base; MAX_BUFFERS as usize];

/// Longest wait for space of earlier unmaps.
const SETTLE_US: u32 = 100_000;
/// Such waits for one batch.
const MAX_SETTLES: u32 = 4;

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
        for (buffer_idx, desc) in (0u32..).zip(buffers) {
            self.reuse_buf(platform, desc, pinned)
                .map_err(|status| ResolveError { status, buffer_idx })?;
        }
        // A defragmentation may have moved what was resolved before it, so places are read off at the end.
        for (base, desc) in bases.iter_mut().zip(buffers) {
            // What has no entry is the session's own buffer.
            *base = self.base_of(desc, pinned).unwrap_or(Base::Window(pinned.address));
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

    /// Makes one buffer visible: the session's own buffer needs no table entry and is never evicted; then a live
    /// mapping; then a new one.
    fn reuse_buf<P: Platform>(&mut self, platform: &P, desc: &BufferDesc, pinned: PinnedBuffer) -> Result<(), Status> {
        if desc.fd == pinned.fd {
            return match fits(desc, pinned) {
                true => Ok(()),
                false => Err(Status::Invalid),
            };
        }
        if let Some(idx) = self.entries.iter().position(|entry| entry.desc.fd == desc.fd) {
            if self.entries[idx].serves(desc) {
                return Ok(());
            }
            self.remove(platform, idx);
        }
        if is_extended(desc) && !platform.has_extended() {
            return Err(Status::NoExtended);
        }
        if desc.bytes > platform.map_bytes_max() {
            return Err(Status::MapFailed);
        }
        self.make_room(platform, desc)?;
        self.map_hard(platform, desc)
    }

    /// Evicts until table and window have room for `desc`, going by their numbers.
    fn make_room<P: Platform>(&mut self, platform: &P, desc: &BufferDesc) -> Result<(), Status> {
        let needed = window_bytes(desc);
        if needed > self.window_bytes {
            return Err(Status::WindowFull);
        }
        while self.window_used() > self.window_bytes - needed {
            if !self.evict(platform, Room::Window) {
                return Err(Status::WindowFull);
            }
        }
        match self.entries.is_full() && !self.evict(platform, Room::Entry) {
            true => Err(Status::TooMany),
            false => Ok(()),
        }
    }

    /// Maps with all means.
    fn map_hard<P: Platform>(&mut self, platform: &P, desc: &BufferDesc) -> Result<(), Status> {
        loop {
            let Err(status) = self.map(platform, desc) else {
                return Ok(());
            };
            if self.settle(platform) {
                continue;
            }
            if is_extended(desc) {
                return Err(status);
            }
            if !self.evict(platform, Room::Window) {
                break;
            }
        }
        self.defragment(platform, desc)
    }

    fn map<P: Platform>(&mut self, platform: &P, desc: &BufferDesc) -> Result<(), Status> {
        let mapped = platform.map(desc)?;
        self.n_maps = self.n_maps.wrapping_add(1);
        let entry = Entry {
            desc: *desc,
            mapped,
            last_batch: self.batch,
        };
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

    /// Drops all mappings in the window and makes those of this batch again with `new` among them, largest first.
    fn defragment<P: Platform>(&mut self, platform: &P, new: &BufferDesc) -> Result<(), Status> {
        let mut again: Vec<BufferDesc, MAX_MAPPINGS> = Vec::new();
        while let Some(idx) = self.entries.iter().position(|entry| !is_extended(&entry.desc)) {
            let entry = self.remove(platform, idx);
            if entry.last_batch == self.batch {
                // The table holds no more than `MAX_MAPPINGS`, of which `make_room` has left one free.
                let _ = again.push(entry.desc);
            }
        }
        let _ = again.push(*new);
        log::window_defragmented(again.len() as u32, again.iter().map(|desc| desc.bytes).sum());
        again.sort_unstable_by_key(|desc| Reverse(desc.bytes));
        self.settles_left = MAX_SETTLES;
        for desc in &again {
            while let Err(status) = self.map(platform, desc) {
                if !self.settle(platform) {
                    return Err(status);
                }
            }
        }
        Ok(())
    }

    /// Unmaps what this batch does not need and others need last; false when there is none.
    fn evict<P: Platform>(&mut self, platform: &P, room: Room) -> bool {
        let entries = self.entries.iter().enumerate();
        let last = entries
            .filter(|(_, entry)| entry.last_batch != self.batch)
            .filter(|(_, entry)| room == Room::Entry || !is_extended(&entry.desc))
            .max_by_key(|(_, entry)| (entry.next_batch(self.batch), Reverse(entry.last_batch)))
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
        let entry = self.entries.swap_remove(idx);
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

    /// The batch that uses it next by the host's plan; 0 when that is unknown or has passed.
    fn next_batch(&self, now: u64) -> u64 {
        match self.last_batch.saturating_add(u64::from(self.desc.next_use)) {
            next if self.desc.next_use != 0 && next >= now => next,
            _ => 0,
        }
    }
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
