//! One connection of a session, from open to shut-down, with everything that must be given back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hexloom_abi::layout::align_up;
use hexloom_abi::limits::{FENCE_SLOT_BYTES, LINE_BYTES};
use hexloom_abi::message::{START_MATRIX_MODEL, START_NO_MATRIX_UNIT, START_REFERENCE};
use hexloom_abi::{StartRequest, Status};

use crate::error::{MapError, OpenError, SubmitError};
use crate::memory::Buffer;
use crate::session::queue::RequestQueue;
use crate::session::slots::SlotPool;
use crate::session::{MatrixUnit, SessionOptions, Slot};
use crate::transport::{Connection, HwInfo, MapKind, Transport, TransportError};

/// Wait before a failed map is tried once more: late unmaps of other processes need about that long.
const MAP_RETRY: Duration = Duration::from_millis(100);

/// A started connection.
pub(crate) struct Link {
    connection: Arc<dyn Connection>,
    queue: RequestQueue,
    slots: Arc<SlotPool>,
    hw: HwInfo,
    n_threads: u32,
    window_bytes: u64,
    epoch: u64,
    /// fd to bytes of every lazily mapped buffer.
    mapped: Mutex<HashMap<u32, u64>>,
    shut: AtomicBool,
}

impl Link {
    /// Opens, maps the pinned buffer, creates the queue, starts. On failure everything done is given back.
    pub(crate) fn open(
        transport: &Arc<dyn Transport>,
        options: &SessionOptions,
        epoch: u64,
    ) -> Result<Self, OpenError> {
        let at = |step: &'static str| {
            let transport = transport.name().to_owned();
            move |source| OpenError::Step {
                transport: transport.clone(),
                step,
                source,
            }
        };
        let connection = transport.open(options.at).map_err(at("opening the connection"))?;
        let started = Started::new(connection);
        let hw = started.connection.hw_info().map_err(at("asking what the DSP has"))?;
        let slot_bytes = options.slot_bytes();
        let pinned_bytes = pinned_bytes(options, slot_bytes).ok_or_else(|| OpenError::Option {
            option: "n_slots",
            value: options.n_slots.into(),
            allowed: "less, so that the pinned buffer fits an address space".to_owned(),
        })?;
        let memory = transport
            .alloc(pinned_bytes)
            .map_err(at("allocating the pinned buffer"))?;
        let connection = Arc::clone(&started.connection);
        connection
            .map(&memory, MapKind::Pinned)
            .map_err(at("mapping the pinned buffer"))?;
        let started = started.with_pinned(memory.fd(), memory.bytes());
        let queue_id = connection
            .create_queue(options.n_slots)
            .map_err(at("creating the queue"))?;
        let n_threads = match options.n_threads {
            0 => hw.n_threads.clamp(1, hexloom_abi::limits::MAX_THREADS),
            n => n,
        };
        let window_bytes = match options.window_bytes {
            0 => hw.window_bytes,
            bytes => bytes,
        }
        .saturating_sub(memory.bytes());
        let start = StartRequest {
            flags: start_flags(options),
            n_threads,
            queue_id,
            window_bytes,
            pinned_fd: memory.fd(),
            pinned_bytes: memory.bytes(),
            block_bytes_max: u32::try_from(slot_bytes).unwrap_or(u32::MAX),
            scratch_bytes_max: options.scratch_bytes_max,
            ..StartRequest::new(0)
        };
        connection.start(&start).map_err(at("starting the DSP side"))?;
        started.keep();
        Ok(Self {
            queue: RequestQueue::new(Arc::clone(&connection)),
            connection,
            slots: Arc::new(SlotPool::new(memory, slot_bytes, options.n_slots)),
            hw,
            n_threads,
            window_bytes,
            epoch,
            mapped: Mutex::new(HashMap::new()),
            shut: AtomicBool::new(false),
        })
    }

    pub(crate) fn queue(&self) -> &RequestQueue {
        &self.queue
    }

    pub(crate) fn hw(&self) -> &HwInfo {
        &self.hw
    }

    pub(crate) fn n_threads(&self) -> u32 {
        self.n_threads
    }

    /// Bytes that one batch may need mapped.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// Rises with every re-opening, so that a prepared graph notices that its slots are gone.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes `n` free slots, or none.
    pub(crate) fn take_slots(&self, n: usize) -> Result<Vec<Slot>, SubmitError> {
        let slots: Option<Vec<Slot>> = (0..n).map(|_| self.slots.take()).collect();
        slots.ok_or_else(|| {
            let (owned, total) = self.slots.owned();
            SubmitError::NoSlot {
                needed: n,
                owned,
                in_flight: self.queue.n_in_flight(),
                total,
            }
        })
    }

    /// Whether a slot lies in this connection's pinned buffer.
    pub(crate) fn owns(&self, slot: &Slot) -> bool {
        slot.is_of(&self.slots)
    }

    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.slots.memory().bytes()
    }

    pub(crate) fn pinned_fd(&self) -> u32 {
        self.slots.memory().fd()
    }

    /// Makes buffers known to the session: those that are not yet, largest first, then by fd, so that every session
    /// stacks them alike.
    pub(crate) fn map(&self, buffers: &[Buffer]) -> Result<(), MapError> {
        let mut mapped = self.lock();
        let mut missing: Vec<&Buffer> = buffers
            .iter()
            .filter(|buffer| !mapped.contains_key(&buffer.fd()))
            .collect();
        missing.sort_by_key(|buffer| (std::cmp::Reverse(buffer.bytes()), buffer.fd()));
        missing.dedup_by_key(|buffer| buffer.fd());
        for buffer in missing {
            let first = self.connection.map(buffer.memory(), MapKind::Lazy);
            let result = match first {
                Err(TransportError::Dead(_)) | Ok(()) => first,
                Err(_) => {
                    thread::sleep(MAP_RETRY);
                    self.connection.map(buffer.memory(), MapKind::Lazy)
                }
            };
            result.map_err(|source| MapError::Map {
                name: buffer.name().to_owned(),
                fd: buffer.fd(),
                bytes: buffer.memory().bytes(),
                mapped: mapped.values().sum(),
                window: self.window_bytes,
                source,
            })?;
            mapped.insert(buffer.fd(), buffer.memory().bytes());
        }
        Ok(())
    }

    /// Takes a buffer's mappings back, on the DSP first.
    pub(crate) fn unmap(&self, fd: u32) {
        let removed = self.lock().remove(&fd);
        if let Some(bytes) = removed {
            give_back("dropping a DSP mapping", self.connection.forget(fd));
            give_back("unmapping a buffer", self.connection.unmap(fd, bytes));
        }
    }

    /// Stops the DSP side and gives everything back, once.
    pub(crate) fn shut_down(&self) {
        if self.shut.swap(true, Ordering::AcqRel) {
            return;
        }
        give_back("stopping the DSP side", self.connection.stop());
        for (fd, bytes) in self.lock().drain() {
            give_back("unmapping a buffer", self.connection.unmap(fd, bytes));
        }
        let pinned = self.slots.memory();
        give_back(
            "unmapping the pinned buffer",
            self.connection.unmap(pinned.fd(), pinned.bytes()),
        );
        self.connection.close();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, u64>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// A connection under construction: closes and unmaps unless kept.
struct Started {
    connection: Arc<dyn Connection>,
    pinned: Option<(u32, u64)>,
    kept: bool,
}

impl Started {
    fn new(connection: Arc<dyn Connection>) -> Self {
        Self {
            connection,
            pinned: None,
            kept: false,
        }
    }

    fn with_pinned(mut self, fd: u32, bytes: u64) -> Self {
        self.pinned = Some((fd, bytes));
        self
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if let Some((fd, bytes)) = self.pinned {
            give_back("unmapping the pinned buffer", self.connection.unmap(fd, bytes));
        }
        self.connection.close();
    }
}

fn start_flags(options: &SessionOptions) -> u16 {
    let matrix = match options.matrix_unit {
        MatrixUnit::Auto => 0,
        MatrixUnit::Off => START_NO_MATRIX_UNIT,
        MatrixUnit::Model => START_MATRIX_MODEL,
    };
    matrix | if options.reference { START_REFERENCE } else { 0 }
}

fn pinned_bytes(options: &SessionOptions, slot_bytes: u64) -> Option<u64> {
    let slots = slot_bytes.checked_mul(options.n_slots.into())?;
    let fences = FENCE_SLOT_BYTES.checked_mul(options.n_fences.into())?;
    align_up(slots, LINE_BYTES)?.checked_add(fences)
}

/// Giving back cannot fail in a way that anybody could act on; it is logged.
fn give_back(what: &str, result: Result<(), TransportError>) {
    match result {
        Ok(()) | Err(TransportError::Dead(_)) | Err(TransportError::Refused(Status::NotStarted)) => {}
        Err(error) => log::warn!("{what}: {error}"),
    }
}
