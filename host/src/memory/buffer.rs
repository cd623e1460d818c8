//! One shared allocation, named by its fd, with copies in and out, and which sessions see it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hexloom_abi::BufferDesc;
use hexloom_abi::descriptor::BUFFER_EXTENDED;
use hexloom_abi::layout::align_up;
use hexloom_abi::limits::{GUARD_BYTES, map_bytes_max};

use crate::error::MapError;
use crate::plan::buffers::PAGE_BYTES;
use crate::session::Shared;
use crate::transport::{MapKind, SharedMemory, Transport, TransportError};

/// A shared allocation of a session. Clones name the same memory; the last one gives it back, after taking back its
/// mappings in every session that saw it.
///
/// A graph of another session may use the buffer too: that session then has a mapping of its own, which is never
/// pinned. Prepared graphs hold the buffers that they use and are dropped only when no batch is in flight, so nothing
/// is unmapped under a batch, and nothing is unmapped twice.
///
/// The DSP reads and writes the memory while a batch that uses it is in flight. Copies made then see or cause torn
/// data, never undefined behaviour: no reference into the memory is handed out by this type.
#[derive(Clone)]
pub struct Buffer {
    inner: Arc<Inner>,
}

/// What a buffer is for, which decides how it is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BufferKind {
    /// Tensors: mapped into the window when a batch needs them.
    Tensors,
    /// Weights outside the window, which kernels reach by DMA alone (v81 and later).
    Extended,
    /// Queue and fence slots of one connection, which sees them as long as it is open; in other sessions as `Tensors`.
    Pinned,
}

struct Inner {
    name: String,
    memory: SharedMemory,
    kind: BufferKind,
    /// Bytes asked for; the allocation has the guard and page rounding beyond.
    bytes: u64,
    generation: u64,
    /// Sessions that have had it mapped.
    seen_by: Mutex<Vec<Weak<Shared>>>,
}

/// Never the same for two buffers of this process, so that a recycled fd hits no stale mapping in any session.
static GENERATION: AtomicU64 = AtomicU64::new(1);

impl Buffer {
    /// Allocates `bytes` for tensors, with the guard behind them, within what `session` can map.
    pub(crate) fn new(session: &Shared, name: &str, bytes: u64, kind: BufferKind) -> Result<Self, MapError> {
        let arch = session.hw().arch;
        let limit = match kind {
            BufferKind::Extended => map_bytes_max(arch),
            BufferKind::Tensors | BufferKind::Pinned => map_bytes_max(arch).min(session.window_bytes()),
        };
        // A lone tensor that takes all that can be mapped goes without: nothing can lie behind it.
        let guarded = bytes
            .checked_add(GUARD_BYTES)
            .and_then(|total| align_up(total, PAGE_BYTES));
        let total = guarded
            .filter(|&total| total <= limit)
            .or_else(|| align_up(bytes, PAGE_BYTES));
        let total = total
            .filter(|&total| total <= limit)
            .ok_or_else(|| MapError::TooLarge {
                name: name.to_owned(),
                bytes,
                limit,
                arch,
            })?;
        let allocated = session.transport().alloc(total);
        let memory = allocated.map_err(|source| MapError::Alloc {
            name: name.to_owned(),
            bytes,
            source,
        })?;
        Ok(Self::with_memory(name, memory, bytes, kind))
    }

    /// Allocates exactly `bytes` for the queue and fence slots of a connection.
    pub(crate) fn pinned(transport: &dyn Transport, bytes: u64) -> Result<Self, TransportError> {
        let memory = transport.alloc(bytes)?;
        Ok(Self::with_memory("queue and fences", memory, bytes, BufferKind::Pinned))
    }

    fn with_memory(name: &str, memory: SharedMemory, bytes: u64, kind: BufferKind) -> Self {
        Self {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                memory,
                kind,
                bytes,
                generation: GENERATION.fetch_add(1, Ordering::Relaxed),
                seen_by: Mutex::new(Vec::new()),
            }),
        }
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

    /// Whether it is mapped outside the 32-bit window.
    pub fn is_extended(&self) -> bool {
        self.inner.kind == BufferKind::Extended
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
            flags: if self.is_extended() { BUFFER_EXTENDED } else { 0 },
            ..BufferDesc::default()
        }
    }

    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.inner.memory
    }

    /// Bytes that a mapping takes of the 32-bit window.
    pub(crate) fn window_bytes(&self) -> u64 {
        match self.inner.kind {
            BufferKind::Extended => 0,
            BufferKind::Tensors | BufferKind::Pinned => self.inner.memory.bytes(),
        }
    }

    /// How a session that does not own it as its pinned buffer maps it.
    pub(crate) fn map_kind(&self) -> MapKind {
        match self.inner.kind {
            BufferKind::Extended => MapKind::Extended,
            BufferKind::Tensors | BufferKind::Pinned => MapKind::Lazy,
        }
    }

    /// Notes that `session` has it mapped, so that the last clone takes that back.
    pub(crate) fn seen_by(&self, session: &Weak<Shared>) {
        let mut seen_by = self.inner.seen_by.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen_by.iter().any(|known| known.ptr_eq(session)) {
            seen_by.retain(|known| known.strong_count() > 0);
            seen_by.push(session.clone());
        }
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

/// The host takes the mappings back before the descriptor is closed.
impl Drop for Inner {
    fn drop(&mut self) {
        let seen_by = self.seen_by.get_mut().unwrap_or_else(PoisonError::into_inner);
        for session in seen_by.drain(..).filter_map(|session| session.upgrade()) {
            session.unmap(self.memory.fd());
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}, fd {}, {} bytes)", self.name(), self.fd(), self.bytes())
    }
}
