//! One open session: its library on the DSP, its mappings, its queue.
//!
//! States: *open* -> *dead* (the driver says that the process is gone, or a call never came back) or *closed*. What is
//! given back after that is given back to the driver as far as it goes, and succeeds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use hexloom::transport::aee::{self, Side};
use hexloom::transport::{BlockRef, Connection, Death, HwInfo, MapKind, SharedMemory, TransportError};
use hexloom_abi::control::{ControlReply, ControlRequest, Method};
use hexloom_abi::limits::has_extended_mappings;
use hexloom_abi::{StartRequest, Status};

use crate::FastRpcOptions;
use crate::driver::Driver;
use crate::notices::Watch;
use crate::place::{Place, library_file};
use crate::queue::{Queue, in_pieces, is_nothing_yet};
use crate::worker::Worker;

/// The first architecture with the matrix unit that kernels drive.
const FIRST_WITH_MATRIX_UNIT: u32 = 73;

/// An open session.
pub(crate) struct FastRpcConnection {
    driver: Arc<Driver>,
    place: Place,
    arch: u32,
    handle: u64,
    worker: Worker,
    watch: Watch,
    /// By fd: address and bytes of what is mapped.
    mapped: Mutex<HashMap<u32, (usize, u64)>>,
    /// Whether the driver knows mappings outside the window, once that was tried.
    has_extended: OnceLock<bool>,
    queue: RwLock<Option<Queue>>,
    dead: Mutex<Option<Death>>,
    /// The DSP side runs, as far as is known.
    is_started: AtomicBool,
    is_closed: AtomicBool,
}

impl FastRpcConnection {
    /// Opens the library in a process of its own.
    pub(crate) fn open(
        driver: Arc<Driver>,
        place: Place,
        arch: u32,
        options: &FastRpcOptions,
    ) -> Result<Self, TransportError> {
        match driver.set_unsigned(place.effective, options.unsigned) {
            Ok(false) if options.unsigned => {
                log::warn!(
                    "{}: no unsigned processes; the library must be signed",
                    driver.library().display()
                );
            }
            // Signed ones are what a driver has that knows nothing else.
            Err(error) if options.unsigned => return Err(error),
            _ => {}
        }
        let watch = Watch::new(&driver, place.effective);
        let worker = Worker::new(options.call_timeout)?;
        let address = place.address(&driver, arch)?;
        let opened = {
            let driver = Arc::clone(&driver);
            worker.run("remote_handle64_open", move || driver.open(&address))?
        };
        let handle = opened.map_err(|code| {
            // The process may have started; it would keep the session's place.
            driver.end(place.effective);
            let what = format!(
                "{} in session {} of {}",
                library_file(arch),
                place.session,
                place.domain.name
            );
            aee::failed("remote_handle64_open", code, what)
        })?;
        if options.latency_us > 0 {
            driver.set_latency(handle, options.latency_us);
        }
        Ok(Self {
            driver,
            place,
            arch,
            handle,
            worker,
            watch,
            mapped: Mutex::default(),
            has_extended: OnceLock::new(),
            queue: RwLock::default(),
            dead: Mutex::default(),
            is_started: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Refuses what comes after the end.
    fn check(&self) -> Result<(), TransportError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(TransportError::Dead("closed".into()));
        }
        match &*lock(&self.dead) {
            Some(death) => Err(TransportError::Dead(death.clone())),
            None => Ok(()),
        }
    }

    fn is_over(&self) -> bool {
        self.check().is_err()
    }

    /// Notes the end of the process, once.
    fn died(&self, call: &str, code: i32) -> TransportError {
        let mut dead = lock(&self.dead);
        let death = dead.get_or_insert_with(|| {
            let told = self.watch.told().unwrap_or("the driver does not say why");
            let code = format!("{call} failed with {code:#x}: {}", aee::decode(code));
            format!("{told} ({code})").as_str().into()
        });
        TransportError::Dead(death.clone())
    }

    /// The error of a call: the end of the process where the code says so.
    fn failed(&self, call: &'static str, code: i32, what: impl std::fmt::Display) -> TransportError {
        match is_end(code) {
            true => self.died(call, code),
            false => aee::failed(call, code, what),
        }
    }

    /// Runs a call that waits for the DSP. One that does not come back ends the session.
    fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl FnOnce(&Driver) -> T + Send + 'static,
    ) -> Result<T, TransportError> {
        let driver = Arc::clone(&self.driver);
        let result = self.worker.run(name, move || call(&driver));
        result.inspect_err(|error| {
            lock(&self.dead).get_or_insert_with(|| format!("{name}: {error}").as_str().into());
        })
    }

    /// Sends a control message and gives its answer.
    fn call(&self, request: ControlRequest) -> Result<ControlReply, TransportError> {
        const CALL: &str = "remote_handle64_invoke";
        self.check()?;
        let handle = self.handle;
        let reply = self.run(CALL, move |driver| driver.call(handle, &request))?;
        let reply = reply.map_err(|code| self.failed(CALL, code, format!("method {}", request.method.0)))?;
        match Status::try_from(reply.status) {
            Ok(Status::Ok) => Ok(reply),
            Ok(status) => Err(TransportError::Refused(status)),
            Err(number) => Err(self.garbage(format!("status {number}"))),
        }
    }

