//! One connection of a session, from open to shut-down, with everything that must be given back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hexloom_abi::control::CountedEvents;
use hexloom_abi::limits::{MAX_THREADS, has_extended_mappings};
use hexloom_abi::message::{START_MATRIX_MODEL, START_NO_MATRIX_UNIT, START_REFERENCE};
use hexloom_abi::{StartRequest, Status};

use crate::error::{MapError, OpenError, SubmitError};
use crate::memory::Buffer;
use crate::session::pinned::Pinned;
use crate::session::queue::RequestQueue;
use crate::session::{FenceRun, MatrixUnit, SessionOptions, Slot};
use crate::transport::{Connection, HwInfo, MapKind, SessionAt, Transport, TransportError, aee};

/// Wait before a failed map is tried once more: late unmaps of other processes need about that long.
const MAP_RETRY: Duration = Duration::from_millis(100);

/// A started connection.
pub(crate) struct Link {
    at: SessionAt,
    connection: Arc<dyn Connection>,
    queue: RequestQueue,
    pinned: Arc<Pinned>,
    hw: HwInfo,
    n_threads: u32,
    window_bytes: u64,
    /// By fd: every buffer made known but the pinned one.
    mapped: Mutex<HashMap<u32, Known>>,
    shut: AtomicBool,
}

/// A buffer made known to the session.
struct Known {
    bytes: u64,
    window_bytes: u64,
}

