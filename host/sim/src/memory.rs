//! The DSP side's own view of shared memory: a second mapping of the same descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hexloom::transport::memfd::{failed, map, unmap};
use hexloom::transport::{SharedMemory, TransportError};

/// A mapping on the DSP side; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct DspMapping {
    address: usize,
    bytes: u64,
}

impl DspMapping {
    /// Maps `bytes` of what `fd` names.
    pub(crate) fn new(fd: &OwnedFd, bytes: u64) -> Result<Self, TransportError> {
        let ptr = map(fd.as_fd(), bytes).map_err(|errno| failed("mmap", errno))?;
        Ok(Self {
            address: ptr.as_ptr() as usize,
            bytes,
        })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for DspMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, made by `map`, and drop runs once.
        unsafe { unmap(self.address, self.bytes) };
    }
}

/// A second descriptor for the same memory, as a kernel driver keeps one while memory is mapped for a session.
pub(crate) fn duplicate(memory: &SharedMemory) -> Result<OwnedFd, TransportError> {
    // SAFETY: the descriptor belongs to `memory`, which is borrowed for the call.
    let fd = unsafe { BorrowedFd::borrow_raw(memory.fd() as i32) };
    fd.try_clone_to_owned().map_err(|error| TransportError::Call {
        call: "dup",
        reason: error.to_string(),
        code: error.raw_os_error().unwrap_or(0),
    })
}
