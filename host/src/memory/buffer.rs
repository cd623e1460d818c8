//! One shared allocation, named by its fd, with copies in and out.

use std::fmt;
use std::sync::{Arc, Weak};

use hexloom_abi::BufferDesc;
use hexloom_abi::limits::GUARD_BYTES;

use crate::error::MapError;
use crate::session::Shared;
use crate::transport::SharedMemory;

/// A shared allocation of a session. Clones name the same memory; the last one gives it back, after taking back its
/// mappings in the session.
///
/// The DSP reads and writes the memory while a batch that uses it is in flight. Copies made then see or cause torn
/// data, never undefined behaviour: no reference into the memory is handed out by this type.
#[derive(Clone)]
pub struct Buffer {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    memory: SharedMemory,
    /// Bytes asked for; the allocation has the guard and page rounding beyond.
    bytes: u64,
    generation: u64,
    session: Weak<Shared>,
}

impl Buffer {
    pub(crate) fn new(session: &Arc<Shared>, name: &str, bytes: u64) -> Result<Self, MapError> {
        let failed = |source| MapError::Alloc {
            name: name.to_owned(),
            bytes,
            source,
        };
        let total = bytes.checked_add(GUARD_BYTES).ok_or_else(|| {
            failed(crate::transport::TransportError::Call {
                call: "alloc",
                reason: "size overflows".to_owned(),
                code: 0,
            })
        })?;
        let memory = session.transport().alloc(total).map_err(failed)?;
        Ok(Self {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                memory,
                bytes,
                generation: session.next_generation(),
                session: Arc::downgrade(session),
            }),
        })
    }

    /// What the buffer is for, in messages.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Usable bytes, the guard not counted.
    pub fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// The descriptor that names it.
    pub fn fd(&self) -> u32 {
        self.inner.memory.fd()
    }

    /// Address of the first byte on the host, valid as long as a clone of the buffer lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.memory.as_ptr().as_ptr()
    }

    /// Copies `data` to `offset`.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), MapError> {
        let to = self.range(offset, data.len())?;
        // SAFETY: `range` has found `data.len()` bytes from there inside the allocation; `data` is private memory.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        Ok(())
    }

    /// Copies `data.len()` bytes from `offset`.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), MapError> {
        let from = self.range(offset, data.len())?;
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    /// The buffer's line in a batch.
    pub(crate) fn desc(&self) -> BufferDesc {
        BufferDesc {
            bytes: self.inner.memory.bytes(),
            generation: self.inner.generation,
            fd: self.fd(),
            ..BufferDesc::default()
        }
    }

    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.inner.memory
    }

    /// Address of `len` bytes at `offset`, if they lie inside.
    pub(crate) fn range(&self, offset: u64, len: usize) -> Result<*mut u8, MapError> {
        let end = offset.saturating_add(len as u64);
        if end > self.inner.bytes {
            return Err(MapError::Range {
                name: self.inner.name.clone(),
                offset,
                end,
                bytes: self.inner.bytes,
            });
        }
        Ok(self.inner.memory.as_ptr().as_ptr().wrapping_add(offset as usize))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.unmap(self.memory.fd());
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}, fd {}, {} bytes)", self.name(), self.fd(), self.bytes())
    }
}