impl Link {
    /// Opens, maps the pinned buffer, creates the queue, starts. On failure everything done is given back.
    pub(crate) fn open(transport: &dyn Transport, options: &SessionOptions, at: SessionAt) -> Result<Self, OpenError> {
        let step = |step: &'static str| {
            let transport = transport.name().to_owned();
            move |source| OpenError::Step {
                transport: transport.clone(),
                at,
                step,
                source,
            }
        };
        let connection = transport.open(at).map_err(step("opening the connection"))?;
        let started = Started::new(connection);
        let hw = started.connection.hw_info().map_err(step("asking what the DSP has"))?;
        if options.extended_weights && !has_extended_mappings(hw.arch) {
            return Err(OpenError::NoExtendedMappings { at, arch: hw.arch });
        }
        if options.extended_weights && !hw.has_extended {
            return Err(OpenError::NoExtendedOnDsp { at, arch: hw.arch });
        }
        let pinned_bytes = Pinned::bytes(options).ok_or_else(|| OpenError::Option {
            option: "n_slots",
            value: options.n_slots.into(),
            allowed: "less, so that the pinned buffer fits an address space".to_owned(),
        })?;
        let pinned = Buffer::pinned(transport, pinned_bytes).map_err(step("allocating the pinned buffer"))?;
        let connection = Arc::clone(&started.connection);
        let map = || connection.map(pinned.memory(), MapKind::Pinned);
        let mapped = map().or_else(|error| match error {
            TransportError::Dead(_) => Err(error),
            _ => {
                thread::sleep(MAP_RETRY);
                map()
            }
        });
        mapped.map_err(step("mapping the pinned buffer"))?;
        let started = started.with_pinned(pinned.clone());
        let queue_id = connection
            .create_queue(options.n_slots)
            .map_err(step("creating the queue"))?;
        let n_threads = match options.n_threads {
            0 => hw.n_threads.clamp(1, MAX_THREADS),
            n => n,
        };
        let pinned_bytes = pinned.memory().bytes();
        let window_bytes = match options.window_bytes {
            0 => hw.window_bytes,
            bytes => bytes,
        }
        .saturating_sub(pinned_bytes);
        let start = StartRequest {
            flags: start_flags(options),
            n_threads,
            queue_id,
            window_bytes,
            pinned_fd: pinned.fd(),
            pinned_bytes,
            block_bytes_max: u32::try_from(options.slot_bytes()).unwrap_or(u32::MAX),
            scratch_bytes_max: options.scratch_bytes_max,
            ..StartRequest::new(at.session)
        };
        connection.start(&start).map_err(|source| match source {
            TransportError::Refused(Status::Unsupported) if options.reference => OpenError::NoReference {
                transport: transport.name().to_owned(),
            },
            source => step("starting the DSP side")(source),
        })?;
        count(&*connection, options);
        started.keep();
        Ok(Self {
            at,
            queue: RequestQueue::new(Arc::clone(&connection)),
            connection,
            pinned: Arc::new(Pinned::new(pinned, options)),
            hw,
            n_threads,
            window_bytes,
            mapped: Mutex::new(HashMap::new()),
            shut: AtomicBool::new(false),
        })
    }

    pub(crate) fn at(&self) -> SessionAt {
        self.at
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

    /// Whether kernels find the same threads, scratch and units here as at `other`.
    pub(crate) fn computes_as(&self, other: &Self) -> bool {
        let of = |link: &Self| (link.n_threads, link.hw.arch, link.hw.scratch_bytes, link.hw.n_hmx);
        of(self) == of(other)
    }

    /// Bytes of the window that tensor buffers can fill: the pinned buffer is taken off.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// Bytes of the window that live buffers would fill together, whether they are mapped at the moment or not.
    pub(crate) fn known_bytes(&self) -> u64 {
        self.lock().values().map(|known| known.window_bytes).sum()
    }

    /// Takes `n` free slots, or none.
    pub(crate) fn take_slots(&self, n: usize) -> Result<Vec<Slot>, SubmitError> {
        let slots: Option<Vec<Slot>> = (0..n).map(|_| self.pinned.take_slot()).collect();
        slots.ok_or_else(|| {
            let (owned, total) = self.pinned.slots_owned();
            SubmitError::NoSlot {
                needed: n,
                owned,
                in_flight: self.queue.n_in_flight(),
                total,
            }
        })
    }

    /// Takes `n` fence slots side by side.
    pub(crate) fn take_fences(&self, n: u32) -> Result<FenceRun, SubmitError> {
        self.pinned.take_fences(n).ok_or_else(|| {
            let (free, longest, total) = self.pinned.fences_free();
            SubmitError::NoFence {
                needed: n,
                free,
                longest,
                total,
            }
        })
    }

    /// Whether a slot lies in this connection's pinned buffer.
    pub(crate) fn owns(&self, slot: &Slot) -> bool {
        slot.is_of(&self.pinned)
    }

    pub(crate) fn pinned(&self) -> &Buffer {
        self.pinned.buffer()
    }

    /// Whether a buffer must be mapped before a batch uses it: it is neither pinned here nor mapped.
    pub(crate) fn lacks(&self, buffer: &Buffer) -> bool {
        buffer.fd() != self.pinned().fd() && !self.lock().contains_key(&buffer.fd())
    }

    /// Makes a buffer known to the session, unless it is. A failed map is tried once more, at once for extended ones.
    pub(crate) fn map(&self, buffer: &Buffer) -> Result<(), MapError> {
        let mut mapped = self.lock();
        if mapped.contains_key(&buffer.fd()) {
            return Ok(());
        }
        let first = match self.shut.load(Ordering::Acquire) {
            // What is mapped after everything was given back would stay.
            true => Err(TransportError::Dead("closed".into())),
            false => self.connection.map(buffer.memory(), buffer.map_kind()),
        };
        let result = match first {
            Err(TransportError::Dead(_)) | Ok(()) => first,
            Err(error) => {
                if error.is_code(aee::EALREADY) {
                    // An earlier buffer of that fd could not be unmapped when it ended.
                    give_back(
                        "unmapping a buffer that is gone",
                        self.connection.unmap(buffer.fd(), buffer.memory().bytes()),
                    );
                }
                thread::sleep(MAP_RETRY);
                let again = match buffer.map_kind() {
                    MapKind::Extended => MapKind::ExtendedNow,
                    kind => kind,
                };
                self.connection.map(buffer.memory(), again)
            }
        };
        result.map_err(|source| MapError::Map {
            name: buffer.name().to_owned(),
            fd: buffer.fd(),
            bytes: buffer.memory().bytes(),
            at: self.at,
            known: mapped.values().map(|known| known.window_bytes).sum(),
            window: self.window_bytes,
            source,
        })?;
        let known = Known {
            bytes: buffer.memory().bytes(),
            window_bytes: buffer.window_bytes(),
        };
        mapped.insert(buffer.fd(), known);
        Ok(())
    }

    /// Takes a buffer's mappings back, on the DSP first.
    pub(crate) fn unmap(&self, fd: u32) {
        let known = self.lock().remove(&fd);
        if let Some(Known { bytes, .. }) = known {
            give_back("dropping a DSP mapping", self.connection.forget(fd));
            give_back("unmapping a buffer", self.connection.unmap(fd, bytes));
        }
    }

    /// Stops the DSP side and gives everything back, once. Who waits for a fence of this session is told.
    pub(crate) fn shut_down(&self) {
        if self.shut.swap(true, Ordering::AcqRel) {
            return;
        }
        give_back("stopping the DSP side", self.connection.stop());
        for (fd, Known { bytes, .. }) in self.lock().drain() {
            give_back("unmapping a buffer", self.connection.unmap(fd, bytes));
        }
        let pinned = self.pinned().memory();
        give_back(
            "unmapping the pinned buffer",
            self.connection.unmap(pinned.fd(), pinned.bytes()),
        );
        self.connection.close();
        self.pinned.fail_fences();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Known>> {
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
    pinned: Option<Buffer>,
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

    fn with_pinned(mut self, pinned: Buffer) -> Self {
        self.pinned = Some(pinned);
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
        if let Some(pinned) = &self.pinned {
            let memory = pinned.memory();
            give_back(
                "unmapping the pinned buffer",
                self.connection.unmap(memory.fd(), memory.bytes()),
            );
        }
        self.connection.close();
    }
}

/// Sets the performance counters where that is asked for. A session without them computes as well.
fn count(connection: &dyn Connection, options: &SessionOptions) {
    let events = CountedEvents {
        numbers: options.counters,
    };
    if events.is_off() {
        return;
    }
    if let Err(error) = connection.count(&events) {
        log::warn!("the performance counters stay off: {error}");
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

/// Giving back cannot fail in a way that anybody could act on; it is logged.
pub(super) fn give_back(what: &str, result: Result<(), TransportError>) {
    match result {
        Ok(()) | Err(TransportError::Dead(_)) | Err(TransportError::Refused(Status::NotStarted)) => {}
        Err(error) => log::warn!("{what}: {error}"),
    }
}
