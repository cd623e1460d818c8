//! The interface to a DSP, shaped like FastRPC: shared allocations named by fd, maps, a few method calls, one queue.
//!
//! `sim`, the emulator and a phone implement the same two traits, so that everything above them is tested on all three.
//! Rules that implementations keep and callers rely on:
//! - a [`SharedMemory`] stays mapped on the host until it is dropped, whatever happens to connections;
//! - every call with a `timeout` returns within it (plus scheduling), with [`TransportError::Timeout`] if nothing came;
//! - once a connection has answered [`TransportError::Dead`], every later call does so too, except the calls that give
//!   things back, which succeed.

pub mod aee;
#[cfg(target_os = "linux")]
pub mod memfd;

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hexloom_abi::control::CountedEvents;
use hexloom_abi::{StartRequest, Status};

/// A way to one or more DSPs.
pub trait Transport: Send + Sync {
    /// Name for messages: `sim`, `emu`, `fastrpc`.
    fn name(&self) -> &str;

    /// Allocates shared memory, zeroed, page-aligned, at least `bytes` long (rounded up to whole pages).
    fn alloc(&self, bytes: u64) -> Result<SharedMemory, TransportError>;

    /// The DSP cores there are, by number.
    fn cores(&self) -> Result<Vec<Core>, TransportError>;

    /// Opens a session; nothing runs there until [`Connection::start`].
    fn open(&self, at: SessionAt) -> Result<Arc<dyn Connection>, TransportError>;
}

/// One open session.
pub trait Connection: Send + Sync {
    /// What the DSP has.
    fn hw_info(&self) -> Result<HwInfo, TransportError>;

    /// Makes memory known to the session's address space (`fastrpc_mmap`).
    fn map(&self, memory: &SharedMemory, kind: MapKind) -> Result<(), TransportError>;
    /// Takes that back (`fastrpc_munmap`).
    fn unmap(&self, fd: u32, bytes: u64) -> Result<(), TransportError>;

    /// Creates the queue for up to `depth` outstanding requests and gives its identity for [`StartRequest::queue_id`].
    fn create_queue(&self, depth: u32) -> Result<u64, TransportError>;

    /// Starts the DSP side.
    fn start(&self, start: &StartRequest) -> Result<(), TransportError>;
    /// Stops the DSP side, which takes back all its mappings.
    fn stop(&self) -> Result<(), TransportError>;
    /// Tells the DSP side to drop its mappings of an fd.
    fn forget(&self, fd: u32) -> Result<(), TransportError>;

    /// Lets the DSP's performance counters count events until the session stops; profiled batches carry the counts.
    fn count(&self, events: &CountedEvents) -> Result<(), TransportError>;

    /// Sends one request with its block.
    fn write(&self, message: &[u8], block: BlockRef, timeout: Duration) -> Result<(), TransportError>;
    /// Receives one reply into `message` and gives its length, which may be more than fits.
    fn read(&self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportError>;

    /// Closes queue and session. Later calls answer [`TransportError::Dead`].
    fn close(&self);
}

/// When a wait of `timeout` that begins now ends. One that no clock can count ends in a year.
pub fn ends_at(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + YEAR)
}

/// A DSP core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Core {
    /// Its number, from 0.
    pub number: u32,
    /// The platform's name for it, for instance `cdsp`.
    pub name: String,
    /// Architecture number, for instance 73.
    pub arch: u32,
}

/// Where a session is: several may be open on one core, each a process of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SessionAt {
    /// Number of the core.
    pub core: u32,
    /// Number of the session on it; those above 0 are reserved with the platform first.
    pub session: u32,
}

/// How memory is made known to a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapKind {
    /// Mapped at once and for the session's life: the queue-and-fence buffer.
    Pinned,
    /// Recorded; the DSP maps it when a batch needs it.
    Lazy,
    /// As lazy, outside the 32-bit window (v81 and later).
    Extended,
    /// As extended, mapped at once: the second try of a platform that could not record it.
    ExtendedNow,
}

