//! Memory as the simulated engine knows it: mappings at their places in the window or beyond, and scratch below it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use hexloom_abi::limits::LINE_BYTES;

use crate::decode::Row;
use crate::harsh::Dice;
use crate::memory::{DspMapping, WINDOW_START};
use crate::platform::lock;

/// Where scratch begins for the engine; it ends below the window.
const SCRATCH_START: u64 = 0x0100_0000;
/// Ranges of cache maintenance that are remembered.
const LATELY: usize = 64;
/// Most lines that one eviction takes.
const EVICT_LINES: u64 = 64;

/// Live mappings and scratch of one session.
pub(crate) struct Regions {
    /// By the address at which the DSP side sees them.
    live: Mutex<BTreeMap<u64, DspMapping>>,
    scratch: (u64, u64),
    /// Ranges that were cleaned or invalidated last.
    lately: Mutex<VecDeque<(u64, u64)>>,
}

impl Regions {
    /// No mappings, and scratch of `bytes` at `address`, which stays as long as the engine runs.
    pub(crate) fn new(address: u64, bytes: u64) -> Self {
        Self {
            live: Mutex::new(BTreeMap::new()),
            scratch: (address, bytes.min(WINDOW_START - SCRATCH_START)),
            lately: Mutex::new(VecDeque::new()),
        }
    }

    pub(crate) fn insert(&self, mapping: DspMapping) {
        lock(&self.live).insert(mapping.address(), mapping);
    }

    /// Ends a mapping. No copy is under way when this returns.
    pub(crate) fn remove(&self, address: u64) {
        // Given back after the lock, which is the inner one.
        let removed = lock(&self.live).remove(&address);
        drop(removed);
    }

    /// Ends all mappings.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *lock(&self.live));
        drop(all);
    }

    /// The engine's address of memory of this session.
    pub(crate) fn to_device(&self, memory: u64) -> Option<u64> {
        let (scratch, bytes) = self.scratch;
        if let Some(offset) = memory.checked_sub(scratch).filter(|&offset| offset < bytes) {
            return Some(SCRATCH_START + offset);
        }
        let live = lock(&self.live);
        let (mapping, offset) = around(&live, memory)?;
        Some(mapping.device_address() + offset)
    }

    /// Fills bytes at an engine's address; false when they are not there.
    pub(crate) fn fill(&self, address: u64, bytes: u64, value: u8) -> bool {
        let live = lock(&self.live);
        let Some(at) = self.find(&live, address, bytes) else {
            return false;
        };
        // SAFETY: `find` has found the bytes in scratch, which outlives the engine, or in a mapping that the lock keeps;
        // who pushes a transfer gives its target to the engine.
        unsafe { std::ptr::write_bytes(at as *mut u8, value, bytes as usize) };
        true
    }

    /// Copies one row; false when its source or its target is not there.
    pub(crate) fn copy(&self, row: &Row) -> bool {
        let live = lock(&self.live);
        let (Some(from), Some(to)) = (
            self.find(&live, row.source, row.bytes),
            self.find(&live, row.target, row.bytes),
        ) else {
            return false;
        };
        // SAFETY: `find` has found both in scratch, which outlives the engine, or in mappings that the lock keeps. Who
        // pushes a transfer promises that nobody writes the source or uses the target until it is done.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, row.bytes as usize) };
        true
    }

    /// Cleans what the DSP's caches hold of a range.
    pub(crate) fn clean(&self, address: u64, bytes: u64) {
        self.maintain(address, bytes, |mapping, offset, bytes| {
            if let Some(shadow) = mapping.shadow() {
                shadow.clean(offset, bytes);
            }
        });
    }

    /// Drops what the DSP's caches hold of a range.
    pub(crate) fn invalidate(&self, address: u64, bytes: u64) {
        self.maintain(address, bytes, |mapping, offset, bytes| {
            if let Some(shadow) = mapping.shadow() {
                shadow.invalidate(offset, bytes);
            }
        });
    }

    /// Lets `n` runs of lines leave the DSP's caches, where there was maintenance lately or beside it.
    pub(crate) fn evict(&self, n: u32, dice: &Dice) {
        let live = lock(&self.live);
        let lately = lock(&self.lately);
        for _ in 0..n {
            let Some(&(address, bytes)) = lately.get(dice.below(lately.len() as u64) as usize) else {
                return;
            };
            // From a line before the range to one behind.
            let n_lines = bytes.div_ceil(LINE_BYTES) + 2;
            let first = address.saturating_sub(LINE_BYTES) + LINE_BYTES * dice.below(n_lines);
            let run = LINE_BYTES * (1 + dice.below(n_lines.min(EVICT_LINES)));
            let found = around(&live, first);
            if let Some((shadow, offset)) = found.and_then(|(mapping, offset)| Some((mapping.shadow()?, offset))) {
                shadow.evict(offset, run);
            }
        }
    }

    fn maintain(&self, address: u64, bytes: u64, act: impl Fn(&DspMapping, u64, u64)) {
        let live = lock(&self.live);
        if let Some((mapping, offset)) = around(&live, address) {
            act(mapping, offset, bytes);
            let mut lately = lock(&self.lately);
            lately.truncate(LATELY - 1);
            lately.push_front((address, bytes));
        }
    }

    /// The memory behind bytes at an engine's address.
    fn find(&self, live: &BTreeMap<u64, DspMapping>, address: u64, bytes: u64) -> Option<u64> {
        let inside = |start: u64, len: u64| {
            let offset = address.checked_sub(start)?;
            (offset.checked_add(bytes)? <= len).then_some(offset)
        };
        if let Some(offset) = inside(SCRATCH_START, self.scratch.1) {
            return Some(self.scratch.0 + offset);
        }
        live.values().find_map(|mapping| {
            let offset = inside(mapping.device_address(), mapping.bytes())?;
            Some(mapping.memory_address() + offset)
        })
    }
}

/// The mapping that an address of the DSP side lies in, and how far in.
fn around(live: &BTreeMap<u64, DspMapping>, address: u64) -> Option<(&DspMapping, u64)> {
    let (start, mapping) = live.range(..=address).next_back()?;
    let offset = address - start;
    (offset < mapping.bytes()).then_some((mapping, offset))
}
