//! Transfers by an engine beside the threads: weights come into scratch while kernels compute.
//!
//! An [`Engine`] moves the bytes of a [`Transfer`]. Each thread has a channel of its own, which carries its transfers out in
//! an order of its own but reports them done in the order in which they were pushed. A platform without an engine has none,
//! and kernels then read weights where they lie, with the same bits.
//!
//! The engine reads memory, not the caches: what a transfer reads must have been cleaned, and it must stay as it is until
//! the transfer is done, because nothing says when the engine looks.
//!
//! Reading order: this file, [`descriptor`] (what the hardware reads), [`split`] (transfers beyond its limits), [`ring`]
//! (an engine out of descriptors), `device` (the instructions), [`stream`] (what kernels read from).

pub mod descriptor;
#[cfg(target_arch = "hexagon")]
pub mod device;
pub mod ring;
pub mod split;
pub mod stream;

use hexloom_abi::Status;

/// Rows of bytes to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Address of the first byte to read, of 64 bits: it may be one that no pointer reaches, so it is never followed.
    pub source: u64,
    /// Address of the first byte to write.
    pub target: u64,
    /// Bytes of a row.
    pub row_bytes: u32,
    /// Rows.
    pub rows: u32,
    /// Bytes from one row to the next at the source.
    pub source_stride: u32,
    /// Bytes from one row to the next at the target.
    pub target_stride: u32,
}

/// A transfer's number on its channel, counted in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ticket(pub(crate) u32);

/// Why a transfer was not taken or did not end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DmaError {
    /// The channel's ring is full: wait for an earlier transfer, then push again. Nothing was begun.
    Full,
    /// The transfer needs more descriptors than a channel has. Nothing was begun.
    TooLong,
    /// The engine cannot reach the source or the target. Nothing was begun.
    Unreachable,
    /// There is no such channel. Nothing was begun.
    NoChannel,
    /// The engine reports an error; what it wrote is unknown.
    Fault,
    /// The transfer was not done at the deadline and may still write.
    Timeout,
}

/// An engine with a channel for each thread of the session.
///
/// A channel belongs to the thread of its number: only that thread calls with it.
pub trait Engine: Sync {
    /// Begins a transfer behind those already on the channel.
    ///
    /// # Safety
    /// Until the transfer is done or the engine has been reset:
    /// - the bytes at the source are not written;
    /// - the bytes at the target are writable, and nobody else reads or writes them;
    /// - the engine itself is not moved.
    unsafe fn push(&self, channel: usize, transfer: &Transfer) -> Result<Ticket, DmaError>;

    /// Whether a transfer and all before it on its channel are done; their bytes are visible then.
    fn is_done(&self, channel: usize, ticket: Ticket) -> Result<bool, DmaError>;

    /// Waits until a transfer and all before it on its channel are done, at most to the engine's deadline.
    fn wait(&self, channel: usize, ticket: Ticket) -> Result<(), DmaError>;
}

impl Transfer {
    /// Contiguous bytes.
    pub fn linear(source: u64, target: u64, bytes: u32) -> Self {
        Self {
            source,
            target,
            row_bytes: bytes,
            rows: 1,
            source_stride: bytes,
            target_stride: bytes,
        }
    }

    /// Whether there is nothing to move.
    pub fn is_empty(&self) -> bool {
        self.row_bytes == 0 || self.rows == 0
    }

    /// One past the last byte at the source and at the target; `None` when an address overflows.
    pub(crate) fn ends(&self) -> Option<(u64, u64)> {
        let end = |start: u64, stride: u32| {
            let last = u64::from(self.rows.checked_sub(1)?).checked_mul(u64::from(stride))?;
            start.checked_add(last)?.checked_add(u64::from(self.row_bytes))
        };
        if self.is_empty() {
            return Some((self.source, self.target));
        }
        Some((
            end(self.source, self.source_stride)?,
            end(self.target, self.target_stride)?,
        ))
    }
}

impl From<DmaError> for Status {
    fn from(error: DmaError) -> Self {
        match error {
            DmaError::Timeout => Self::Timeout,
            DmaError::Full | DmaError::TooLong | DmaError::Unreachable | DmaError::NoChannel | DmaError::Fault => {
                Self::Internal
            }
        }
    }
}