/// What a DSP has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HwInfo {
    /// Architecture number, for instance 73.
    pub arch: u32,
    /// Hardware threads that kernels can use.
    pub n_threads: u32,
    /// Matrix units.
    pub n_hmx: u32,
    /// Scratch (VTCM) bytes.
    pub scratch_bytes: u64,
    /// Bytes of the 32-bit window that mappings can fill.
    pub window_bytes: u64,
    /// Whether the DSP side maps buffers outside that window.
    pub has_extended: bool,
}

/// The block of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRef {
    /// fd of the buffer it lies in.
    pub fd: u32,
    /// Byte offset in that buffer.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A shared allocation, mapped on the host; given back when dropped.
pub struct SharedMemory {
    ptr: NonNull<u8>,
    bytes: u64,
    fd: u32,
    owner: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// Why a transport call failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// Nothing came in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The DSP process is gone.
    #[error("the DSP session is gone: {0}")]
    Dead(Death),
    /// The DSP side answered with a status.
    #[error("the DSP refused: {0}")]
    Refused(Status),
    /// The platform's own code, decoded.
    #[error("{call} failed: {reason} (code {code:#x})")]
    Call {
        /// The call.
        call: &'static str,
        /// What the code means.
        reason: String,
        /// The code.
        code: i32,
    },
}

impl TransportError {
    /// Whether it is the platform's error `code`.
    pub fn is_code(&self, wanted: i32) -> bool {
        matches!(self, Self::Call { code, .. } if *code == wanted)
    }
}

/// How the DSP process ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct Death {
    /// What ended it, as far as the platform tells.
    pub cause: DeathCause,
    /// The same in words, with what the process last said.
    pub what: String,
}

/// What ends a DSP process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeathCause {
    /// The platform does not tell, or the session was closed.
    Unknown,
    /// It met an instruction that the processor does not have.
    IllegalInstruction,
    /// It touched memory that is not there.
    BadAddress,
    /// It ended itself with this code.
    Exit(i32),
    /// Somebody ended it, with this signal.
    Signal(i32),
}

impl From<String> for Death {
    fn from(what: String) -> Self {
        Self {
            cause: DeathCause::Unknown,
            what,
        }
    }
}

impl From<&str> for Death {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

impl SharedMemory {
    /// Wraps an allocation.
    ///
    /// # Safety
    /// - `bytes` bytes at `ptr` are readable and writable until `release` is called;
    /// - nobody else frees or unmaps them.
    pub unsafe fn new(ptr: NonNull<u8>, bytes: u64, fd: u32, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self {
            ptr,
            bytes,
            fd,
            owner: Some(Box::new(release)),
        }
    }

    /// Address of the first byte on the host.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The descriptor that names it.
    pub fn fd(&self) -> u32 {
        self.fd
    }

    /// Copies `data` to `offset`.
    ///
    /// # Panics
    /// When the range leaves the allocation.
    pub fn write(&self, offset: u64, data: &[u8]) {
        let to = self.address(offset, data.len());
        // SAFETY: `address` has found the range inside the allocation; `data` is private memory.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }

    /// Copies `data.len()` bytes from `offset`.
    ///
    /// # Panics
    /// When the range leaves the allocation.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        let from = self.address(offset, data.len());
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), data.len()) };
    }

    /// Address of `len` bytes at `offset`.
    ///
    /// # Panics
    /// When the range leaves the allocation.
    pub(crate) fn address(&self, offset: u64, len: usize) -> *mut u8 {
        let end = offset.checked_add(len as u64);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{len} bytes at {offset} of a shared allocation of {}",
            self.bytes
        );
        self.ptr.as_ptr().wrapping_add(offset as usize)
    }
}

// SAFETY: the memory is shared with another processor by design; access goes through raw pointers and copies only.
unsafe impl Send for SharedMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedMemory {}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if let Some(release) = self.owner.take() {
            release();
        }
    }
}

impl std::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedMemory(fd {}, {} bytes)", self.fd, self.bytes)
    }
}
