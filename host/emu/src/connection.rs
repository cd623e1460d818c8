//! One session on one emulator process.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hexloom::transport::{BlockRef, Connection, Death, HwInfo, MapKind, SharedMemory, TransportError, ends_at};
use hexloom_abi::control::{ControlReply, ControlRequest, CountedEvents, Method};
use hexloom_abi::{BatchReply, StartRequest, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::process::Process;
use crate::{EmuOptions, socket};

/// Longest wait for the answer to a call: the emulator translates code on first use, and a batch may be running.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct EmuConnection {
    socket: OwnedFd,
    process: Mutex<Option<Process>>,
    /// One call at a time: answers come in the order of calls, batch replies in between.
    calls: Mutex<()>,
    inbox: Mutex<Inbox>,
    arrived: Condvar,
}

/// Datagrams received and not yet asked for, by kind.
#[derive(Default)]
struct Inbox {
    replies: Vec<Vec<u8>>,
    answers: Vec<ControlReply>,
    receiving: bool,
    dead: Option<Death>,
}

impl EmuConnection {
    pub(crate) fn open(options: &EmuOptions) -> Result<Self, TransportError> {
        let (ours, theirs) = socket::pair().map_err(|errno| call_failed("socketpair", errno))?;
        let process = Process::start(options, &theirs)?;
        Ok(Self {
            socket: ours,
            process: Mutex::new(Some(process)),
            calls: Mutex::new(()),
            inbox: Mutex::new(Inbox::default()),
            arrived: Condvar::new(),
        })
    }

    fn call(&self, request: &ControlRequest, attached: Option<BorrowedFd<'_>>) -> Result<ControlReply, TransportError> {
        let _one = lock(&self.calls);
        self.send(request, attached)?;
        let answer = self.take(CALL_TIMEOUT, |inbox| {
            (!inbox.answers.is_empty()).then(|| inbox.answers.remove(0))
        })?;
        match Status::try_from(answer.status) {
            Ok(Status::Ok) => Ok(answer),
            Ok(status) => Err(TransportError::Refused(status)),
            Err(number) => Err(TransportError::Dead(
                format!("the image answered with status {number}").into(),
            )),
        }
    }

    fn send(&self, request: &ControlRequest, attached: Option<BorrowedFd<'_>>) -> Result<(), TransportError> {
        if let Some(why) = &lock(&self.inbox).dead {
            return Err(TransportError::Dead(why.clone()));
        }
        socket::send(&self.socket, request.as_bytes(), attached).map_err(|_| self.died(&mut lock(&self.inbox)))
    }

    /// Waits until `wanted` finds something in the inbox. Whoever waits first receives for everybody.
    fn take<T>(&self, timeout: Duration, wanted: impl Fn(&mut Inbox) -> Option<T>) -> Result<T, TransportError> {
        let end = ends_at(timeout);
        let mut inbox = lock(&self.inbox);
        loop {
            if let Some(found) = wanted(&mut inbox) {
                return Ok(found);
            }
            if let Some(why) = &inbox.dead {
                return Err(TransportError::Dead(why.clone()));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TransportError::Timeout(timeout));
            }
            if inbox.receiving {
                let waited = self.arrived.wait_timeout(inbox, left);
                inbox = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            inbox.receiving = true;
            drop(inbox);
            let mut bytes = [0; 512];
            let received = socket::receive(&self.socket, &mut bytes, left);
            inbox = lock(&self.inbox);
            inbox.receiving = false;
            match received {
                Ok(None) => {}
                Ok(Some(0)) | Err(_) => {
                    self.died(&mut inbox);
                }
                Ok(Some(len)) => inbox.sort(&bytes[..len]),
            }
            self.arrived.notify_all();
        }
    }

    fn died(&self, inbox: &mut Inbox) -> TransportError {
        let why = inbox.dead.get_or_insert_with(|| match lock(&self.process).as_mut() {
            Some(process) => process.epitaph(),
            None => "closed".into(),
        });
        TransportError::Dead(why.clone())
    }
}