    fn garbage(&self, what: String) -> TransportError {
        let death = lock(&self.dead)
            .get_or_insert_with(|| format!("the library answered with {what}").into())
            .clone();
        TransportError::Dead(death)
    }

    /// Whether the driver knows mappings outside the window: tried once, with a page that nobody uses.
    fn has_extended(&self) -> Result<bool, TransportError> {
        if let Some(&known) = self.has_extended.get() {
            return Ok(known);
        }
        let page = crate::driver::alloc(&self.driver, 1)?;
        let mapped = self.map_as(&page, MapKind::ExtendedNow)?;
        let known = match mapped {
            Ok(()) => {
                self.unmap(page.fd(), page.bytes())?;
                true
            }
            Err(code) if is_end(code) => return Err(self.died("fastrpc_mmap", code)),
            Err(code) => {
                log::warn!("no mappings outside the 32-bit window: {}", aee::decode(code));
                false
            }
        };
        Ok(*self.has_extended.get_or_init(|| known))
    }

    fn map_as(&self, memory: &SharedMemory, kind: MapKind) -> Result<Result<(), i32>, TransportError> {
        let (effective, fd, bytes) = (self.place.effective, memory.fd(), memory.bytes());
        let address = memory.as_ptr().as_ptr() as usize;
        let result = self.run("fastrpc_mmap", move |driver| {
            driver.map(effective, fd, address, bytes, kind)
        })?;
        if result.is_ok() {
            lock(&self.mapped).insert(fd, (address, bytes));
        }
        Ok(result)
    }
}

impl Connection for FastRpcConnection {
    fn hw_info(&self) -> Result<HwInfo, TransportError> {
        let reply = self.call(ControlRequest::new(Method::HW_INFO))?;
        if reply.arch > self.arch {
            log::warn!("a library for v{} on a v{}", reply.arch, self.arch);
        }
        Ok(HwInfo {
            arch: reply.arch,
            n_threads: reply.n_threads,
            n_hmx: u32::from(reply.arch >= FIRST_WITH_MATRIX_UNIT),
            scratch_bytes: reply.scratch_bytes,
            window_bytes: reply.window_bytes,
        })
    }

    fn map(&self, memory: &SharedMemory, kind: MapKind) -> Result<(), TransportError> {
        self.check()?;
        let what = || {
            format!(
                "fd {}, {} bytes on {}",
                memory.fd(),
                memory.bytes(),
                self.place.domain.name
            )
        };
        if matches!(kind, MapKind::Extended | MapKind::ExtendedNow) {
            let lacking = match has_extended_mappings(self.arch) {
                false => Some(format!(
                    "v{} has no mappings outside the 32-bit window, v81 and later have",
                    self.arch
                )),
                true if !self.has_extended()? => {
                    Some("the driver has no mappings outside the 32-bit window".to_owned())
                }
                true => None,
            };
            if let Some(why) = lacking {
                return Err(aee::failed(
                    "fastrpc_mmap",
                    aee::EUNSUPPORTED,
                    format!("{}: {why}", what()),
                ));
            }
        }
        let mapped = self.map_as(memory, kind)?;
        mapped.map_err(|code| self.failed("fastrpc_mmap", code, what()))
    }

    fn unmap(&self, fd: u32, bytes: u64) -> Result<(), TransportError> {
        const CALL: &str = "fastrpc_munmap";
        if self.is_closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let was_over = self.is_over();
        let known = lock(&self.mapped).get(&fd).copied();
        let (address, mapped_bytes) = known.unwrap_or((0, bytes));
        let effective = self.place.effective;
        let result = self.run(CALL, move |driver| driver.unmap(effective, fd, address, mapped_bytes));
        let result = match (was_over, result) {
            // The driver's own part of a mapping goes with the process, if it did not go now.
            (true, _) => Ok(()),
            (false, Ok(Err(code))) if is_end(code) => {
                self.died(CALL, code);
                Ok(())
            }
            (false, Ok(Err(code))) => Err(aee::failed(
                CALL,
                code,
                format!("fd {fd} on {}", self.place.domain.name),
            )),
            (false, Ok(Ok(()))) => Ok(()),
            (false, Err(error)) => Err(error),
        };
        if result.is_ok() {
            lock(&self.mapped).remove(&fd);
        }
        result
    }

    fn create_queue(&self, depth: u32) -> Result<u64, TransportError> {
        self.check()?;
        let mut queue = self.queue.write().unwrap_or_else(PoisonError::into_inner);
        if queue.is_some() {
            return Err(aee::failed("dspqueue_create", aee::EALREADY, "the session has a queue"));
        }
        let created = Queue::create(&self.driver, self.place.effective, depth);
        let created = created.map_err(|error| match error {
            TransportError::Call { call, code, .. } if is_end(code) => self.died(call, code),
            error => error,
        })?;
        Ok(queue.insert(created).id())
    }

