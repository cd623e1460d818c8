//! A model of the DSP's mapping table over a [`Window`]: what is mapped, and how room is made for more.

use std::collections::HashSet;

use hexloom_abi::limits::MAX_MAPPINGS;

use super::{Window, stretch};

/// How room is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Making {
    /// The reference's: past the budget everything that the batch does not need goes; a failed map drops everything and
    /// maps the batch again.
    DropAll,
    /// The same with each batch mapped in the order in which it lists its buffers, not largest first.
    DropAllUnsorted,
    /// hexloom's: the least recently used go until bytes and entries suffice; when only holes are too small, what lies in
    /// the cheapest stretch of addresses is moved.
    Stretch,
}

/// A buffer by number, with the bytes it takes in the window.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Need {
    /// Its number, never used again for another buffer.
    pub id: u32,
    /// Bytes of the mapping.
    pub bytes: u64,
}

/// What mapping has cost so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    /// Maps made.
    pub maps: u64,
    /// Of these, maps of buffers that had been mapped before.
    pub remaps: u64,
    /// Their bytes.
    pub remapped_bytes: u64,
    /// Times that live mappings were moved because no hole was large enough.
    pub defragmentations: u64,
    /// Mappings dropped because bytes or entries ran out.
    pub evictions: u64,
    /// Waits for space that came back late.
    pub waits: u64,
    /// Batches whose buffers could not be mapped together.
    pub failures: u64,
}

impl std::ops::AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        self.maps += other.maps;
        self.remaps += other.remaps;
        self.remapped_bytes += other.remapped_bytes;
        self.defragmentations += other.defragmentations;
        self.evictions += other.evictions;
        self.waits += other.waits;
        self.failures += other.failures;
    }
}

/// Live mappings of one session.
#[derive(Clone, Debug)]
pub struct Table {
    window: Window,
    making: Making,
    entries: Vec<Entry>,
    known: HashSet<u32>,
    batch: u64,
    costs: Costs,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    need: Need,
    start: u64,
    last_batch: u64,
}

/// No way of making room was enough.
struct NoRoom;

impl Table {
    /// An empty table.
    pub fn new(window: Window, making: Making) -> Self {
        Self {
            window,
            making,
            entries: Vec::new(),
            known: HashSet::new(),
            batch: 0,
            costs: Costs::default(),
        }
    }

    /// The window.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// What mapping has cost so far.
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// Mappings as (buffer, start, bytes), by start.
    pub fn mappings(&self) -> Vec<(u32, u64, u64)> {
        let mut all: Vec<_> = self
            .entries
            .iter()
            .map(|entry| (entry.need.id, entry.start, entry.need.bytes))
            .collect();
        all.sort_by_key(|&(_, start, _)| start);
        all
    }

    /// Makes all buffers of a batch visible together; false, with nothing mapped, when that cannot be done.
    pub fn resolve(&mut self, batch: &[Need]) -> bool {
        self.batch += 1;
        let mut missing: Vec<Need> = Vec::new();
        for &need in batch {
            match self.entries.iter_mut().find(|entry| entry.need.id == need.id) {
                Some(entry) => entry.last_batch = self.batch,
                None if missing.contains(&need) => (),
                None => missing.push(need),
            }
        }
        if missing.is_empty() {
            return true;
        }
        self.sort(&mut missing);
        let made = match self.making {
            Making::DropAll | Making::DropAllUnsorted => self.map_or_drop_all(&missing),
            Making::Stretch => self.map_or_move(&missing),
        };
        if made.is_err() {
            self.costs.failures += 1;
            self.drop_if(|_| true);
            self.window.wait();
        }
        made.is_ok()
    }

    /// Live mappings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes mappings back: the host frees the buffers, or hints that the next batches do not need them.
    pub fn forget(&mut self, ids: &[u32]) {
        self.drop_if(|entry| ids.contains(&entry.need.id));
    }