impl Inbox {
    /// Batch replies and answers have different lengths; anything else is handed on as a reply, which the session
    /// refuses as garbage.
    fn sort(&mut self, bytes: &[u8]) {
        const { assert!(size_of::<BatchReply>() != size_of::<ControlReply>()) };
        match ControlReply::read_from_bytes(bytes) {
            Ok(answer) => self.answers.push(answer),
            Err(_) => self.replies.push(bytes.to_vec()),
        }
    }
}

impl Connection for EmuConnection {
    fn hw_info(&self) -> Result<HwInfo, TransportError> {
        let answer = self.call(&ControlRequest::new(Method::HW_INFO), None)?;
        // More guest threads than processors wait for each other by spinning.
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Ok(HwInfo {
            arch: answer.arch,
            n_threads: answer.n_threads.min(processors),
            n_hmx: 0,
            scratch_bytes: answer.scratch_bytes,
            window_bytes: answer.window_bytes,
            has_extended: answer.has_extended(),
        })
    }

    fn map(&self, memory: &SharedMemory, _kind: MapKind) -> Result<(), TransportError> {
        let request = ControlRequest {
            fd: memory.fd(),
            bytes: memory.bytes(),
            ..ControlRequest::new(Method::MAP)
        };
        // SAFETY: the descriptor belongs to `memory`, which is borrowed for the call.
        let fd = unsafe { BorrowedFd::borrow_raw(memory.fd() as i32) };
        self.call(&request, Some(fd)).map(drop)
    }

    fn unmap(&self, fd: u32, bytes: u64) -> Result<(), TransportError> {
        let request = ControlRequest {
            fd,
            bytes,
            ..ControlRequest::new(Method::UNMAP)
        };
        gone_is_done(self.call(&request, None).map(drop))
    }

    fn create_queue(&self, _depth: u32) -> Result<u64, TransportError> {
        Ok(1)
    }

    fn start(&self, start: &StartRequest) -> Result<(), TransportError> {
        self.call(&ControlRequest::new(Method::START).with_start(start), None)
            .map(drop)
    }

    fn stop(&self) -> Result<(), TransportError> {
        gone_is_done(self.call(&ControlRequest::new(Method::STOP), None).map(drop))
    }

    fn forget(&self, fd: u32) -> Result<(), TransportError> {
        let request = ControlRequest {
            fd,
            ..ControlRequest::new(Method::FORGET)
        };
        gone_is_done(self.call(&request, None).map(drop))
    }

    fn count(&self, events: &CountedEvents) -> Result<(), TransportError> {
        let request = ControlRequest::new(Method::COUNT).with_events(events);
        self.call(&request, None).map(drop)
    }

    fn write(&self, message: &[u8], block: BlockRef, _timeout: Duration) -> Result<(), TransportError> {
        let request = ControlRequest {
            fd: block.fd,
            offset: block.offset,
            bytes: block.bytes,
            ..ControlRequest::new(Method::BATCH)
        };
        self.send(&request.with_batch(message), None)
    }

    fn read(&self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportError> {
        let reply = self.take(timeout, |inbox| {
            (!inbox.replies.is_empty()).then(|| inbox.replies.remove(0))
        })?;
        let len = reply.len().min(message.len());
        message[..len].copy_from_slice(&reply[..len]);
        Ok(reply.len())
    }

    fn close(&self) {
        let process = lock(&self.process).take();
        lock(&self.inbox).dead.get_or_insert_with(|| "closed".into());
        drop(process);
        self.arrived.notify_all();
    }
}

impl Drop for EmuConnection {
    fn drop(&mut self) {
        self.close();
    }
}

/// A process that has ended has given everything back.
fn gone_is_done(result: Result<(), TransportError>) -> Result<(), TransportError> {
    match result {
        Err(TransportError::Dead(_)) => Ok(()),
        other => other,
    }
}

fn call_failed(call: &'static str, errno: rustix::io::Errno) -> TransportError {
    TransportError::Call {
        call,
        reason: errno.to_string(),
        code: errno.raw_os_error(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