    fn start(&self, start: &StartRequest) -> Result<(), TransportError> {
        // One whose answer is lost may have started all the same.
        self.is_started.store(true, Ordering::Release);
        self.call(ControlRequest::new(Method::START).with_start(start))
            .map(drop)
    }

    fn stop(&self) -> Result<(), TransportError> {
        let stopped = self.call(ControlRequest::new(Method::STOP)).map(drop);
        if stopped.is_ok() {
            self.is_started.store(false, Ordering::Release);
        }
        gone_is_done(stopped)
    }

    fn forget(&self, fd: u32) -> Result<(), TransportError> {
        let request = ControlRequest {
            fd,
            ..ControlRequest::new(Method::FORGET)
        };
        gone_is_done(self.call(request).map(drop))
    }

    fn write(&self, message: &[u8], block: BlockRef, timeout: Duration) -> Result<(), TransportError> {
        const CALL: &str = "dspqueue_write";
        self.check()?;
        let queue = self.queue.read().unwrap_or_else(PoisonError::into_inner);
        let queue = queue.as_ref().ok_or_else(|| no_queue(CALL))?;
        let written = in_pieces(timeout, |piece| queue.write(message, block, piece), || !self.is_over());
        written.map_err(|code| match code {
            code if is_nothing_yet(code) => self.late(timeout),
            code if is_end(code) || aee::is(code, aee::EBADSTATE) => self.died(CALL, code),
            code => aee::failed(
                CALL,
                code,
                format!("{} bytes with a block of {}", message.len(), block.bytes),
            ),
        })
    }

    fn read(&self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportError> {
        const CALL: &str = "dspqueue_read";
        self.check()?;
        let queue = self.queue.read().unwrap_or_else(PoisonError::into_inner);
        let queue = queue.as_ref().ok_or_else(|| no_queue(CALL))?;
        let read = in_pieces(timeout, |piece| queue.read(message, piece), || !self.is_over());
        read.map_err(|code| match code {
            code if is_nothing_yet(code) => self.late(timeout),
            code if is_end(code) || aee::is(code, aee::EBADSTATE) => self.died(CALL, code),
            code => aee::failed(CALL, code, "a reply"),
        })
    }

    fn close(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.is_started.swap(false, Ordering::AcqRel) {
            // What runs still has the queue and the mappings in use. A process that is taken for dead may not be.
            let (handle, request) = (self.handle, ControlRequest::new(Method::STOP));
            let stopped = self.run("remote_handle64_invoke", move |driver| {
                driver.call(handle, &request).map(drop)
            });
            log::debug!("stopping before the close: {stopped:?}");
        }
        // Whoever waits for a reply notices within one piece of a wait.
        *self.queue.write().unwrap_or_else(PoisonError::into_inner) = None;
        let (handle, effective) = (self.handle, self.place.effective);
        let maps: Vec<(u32, (usize, u64))> = lock(&self.mapped).drain().collect();
        let result = self.run("remote_handle64_close", move |driver| {
            for (fd, (address, bytes)) in maps {
                log::debug!(
                    "fd {fd} was mapped still: {:?}",
                    driver.unmap(effective, fd, address, bytes)
                );
            }
            let closed = driver.close(handle);
            // Without this the process would stay as long as the program, dead or alive.
            driver.end(effective);
            closed
        });
        match result {
            Ok(Ok(())) => {}
            Ok(Err(code)) => log::warn!("remote_handle64_close: {}", aee::decode(code)),
            Err(error) => log::warn!("remote_handle64_close: {error}"),
        }
    }
}

impl FastRpcConnection {
    /// Nothing came in time, or the session ended meanwhile.
    fn late(&self, timeout: Duration) -> TransportError {
        self.check().err().unwrap_or(TransportError::Timeout(timeout))
    }
}

impl Drop for FastRpcConnection {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether a code says that the process, or the DSP, is gone.
fn is_end(code: i32) -> bool {
    match aee::split(code) {
        (Side::Host | Side::Dsp, number) => matches!(number, aee::ECONNRESET | aee::EINTERRUPTED),
        // ECONNRESET and ESHUTDOWN of the kernel.
        (Side::Kernel, number) => matches!(number, 104 | 108),
    }
}

fn no_queue(call: &'static str) -> TransportError {
    aee::failed(call, aee::EBADSTATE, "the session has no queue")
}

/// What is given back to a process that is gone is given back.
fn gone_is_done(result: Result<(), TransportError>) -> Result<(), TransportError> {
    match result {
        Err(TransportError::Dead(_)) => Ok(()),
        other => other,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_end_a_session() {
        for code in [104, 46, aee::DSP_OFFSET + 104, aee::DSP_OFFSET + 46, -104, -108] {
            assert!(is_end(code), "{code:#x}");
        }
        for code in [0, 1, 0x0d, 0x0e, 0x72, -12, aee::DSP_OFFSET + 6, 0x200] {
            assert!(!is_end(code), "{code:#x}");
        }
    }
}
