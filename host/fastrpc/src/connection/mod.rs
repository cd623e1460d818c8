//! One open session: its library on the DSP, its mappings, its queue.
//!
//! States: *open* -> *dead* (the driver says that the process is gone, or a call never came back) or *closed*. What is
//! given back after that is given back to the driver as far as it goes, and succeeds. Every call that may wait for the DSP
//! runs on the connection's thread; one that does not come back in time has its process killed ([`Worker`]), so that the
//! place is free for the next session.
//!
//! Reading order: this file (open and close), [`end`], [`control`] (messages to the library), [`mapping`], [`exchange`]
//! (the queue).

mod control;
mod end;
mod exchange;
mod mapping;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use hexloom::transport::{BlockRef, Connection, HwInfo, MapKind, SharedMemory, TransportError, aee};
use hexloom_abi::StartRequest;
use hexloom_abi::control::CountedEvents;

use crate::FastRpcOptions;
use crate::driver::Driver;
use crate::notices::Watch;
use crate::place::{Place, Reservation, library_file};
use crate::process;
use crate::queue::Queue;
use crate::worker::Worker;
use end::End;
use mapping::Mappings;

/// An open session.
pub(crate) struct FastRpcConnection {
    driver: Arc<Driver>,
    place: Place,
    arch: u32,
    handle: u64,
    worker: Worker,
    end: End,
    mappings: Mappings,
    queue: RwLock<Option<Queue>>,
    reservation: Mutex<Option<Reservation>>,
    /// The DSP side runs, as far as is known.
    is_started: AtomicBool,
}

impl FastRpcConnection {
    /// Opens the library in a process of its own.
    pub(crate) fn open(
        driver: Arc<Driver>,
        mut place: Place,
        arch: u32,
        options: &FastRpcOptions,
    ) -> Result<Self, TransportError> {
        let unsigned = process::is_unsigned(options.unsigned, &driver, place.domain.id);
        match driver.set_unsigned(place.effective, unsigned) {
            Ok(false) if unsigned => {
                log::warn!(
                    "{}: no unsigned processes; the library must be signed",
                    driver.library().display()
                );
            }
            // Signed ones are what a driver has that knows nothing else.
            Err(error) if unsigned => return Err(error),
            _ => {}
        }
        let effective = place.effective;
        let watch = Watch::new(&driver, &place);
        let address = place.address(&driver, arch)?;
        let worker = Worker::new(options.call_timeout, {
            let driver = Arc::clone(&driver);
            move || driver.kill(effective)
        })?;
        let reservation = place.take_reservation();
        let latency_us = options.latency_us;
        let opened = worker.run("remote_handle64_open", {
            let driver = Arc::clone(&driver);
            move || {
                let handle = driver.open(&address)?;
                if latency_us > 0 {
                    driver.set_latency(handle, latency_us);
                }
                Ok(handle)
            }
        });
        let opened = opened.and_then(|opened| {
            opened.map_err(|code| {
                let Place { domain, session, .. } = &place;
                let what = format!("{} in session {session} of {}", library_file(arch), domain.name);
                aee::failed("remote_handle64_open", code, what)
            })
        });
        let handle = match opened {
            Ok(handle) => handle,
            Err(error) => {
                // The process may have started; it would keep the session's place.
                let ended = worker.run("remote_session_control", move || {
                    driver.end(effective);
                    drop(reservation);
                });
                log::debug!("ending what did not open: {ended:?}");
                return Err(error);
            }
        };
        Ok(Self {
            driver,
            place,
            arch,
            handle,
            worker,
            end: End::new(watch),
            mappings: Mappings::default(),
            queue: RwLock::default(),
            reservation: Mutex::new(reservation),
            is_started: AtomicBool::new(false),
        })
    }

    /// Runs a call that waits for the DSP. One that does not come back ends the session.
    fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl FnOnce(&Arc<Driver>) -> T + Send + 'static,
    ) -> Result<T, TransportError> {
        let driver = Arc::clone(&self.driver);
        let result = self.worker.run(name, move || call(&driver));
        result.inspect_err(|error| self.end.stuck(name, error))
    }
}

impl Connection for FastRpcConnection {
    fn hw_info(&self) -> Result<HwInfo, TransportError> {
        control::hw_info(self)
    }

    fn map(&self, memory: &SharedMemory, kind: MapKind) -> Result<(), TransportError> {
        mapping::map(self, memory, kind)
    }

    fn unmap(&self, fd: u32, bytes: u64) -> Result<(), TransportError> {
        mapping::unmap(self, fd, bytes)
    }

    fn create_queue(&self, depth: u32) -> Result<u64, TransportError> {
        exchange::create_queue(self, depth)
    }

    fn start(&self, start: &StartRequest) -> Result<(), TransportError> {
        control::start(self, start)
    }

    fn stop(&self) -> Result<(), TransportError> {
        control::stop(self)
    }

    fn forget(&self, fd: u32) -> Result<(), TransportError> {
        control::forget(self, fd)
    }

    fn count(&self, events: &CountedEvents) -> Result<(), TransportError> {
        control::count(self, events)
    }

    fn write(&self, message: &[u8], block: BlockRef, timeout: Duration) -> Result<(), TransportError> {
        exchange::write(self, message, block, timeout)
    }

    fn read(&self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportError> {
        exchange::read(self, message, timeout)
    }

    fn close(&self) {
        if !self.end.close() {
            return;
        }
        control::stop_at_last(self);
        // Whoever waits for a reply notices within one piece of a wait.
        let queue = self.queue.write().unwrap_or_else(PoisonError::into_inner).take();
        let reservation = self.reservation.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (handle, effective) = (self.handle, self.place.effective);
        let maps = self.mappings.drain();
        let result = self.run("remote_handle64_close", move |driver| {
            // The driver takes no queue that a process still has open; it does once that has ended.
            let left = queue.and_then(|mut queue| queue.close().is_err().then_some(queue));
            for (fd, (address, bytes)) in maps {
                let unmapped = driver.unmap(effective, fd, address, bytes);
                log::debug!("fd {fd} was mapped still: {unmapped:?}");
            }
            let closed = driver.close(handle);
            // Without this the process would stay as long as the program, dead or alive.
            driver.end(effective);
            drop(left);
            drop(reservation);
            closed
        });
        match result {
            Ok(Ok(())) => {}
            Ok(Err(code)) => log::warn!("remote_handle64_close: {}", aee::decode(code)),
            Err(error) => log::warn!("remote_handle64_close: {error}"),
        }
    }
}

impl Drop for FastRpcConnection {
    fn drop(&mut self) {
        self.close();
    }
}
