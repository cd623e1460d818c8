//! How much a session can map, found by mapping: on request, because it takes the platform's time.

use std::sync::Arc;

use crate::error::OpenError;
use crate::transport::{Connection, MapKind, SessionAt, SharedMemory, Transport, TransportError};

/// Largest trial mapping, and the size below which no more is tried.
const LARGEST: u64 = 1 << 30;
const SMALLEST: u64 = 1 << 20;
/// No 32-bit window is larger.
const WINDOW_MAX: u64 = 1 << 32;

/// What a session can map, as far as it was tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Bytes that were mapped at the same time.
    pub bytes: u64,
    /// Why there were not more.
    pub end: MeasureEnd,
}

/// What ended a measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MeasureEnd {
    /// The window has no room for more.
    Window,
    /// More was not to be tried. The window may be larger.
    Bound,
    /// More memory could not be allocated, which says nothing about the window.
    Memory(TransportError),
}

/// Finds how many bytes fresh mappings can fill in the window of a session at `at`, to a mebibyte: trial mappings of
/// `most_bytes` together at the most, from a gibibyte down by halves, all of them given back. Nothing may be open there.
///
/// The memory is not touched here, but a device's driver takes real memory for every allocation: give a part of what the
/// system has available. A platform that maps only what a batch needs, as the emulator does, answers with the whole 4 GiB.
///
/// # Errors
/// [`OpenError::Step`] when the connection cannot be opened.
pub fn measure_window(transport: &dyn Transport, at: SessionAt, most_bytes: u64) -> Result<Measured, OpenError> {
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
    let (mut size, mut end) = (LARGEST, MeasureEnd::Window);
    while size >= SMALLEST {
        // The last one that fails is the smallest: what it failed by is what ended the measurement.
        if let Err(why) = trials.add(transport, size, most_bytes) {
            end = why;
            size /= 2;
        }
    }
    Ok(Measured {
        bytes: trials.bytes(),
        end,
    })
}

/// Trial mappings, given back when dropped.
struct Trials {
    connection: Arc<dyn Connection>,
    mapped: Vec<SharedMemory>,
}

impl Trials {
    fn add(&mut self, transport: &dyn Transport, bytes: u64, most_bytes: u64) -> Result<(), MeasureEnd> {
        let all = self.bytes() + bytes;
        if all > WINDOW_MAX {
            return Err(MeasureEnd::Window);
        }
        if all > most_bytes {
            return Err(MeasureEnd::Bound);
        }
        let memory = transport.alloc(bytes).map_err(MeasureEnd::Memory)?;
        let mapped = self.connection.map(&memory, MapKind::Pinned);
        mapped.map_err(|_| MeasureEnd::Window)?;
        self.mapped.push(memory);
        Ok(())
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
