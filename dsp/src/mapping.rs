//! The mapping table: which buffers this session sees, and [`MappingTable::resolve`], which finds or makes them visible.
//!
//! An entry is keyed by (fd, generation, flags) and checked against the size asked for, so a recycled fd never hits the
//! mapping of the buffer that had the number before. When the window is full, least recently used mappings that this
//! batch does not need are evicted; if a map still fails, all 32-bit mappings are dropped and made again, largest first,
//! to close holes; if that fails too, the batch fails with a status.

use heapless::Vec;
use hexloom_abi::descriptor::BUFFER_EXTENDED;
use hexloom_abi::limits::{MAX_BUFFERS, MAX_MAPPINGS};
use hexloom_abi::{BufferDesc, Status};

use crate::log;
use crate::platform::{Mapped, Platform};

/// Addresses of a batch's buffers, by buffer index.
pub type Addresses = [u64; MAX_BUFFERS as usize];

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
        }
    }

    /// Mappings made since the table was created.
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

    /// Resolves all buffers of a batch to addresses, which stay valid until the next call.
    pub fn resolve<P: Platform>(
        &mut self,
        platform: &P,
        buffers: &[BufferDesc],
        pinned: PinnedBuffer,
    ) -> Result<Addresses, ResolveError> {
        self.batch += 1;
        for (buffer_idx, desc) in (0u32..).zip(buffers) {
            self.reuse_buf(platform, desc, pinned)
                .map_err(|status| ResolveError { status, buffer_idx })?;
        }
        // A defragmentation may have moved what was resolved before it, so addresses are read off at the end.
        let mut addresses = [0; MAX_BUFFERS as usize];
        for (address, desc) in addresses.iter_mut().zip(buffers) {
            *address = match self.entries.iter().find(|entry| entry.is(desc)) {
                Some(entry) => entry.mapped.address,
                None => pinned.address,
            };
        }
        Ok(addresses)
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
            return match desc.bytes <= pinned.bytes {
                true => Ok(()),
                false => Err(Status::Invalid),
            };
        }
        if let Some(idx) = self.entries.iter().position(|entry| entry.desc.fd == desc.fd) {
            let entry = &mut self.entries[idx];
            if entry.is(desc) && entry.mapped.bytes >= desc.bytes {
                entry.last_batch = self.batch;
                return Ok(());
            }
            self.remove(platform, idx);
        }
        let needed = if is_extended(desc) { 0 } else { desc.bytes };
        if needed > self.window_bytes {
            return Err(Status::WindowFull);
        }
        while self.entries.is_full() || self.window_used() + needed > self.window_bytes {
            if !self.evict_oldest(platform) {
                return Err(Status::WindowFull);
            }
        }
        loop {
            if self.map(platform, desc).is_ok() {
                return Ok(());
            }
            if !self.evict_oldest(platform) {
                break;
            }
        }
        self.defragment(platform)?;
        self.map(platform, desc)
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

    /// Drops all 32-bit mappings and makes those of this batch again, largest first.
    fn defragment<P: Platform>(&mut self, platform: &P) -> Result<(), Status> {
        let mut again: Vec<BufferDesc, MAX_MAPPINGS> = Vec::new();
        while let Some(idx) = self.entries.iter().position(|entry| !is_extended(&entry.desc)) {
            let entry = self.remove(platform, idx);
            if entry.last_batch == self.batch {
                // The table holds no more than `MAX_MAPPINGS`, so there is room.
                let _ = again.push(entry.desc);
            }
        }
        log::window_defragmented(again.len() as u32, again.iter().map(|desc| desc.bytes).sum());
        again.sort_unstable_by_key(|desc| core::cmp::Reverse(desc.bytes));
        again.iter().try_for_each(|desc| self.map(platform, desc))
    }

    /// Unmaps the least recently used mapping in the window that this batch does not need; false when there is none.
    fn evict_oldest<P: Platform>(&mut self, platform: &P) -> bool {
        let oldest = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.last_batch != self.batch)
            .min_by_key(|(_, entry)| entry.last_batch)
            .map(|(idx, _)| idx);
        match oldest {
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
        entry
    }

    fn window_used(&self) -> u64 {
        let mapped = self.entries.iter().filter(|entry| !is_extended(&entry.desc));
        mapped.map(|entry| entry.mapped.bytes).sum()
    }
}

impl Entry {
    fn is(&self, desc: &BufferDesc) -> bool {
        self.desc.fd == desc.fd && self.desc.generation == desc.generation && self.desc.flags == desc.flags
    }
}

fn is_extended(desc: &BufferDesc) -> bool {
    desc.flags & BUFFER_EXTENDED != 0
}

#[cfg(test)]
mod tests;
