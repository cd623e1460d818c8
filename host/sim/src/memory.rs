//! The DSP side's own view of shared memory: a second mapping of the same descriptors, and for a machine whose caches are
//! not coherent a copy on top.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hexloom::transport::memfd::{failed, map, unmap};
use hexloom::transport::{SharedMemory, TransportError};

use crate::process::Grant;
use crate::shadow::Shadow;

/// Where the window begins for the DMA engine.
pub(crate) const WINDOW_START: u64 = 0x1000_0000;
/// Where mappings outside the window begin for the engine.
const FAR_START: u64 = 1 << 32;

/// A mapping on the DSP side; unmapped and given back when dropped.
pub(crate) struct DspMapping {
    shadow: Option<Shadow>,
    shared: Shared,
    grant: Grant,
}

/// Shared memory, mapped.
#[derive(Debug)]
pub(crate) struct Shared {
    address: usize,
    bytes: u64,
}

impl DspMapping {
    /// Maps what the grant is for; `incoherent` puts a copy between the DSP side and the memory.
    pub(crate) fn new(grant: Grant, incoherent: bool) -> Result<Self, TransportError> {
        let shared = Shared::new(&grant.fd, grant.bytes)?;
        // An extended mapping has no address that the DSP's caches could hold.
        let shadow = match incoherent && !grant.extended {
            true => Some(Shadow::new(&grant.fd, &shared)?),
            false => None,
        };
        Ok(Self { shadow, shared, grant })
    }

    /// Where the DSP side sees the first byte. Of an extended mapping that is an address of the engine, and no pointer.
    pub(crate) fn address(&self) -> u64 {
        if self.grant.extended {
            return self.device_address();
        }
        let shadow = self.shadow.as_ref().map(Shadow::address);
        shadow.unwrap_or(self.shared.address) as u64
    }

    /// Where the DMA engine sees it.
    pub(crate) fn device_address(&self) -> u64 {
        let start = if self.grant.extended { FAR_START } else { WINDOW_START };
        start + self.grant.start
    }

    /// Where the memory itself is, past the DSP's caches.
    pub(crate) fn memory_address(&self) -> u64 {
        self.shared.address as u64
    }

    /// Bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes
    }

    /// Whether it lies outside the window.
    pub(crate) fn is_extended(&self) -> bool {
        self.grant.extended
    }

    /// The copy that the DSP side sees, if there is one.
    pub(crate) fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_ref()
    }
}

impl Shared {
    pub(crate) fn new(fd: &OwnedFd, bytes: u64) -> Result<Self, TransportError> {
        let ptr = map(fd.as_fd(), bytes).map_err(|errno| failed("mmap", errno))?;
        Ok(Self {
            address: ptr.as_ptr() as usize,
            bytes,
        })
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Shared {
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
