//! What buffers of one kind can be: alignment, size of a chunk, number of chunks.

use super::error::PlanError;

/// Largest size or offset the planner works with: half the range, so that sums cannot wrap.
pub const MAX_BYTES: u64 = u64::MAX / 4;

/// Limits of one buffer kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Every offset is a multiple of this; a power of two.
    pub alignment: u64,
    /// A chunk grows to at most this, unless a single tensor is larger.
    pub chunk_bytes: u64,
    /// A tensor larger than this cannot be placed at all.
    pub buffer_bytes: u64,
    /// Most chunks of this kind.
    pub max_chunks: usize,
    /// Whether the last chunk takes whatever is left, however much (as ggml does) or planning fails.
    pub last_chunk_unbounded: bool,
}

impl Limits {
    /// One endless chunk.
    pub const fn unlimited(alignment: u64) -> Self {
        Self::chunked(alignment, MAX_BYTES)
    }

    /// Up to 16 chunks of `chunk_bytes`; a larger tensor gets a chunk of its own size.
    pub const fn chunked(alignment: u64, chunk_bytes: u64) -> Self {
        Self {
            alignment,
            chunk_bytes: if chunk_bytes > MAX_BYTES {
                MAX_BYTES
            } else {
                chunk_bytes
            },
            buffer_bytes: MAX_BYTES,
            max_chunks: 16,
            last_chunk_unbounded: false,
        }
    }

    /// The same limits with an endless last chunk, as ggml has it.
    pub const fn with_unbounded_last(mut self) -> Self {
        self.last_chunk_unbounded = true;
        self
    }

    /// `bytes` rounded up to the alignment; `None` past [`MAX_BYTES`].
    pub fn round(&self, bytes: u64) -> Option<u64> {
        let mask = self.alignment - 1;
        bytes.checked_add(mask).map(|b| b & !mask).filter(|&b| b <= MAX_BYTES)
    }

    /// Refuses limits that no buffer can meet.
    ///
    /// # Errors
    /// [`PlanError::Alignment`].
    pub fn check(&self, kind: usize) -> Result<(), PlanError> {
        if self.alignment.is_power_of_two() && self.alignment <= MAX_BYTES {
            Ok(())
        } else {
            Err(PlanError::Alignment {
                kind,
                alignment: self.alignment,
            })
        }
    }
}