    fn map_or_drop_all(&mut self, missing: &[Need]) -> Result<(), NoRoom> {
        let batch = self.batch;
        let extra: u64 = missing.iter().map(|need| need.bytes).sum();
        if self.used() + extra > self.window.bytes() || self.entries.len() + missing.len() > MAX_MAPPINGS {
            self.costs.evictions += self.drop_if(|entry| entry.last_batch != batch).len() as u64;
        }
        let failed = missing.iter().filter(|&&need| self.map(need).is_none()).count();
        if failed == 0 {
            return Ok(());
        }
        self.costs.defragmentations += 1;
        let dropped = self.drop_if(|_| true);
        let mut again: Vec<Need> = dropped
            .iter()
            .filter(|entry| entry.last_batch == batch)
            .map(|entry| entry.need)
            .collect();
        again.extend(
            missing
                .iter()
                .filter(|need| !dropped.iter().any(|entry| entry.need == **need)),
        );
        self.sort(&mut again);
        self.map_all(&again)
    }

    fn sort(&self, needs: &mut [Need]) {
        if self.making != Making::DropAllUnsorted {
            stretch::sort_largest_first(needs);
        }
    }

    fn map_or_move(&mut self, missing: &[Need]) -> Result<(), NoRoom> {
        let extra: u64 = missing.iter().map(|need| need.bytes).sum();
        while self.used() + extra > self.window.bytes() || self.entries.len() + missing.len() > MAX_MAPPINGS {
            self.evict_oldest()?;
        }
        for (idx, &need) in missing.iter().enumerate() {
            if self.map_waiting(need).is_none() {
                return self.move_for(&missing[idx..]);
            }
        }
        Ok(())
    }

    /// Moves the cheapest stretch of mappings after which `missing` can be mapped too.
    fn move_for(&mut self, missing: &[Need]) -> Result<(), NoRoom> {
        self.costs.defragmentations += 1;
        let mut live: Vec<(u64, Need)> = self.entries.iter().map(|entry| (entry.start, entry.need)).collect();
        live.sort_unstable();
        let moves = stretch::cheapest(&live, missing, self.window.bytes()).ok_or(NoRoom)?;
        let dropped = self.drop_if(|entry| live[moves.clone()].contains(&(entry.start, entry.need)));
        // Space that came back piece by piece while the rest is mapped would be cut up again.
        self.costs.waits += u64::from(self.window.wait());
        let mut again: Vec<Need> = dropped
            .iter()
            .map(|entry| entry.need)
            .chain(missing.iter().copied())
            .collect();
        stretch::sort_largest_first(&mut again);
        let made = self.map_all(&again);
        // To be moved is not to be used.
        for entry in &mut self.entries {
            if let Some(before) = dropped.iter().find(|before| before.need == entry.need) {
                entry.last_batch = before.last_batch;
            }
        }
        made
    }

    fn map_all(&mut self, needs: &[Need]) -> Result<(), NoRoom> {
        needs.iter().try_for_each(|&need| self.map_waiting(need).ok_or(NoRoom))
    }

    fn map_waiting(&mut self, need: Need) -> Option<()> {
        if let Some(()) = self.map(need) {
            return Some(());
        }
        if !self.window.wait() {
            return None;
        }
        self.costs.waits += 1;
        self.map(need)
    }

    fn map(&mut self, need: Need) -> Option<()> {
        let start = self.window.map(need.bytes)?;
        self.costs.maps += 1;
        if !self.known.insert(need.id) {
            self.costs.remaps += 1;
            self.costs.remapped_bytes += need.bytes;
        }
        let last_batch = self.batch;
        self.entries.push(Entry {
            need,
            start,
            last_batch,
        });
        Some(())
    }

    fn evict_oldest(&mut self) -> Result<(), NoRoom> {
        let idle = self.entries.iter().filter(|entry| entry.last_batch != self.batch);
        let oldest = idle.min_by_key(|entry| entry.last_batch).ok_or(NoRoom)?.need.id;
        self.costs.evictions += 1;
        self.drop_if(|entry| entry.need.id == oldest);
        Ok(())
    }

    fn drop_if(&mut self, goes: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let (gone, kept): (Vec<Entry>, Vec<Entry>) = self.entries.iter().partition(|entry| goes(entry));
        self.entries = kept;
        gone.iter().for_each(|entry| self.window.unmap(entry.start));
        gone
    }

    fn used(&self) -> u64 {
        self.entries.iter().map(|entry| entry.need.bytes).sum()
    }
}

#[cfg(test)]
mod tests;
