//! The library in a process: what the device library does, on the simulator.
//!
//! Arguments are unpacked by `hexloom_dsp::rpc` and messages checked by `hexloom_dsp::control`, as on a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hexloom::transport::{Connection, TransportError};
use hexloom_abi::control::{ControlReply, CountedEvents, REPLY_EXTENDED};
use hexloom_abi::fastrpc::RpcRefusal;
use hexloom_abi::{StartRequest, Status};
use hexloom_sim::control::{self, Control};
use hexloom_sim::rpc::Service;

/// The one handle that a library gives out.
const HANDLE: u64 = 1;

/// A library in a process.
pub struct Library {
    connection: Arc<dyn Connection>,
    is_open: AtomicBool,
    is_started: AtomicBool,
    /// Of the process's queue; 0 = none.
    queue_id: AtomicU64,
    is_dead: AtomicBool,
}

impl Library {
    pub(crate) fn new(connection: Arc<dyn Connection>) -> Self {
        Self {
            connection,
            is_open: AtomicBool::new(false),
            is_started: AtomicBool::new(false),
            queue_id: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
        }
    }

    /// Notes which queue the process can open; 0 when there is none any more.
    pub(crate) fn set_queue(&self, id: u64) {
        self.queue_id.store(id, Ordering::Release);
    }

    pub(crate) fn is_started(&self) -> bool {
        self.is_started.load(Ordering::Acquire)
    }

    /// Whether a call has found the process gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    fn status(&self, result: Result<(), TransportError>) -> Result<(), Status> {
        result.map_err(|error| match error {
            TransportError::Refused(status) => status,
            TransportError::Timeout(_) => Status::Timeout,
            TransportError::Dead(_) => {
                self.is_dead.store(true, Ordering::Release);
                Status::Internal
            }
            _ => Status::MapFailed,
        })
    }

    fn check(&self, handle: u64) -> Result<(), RpcRefusal> {
        match handle == HANDLE && self.is_open.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(RpcRefusal::BadArguments),
        }
    }
}

impl Service for Library {
    fn open(&self, _address: &[u8]) -> Result<u64, RpcRefusal> {
        match self.is_open.swap(true, Ordering::AcqRel) {
            true => Err(RpcRefusal::Busy),
            false => Ok(HANDLE),
        }
    }

    fn close(&self, handle: u64) -> Result<(), RpcRefusal> {
        self.check(handle)?;
        if self.is_started() {
            return Err(RpcRefusal::Busy);
        }
        self.is_open.store(false, Ordering::Release);
        Ok(())
    }

    fn call(&self, handle: u64, message: &[u8]) -> Result<ControlReply, RpcRefusal> {
        self.check(handle)?;
        Ok(control::answer(self, message))
    }
}

impl Control for Library {
    fn hw_info(&self) -> ControlReply {
        let mut reply = ControlReply::new(Status::Ok);
        let told = self.connection.hw_info().map(|hw| {
            reply.flags = if hw.has_extended { REPLY_EXTENDED } else { 0 };
            reply.arch = hw.arch;
            reply.n_threads = hw.n_threads;
            reply.scratch_bytes = hw.scratch_bytes;
            reply.window_bytes = hw.window_bytes;
        });
        match self.status(told) {
            Ok(()) => reply,
            Err(status) => ControlReply::new(status),
        }
    }

    fn start(&self, start: &StartRequest) -> Result<(), Status> {
        let queue_id = self.queue_id.load(Ordering::Acquire);
        if queue_id == 0 || start.queue_id != queue_id {
            return Err(Status::Invalid);
        }
        self.status(self.connection.start(start))?;
        self.is_started.store(true, Ordering::Release);
        Ok(())
    }

    fn stop(&self) -> Result<(), Status> {
        self.status(self.connection.stop())?;
        self.is_started.store(false, Ordering::Release);
        Ok(())
    }

    fn forget(&self, fd: u32) -> Result<(), Status> {
        self.status(self.connection.forget(fd))
    }

    fn count(&self, events: &CountedEvents) -> Result<(), Status> {
        self.status(self.connection.count(events))
    }
}
