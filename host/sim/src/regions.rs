//! Memory as the simulated engine knows it: mappings at their places in the window, and scratch below it.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::decode::Row;
use crate::memory::DspMapping;
use crate::platform::lock;

/// Where scratch begins for the engine.
const SCRATCH_START: u64 = 0x0100_0000;
/// Where the window begins for the engine; scratch ends below.
const WINDOW_START: u64 = 0x1000_0000;

/// Live mappings and scratch of one session.
pub(crate) struct Regions {
    /// By address: the mapping and its place in the window.
    live: Mutex<HashMap<u64, (DspMapping, u64)>>,
    scratch: (u64, u64),
}

impl Regions {
    /// No mappings, and scratch of `bytes` at `address`, which stays as long as the engine runs.
    pub(crate) fn new(address: u64, bytes: u64) -> Self {
        Self {
            live: Mutex::new(HashMap::new()),
            scratch: (address, bytes.min(WINDOW_START - SCRATCH_START)),
        }
    }

    pub(crate) fn insert(&self, mapping: DspMapping, place: u64) {
        lock(&self.live).insert(mapping.address(), (mapping, place));
    }

    /// Ends a mapping; gives its place. No copy is under way when this returns.
    pub(crate) fn remove(&self, address: u64) -> Option<u64> {
        lock(&self.live).remove(&address).map(|(_, place)| place)
    }

    /// The engine's address of memory of this session.
    pub(crate) fn to_device(&self, memory: u64) -> Option<u64> {
        let (scratch, bytes) = self.scratch;
        if let Some(offset) = memory.checked_sub(scratch).filter(|&offset| offset < bytes) {
            return Some(SCRATCH_START + offset);
        }
        let live = lock(&self.live);
        live.values().find_map(|(mapping, place)| {
            let offset = memory.checked_sub(mapping.address())?;
            (offset < mapping.bytes()).then_some(WINDOW_START + place + offset)
        })
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

    /// The memory behind bytes at an engine's address.
    fn find(&self, live: &HashMap<u64, (DspMapping, u64)>, address: u64, bytes: u64) -> Option<u64> {
        let inside = |start: u64, len: u64| {
            let offset = address.checked_sub(start)?;
            (offset.checked_add(bytes)? <= len).then_some(offset)
        };
        if let Some(offset) = inside(SCRATCH_START, self.scratch.1) {
            return Some(self.scratch.0 + offset);
        }
        live.values().find_map(|(mapping, place)| {
            let offset = inside(WINDOW_START + place, mapping.bytes())?;
            Some(mapping.address() + offset)
        })
    }
}
