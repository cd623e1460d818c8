//! The mapping table: which buffers this session sees, and [`MappingTable::resolve`], which finds or makes them visible.
//!
//! An entry is keyed by (fd, generation, flags) and checked against the size asked for, so a recycled fd never hits the
//! mapping of the buffer that had the number before. `room` makes room for what is not mapped.
//! The session's own buffer is in none of this: it has no entry.

use heapless::Vec;
use hexloom_abi::descriptor::BUFFER_EXTENDED;
use hexloom_abi::limits::{MAX_BUFFERS, MAX_MAPPINGS};
use hexloom_abi::{BufferDesc, Status};

use crate::platform::{Base, Mapped, Platform};

mod room;
mod stretch;

use room::Due;

/// Where a batch's buffers begin, by buffer index.
pub type Bases = [Base; MAX_BUFFERS as usize];

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
        if let Err(error) = self.map_missing(platform, buffers, pinned) {
            // Other members of a group learn that the batch has failed from a buffer of it, which must be mapped for that.
            self.map_some(platform, buffers, pinned);
            return Err(error);
        }
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

    fn remove<P: Platform>(&mut self, platform: &P, idx: usize) -> Entry {
        // Of equals, what was mapped first goes first: the order is kept.
        let entry = self.entries.remove(idx);
        platform.unmap(entry.desc.fd, entry.mapped);
        self.unsettled = true;
        entry
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
