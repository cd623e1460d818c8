//! Shared memory as memfd: one host mapping here, a second one for the DSP side in [`DspMapping`].

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use hexloom::transport::{SharedMemory, TransportError};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const PAGE_BYTES: u64 = 4096;

/// Allocates zeroed shared memory, rounded up to pages.
pub(crate) fn alloc(bytes: u64) -> Result<SharedMemory, TransportError> {
    let bytes = bytes.max(1).checked_next_multiple_of(PAGE_BYTES);
    let bytes = bytes.ok_or_else(|| failed("alloc", rustix::io::Errno::NOMEM))?;
    let fd = memfd_create("hexloom", MemfdFlags::CLOEXEC).map_err(|errno| failed("memfd_create", errno))?;
    ftruncate(&fd, bytes).map_err(|errno| failed("ftruncate", errno))?;
    let ptr = map(fd.as_fd(), bytes).map_err(|errno| failed("mmap", errno))?;
    let number = fd.as_raw_fd() as u32;
    let address = ptr.as_ptr() as usize;
    let release = move || {
        unmap(address, bytes);
        drop(fd);
    };
    // SAFETY: `map` gave `bytes` readable and writable bytes, which only `release` unmaps.
    Ok(unsafe { SharedMemory::new(ptr, bytes, number, release) })
}

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
        unmap(self.address, self.bytes);
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

fn map(fd: BorrowedFd<'_>, bytes: u64) -> rustix::io::Result<NonNull<u8>> {
    let len = usize::try_from(bytes).map_err(|_| rustix::io::Errno::NOMEM)?;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
    let ptr = unsafe {
        mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            fd,
            0,
        )
    }?;
    NonNull::new(ptr.cast()).ok_or(rustix::io::Errno::NOMEM)
}

fn unmap(address: usize, bytes: u64) {
    // SAFETY: address and length are those of a mapping of ours, unmapped once, by its owner's drop.
    if let Err(errno) = unsafe { munmap(address as *mut _, bytes as usize) } {
        log::error!("munmap of {bytes} bytes: {errno}");
    }
}

pub(crate) fn failed(call: &'static str, errno: rustix::io::Errno) -> TransportError {
    TransportError::Call {
        call,
        reason: errno.to_string(),
        code: errno.raw_os_error(),
    }
}
