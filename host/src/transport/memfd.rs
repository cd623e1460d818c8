//! Shared memory as memfd: what transports use where no vendor library allocates.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{SharedMemory, TransportError};

const PAGE_BYTES: u64 = 4096;

/// Allocates zeroed shared memory, rounded up to pages.
pub fn alloc(bytes: u64) -> Result<SharedMemory, TransportError> {
    let bytes = bytes.max(1).checked_next_multiple_of(PAGE_BYTES);
    let bytes = bytes.ok_or_else(|| failed("alloc", rustix::io::Errno::NOMEM))?;
    let fd = memfd_create("hexloom", MemfdFlags::CLOEXEC).map_err(|errno| failed("memfd_create", errno))?;
    ftruncate(&fd, bytes).map_err(|errno| failed("ftruncate", errno))?;
    let ptr = map(fd.as_fd(), bytes).map_err(|errno| failed("mmap", errno))?;
    let number = fd.as_raw_fd() as u32;
    let address = ptr.as_ptr() as usize;
    let release = move || {
        // SAFETY: the mapping is this allocation's, and `release` runs once.
        unsafe { unmap(address, bytes) };
        drop(fd);
    };
    // SAFETY: `map` gave `bytes` readable and writable bytes, which only `release` unmaps.
    Ok(unsafe { SharedMemory::new(ptr, bytes, number, release) })
}

/// Maps `bytes` of a descriptor, shared, at an address of the system's choice.
pub fn map(fd: BorrowedFd<'_>, bytes: u64) -> rustix::io::Result<NonNull<u8>> {
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

/// Takes a mapping back.
///
/// # Safety
/// `address` and `bytes` are those of a mapping made by [`map`], which nothing uses any more.
pub unsafe fn unmap(address: usize, bytes: u64) {
    // SAFETY: the caller's promise.
    if let Err(errno) = unsafe { munmap(address as *mut _, bytes as usize) } {
        log::error!("munmap of {bytes} bytes: {errno}");
    }
}

/// The error of a failed system call.
pub fn failed(call: &'static str, errno: rustix::io::Errno) -> TransportError {
    TransportError::Call {
        call,
        reason: errno.to_string(),
        code: errno.raw_os_error(),
    }
}
