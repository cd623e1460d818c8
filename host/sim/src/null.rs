//! A transport whose DSP answers every batch at once without computing: for measuring the host alone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hexloom::transport::{
    BlockRef, Connection, Core, HwInfo, MapKind, SessionAt, SharedMemory, Transport, TransportError,
};
use hexloom_abi::control::CountedEvents;
use hexloom_abi::{BatchReply, BatchRequest, StartRequest, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::SimOptions;
use crate::platform::lock;

/// Answers every batch with "ok" and leaves every output as it was.
#[derive(Debug, Default)]
pub struct NullTransport;

#[derive(Default)]
struct NullConnection {
    replies: Mutex<VecDeque<BatchReply>>,
}

impl Transport for NullTransport {
    fn name(&self) -> &str {
        "null"
    }

    fn alloc(&self, bytes: u64) -> Result<SharedMemory, TransportError> {
        hexloom::transport::memfd::alloc(bytes)
    }

    fn cores(&self) -> Result<Vec<Core>, TransportError> {
        Ok(vec![Core {
            number: 0,
            name: "null".to_owned(),
            arch: SimOptions::default().arch,
        }])
    }

    fn open(&self, _at: SessionAt) -> Result<Arc<dyn Connection>, TransportError> {
        Ok(Arc::new(NullConnection::default()))
    }
}

impl Connection for NullConnection {
    fn hw_info(&self) -> Result<HwInfo, TransportError> {
        Ok(SimOptions::default().hw_info())
    }

    fn map(&self, _memory: &SharedMemory, _kind: MapKind) -> Result<(), TransportError> {
        Ok(())
    }

    fn unmap(&self, _fd: u32, _bytes: u64) -> Result<(), TransportError> {
        Ok(())
    }

    fn create_queue(&self, _depth: u32) -> Result<u64, TransportError> {
        Ok(1)
    }

    fn start(&self, start: &StartRequest) -> Result<(), TransportError> {
        start.check().map_err(TransportError::Refused)
    }

    fn stop(&self) -> Result<(), TransportError> {
        Ok(())
    }

    fn forget(&self, _fd: u32) -> Result<(), TransportError> {
        Ok(())
    }

    fn count(&self, _events: &CountedEvents) -> Result<(), TransportError> {
        Err(TransportError::Refused(Status::Unsupported))
    }

    fn write(&self, message: &[u8], _block: BlockRef, _timeout: Duration) -> Result<(), TransportError> {
        let request = BatchRequest::read_from_bytes(message);
        let request = request.map_err(|_| TransportError::Refused(Status::Truncated))?;
        lock(&self.replies).push_back(BatchReply {
            n_ops_done: request.n_ops,
            ..BatchReply::new(request.seq, Status::Ok)
        });
        Ok(())
    }

    fn read(&self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportError> {
        let reply = lock(&self.replies)
            .pop_front()
            .ok_or(TransportError::Timeout(timeout))?;
        let bytes = reply.as_bytes();
        let len = bytes.len().min(message.len());
        message[..len].copy_from_slice(&bytes[..len]);
        Ok(bytes.len())
    }

    fn close(&self) {}
}
