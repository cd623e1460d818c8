//! How much a session can map, found by mapping: on request, because it takes the platform's time.

use std::sync::Arc;

use crate::error::OpenError;
use crate::transport::{Connection, MapKind, SessionAt, SharedMemory, Transport};

/// Largest trial mapping, and the size below which no more is tried.
const LARGEST: u64 = 1 << 30;
const SMALLEST: u64 = 1 << 20;
/// No 32-bit window is larger.
const WINDOW_MAX: u64 = 1 << 32;

/// Bytes that fresh mappings can fill in the window of a session at `at`, to a mebibyte: trial mappings from a gibibyte
/// down by halves, all of them given back. Nothing may be open there.
///
/// The memory is allocated but never touched. A platform that maps only what a batch needs, as the emulator does, answers
/// with the whole 4 GiB.
///
/// # Errors
/// [`OpenError::Step`] when the connection cannot be opened.
pub fn measure_window(transport: &dyn Transport, at: SessionAt) -> Result<u64, OpenError> {
    let connection = transport.open(at).map_err(|source| OpenError::Step {
        transport: transport.name().to_owned(),
        at,
        step: "opening the connection",
        source,
    })?;
    let mut trials = Trials {
        connection,
        mapped: Vec::new(),
    };
    let mut size = LARGEST;
    while size >= SMALLEST {
        if trials.bytes() + size > WINDOW_MAX || !trials.add(transport, size) {
            size /= 2;
        }
    }
    Ok(trials.bytes())
}

/// Trial mappings, given back when dropped.
struct Trials {
    connection: Arc<dyn Connection>,
    mapped: Vec<SharedMemory>,
}

impl Trials {
    fn add(&mut self, transport: &dyn Transport, bytes: u64) -> bool {
        let Ok(memory) = transport.alloc(bytes) else {
            return false;
        };
        let mapped = self.connection.map(&memory, MapKind::Pinned).is_ok();
        if mapped {
            self.mapped.push(memory);
        }
        mapped
    }

    fn bytes(&self) -> u64 {
        self.mapped.iter().map(SharedMemory::bytes).sum()
    }
}

impl Drop for Trials {
    fn drop(&mut self) {
        for memory in &self.mapped {
            super::link::give_back("unmapping a trial", self.connection.unmap(memory.fd(), memory.bytes()));
        }
        self.connection.close();
    }
}
