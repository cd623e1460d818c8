//! What buffers for long-lived tensors can be: the cap, the budget, and what the architecture can map.

use hexloom_abi::layout::align_up;
use hexloom_abi::limits::{GUARD_BYTES, LINE_BYTES, has_extended_mappings, map_bytes_max};

use super::{BufferPlanError, TensorNeed};
use crate::plan::MAX_BYTES;

/// Mappings are whole pages.
pub const PAGE_BYTES: u64 = 4096;
/// Buffers of the default cap that fill the budget: small enough that holes are soon filled again, large enough that the
/// mapping table's 64 entries suffice when buffers are not quite full.
const BUFFERS_TO_FILL: u64 = 32;

/// Limits of one plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferLimits {
    /// Architecture of the DSP: 68 to 81.
    pub arch: u32,
    /// Usable bytes of a buffer at most, unless one tensor alone is larger.
    pub cap_bytes: u64,
    /// Bytes of the 32-bit window that can be mapped, net of the session's pinned buffer.
    pub budget_bytes: u64,
    /// Whether the buffers are mapped outside the 32-bit window, so that the budget does not hold for them.
    pub extended: bool,
}

impl BufferLimits {
    /// The default cap for a window with `budget_bytes` net of the pinned buffer: a thirty-second of it, in
    /// whole MiB, at least one.
    pub const fn new(arch: u32, budget_bytes: u64) -> Self {
        let fill = (budget_bytes / BUFFERS_TO_FILL) >> 20 << 20;
        Self {
            arch,
            cap_bytes: if fill == 0 { 1 << 20 } else { fill },
            budget_bytes,
            extended: false,
        }
    }

    /// The same with another cap.
    pub const fn with_cap(mut self, cap_bytes: u64) -> Self {
        self.cap_bytes = cap_bytes;
        self
    }

    /// The same for buffers outside the 32-bit window.
    pub const fn outside_window(mut self) -> Self {
        self.extended = true;
        self
    }

    /// Largest mapping that can be made.
    pub fn mapping_bytes_max(&self) -> u64 {
        let arch = map_bytes_max(self.arch).min(MAX_BYTES);
        if self.extended {
            arch
        } else {
            arch.min(self.budget_bytes)
        }
    }

    /// Refuses limits that the architecture cannot meet; gives the cap in force, whole lines that can be mapped.
    pub(super) fn check(&self) -> Result<u64, BufferPlanError> {
        if self.extended && !has_extended_mappings(self.arch) {
            return Err(BufferPlanError::NoExtended { arch: self.arch });
        }
        let most = self.mapping_bytes_max().saturating_sub(GUARD_BYTES) / PAGE_BYTES * PAGE_BYTES;
        let cap = self.cap_bytes.min(most) / LINE_BYTES * LINE_BYTES;
        // A window too small for anything is told by the first tensor that does not fit.
        match self.cap_bytes < LINE_BYTES {
            true => Err(BufferPlanError::Cap {
                cap_bytes: self.cap_bytes,
            }),
            false => Ok(cap),
        }
    }

    /// Bytes of a tensor in whole lines; 0 for views.
    pub(super) fn round(&self, tensor: &TensorNeed<'_>) -> Result<u64, BufferPlanError> {
        if tensor.view || tensor.bytes == 0 {
            return Ok(0);
        }
        let mapped = align_up(tensor.bytes, PAGE_BYTES).unwrap_or(u64::MAX);
        let arch_bytes = map_bytes_max(self.arch).min(MAX_BYTES);
        if mapped > arch_bytes {
            return Err(BufferPlanError::TooLarge {
                tensor: tensor.name.to_owned(),
                bytes: tensor.bytes,
                limit_bytes: arch_bytes,
                arch: self.arch,
            });
        }
        if !self.extended && mapped > self.budget_bytes {
            return Err(BufferPlanError::OverBudget {
                tensor: tensor.name.to_owned(),
                bytes: tensor.bytes,
                budget_bytes: self.budget_bytes,
            });
        }
        // Below `MAX_BYTES`, so rounding cannot wrap.
        Ok(tensor.bytes.next_multiple_of(LINE_BYTES))
    }

    /// Guard of a buffer with `bytes`: none when the largest mapping leaves no room.
    pub(super) fn guard(&self, bytes: u64) -> u64 {
        let whole = align_up(bytes.saturating_add(GUARD_BYTES), PAGE_BYTES);
        match whole {
            Some(whole) if whole <= self.mapping_bytes_max() => GUARD_BYTES,
            _ => 0,
        }
    }
}
