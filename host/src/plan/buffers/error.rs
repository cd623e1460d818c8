//! Why tensors cannot get buffers.

/// A tensor that can never be mapped, or limits that the architecture cannot meet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BufferPlanError {
    /// The tensor is larger than one mapping can be.
    #[error(
        "tensor `{tensor}` needs {bytes} bytes, but v{arch} maps at most {limit_bytes} at once; split the tensor or quantise it further"
    )]
    TooLarge {
        /// Its name.
        tensor: String,
        /// Bytes it needs.
        bytes: u64,
        /// Largest mapping of the architecture.
        limit_bytes: u64,
        /// The architecture.
        arch: u32,
    },
    /// The tensor is larger than all of the window that is left beside the pinned buffer.
    #[error(
        "tensor `{tensor}` needs {bytes} bytes, but the window has {budget_bytes} beside the queue; raise the window or split the tensor"
    )]
    OverBudget {
        /// Its name.
        tensor: String,
        /// Bytes it needs.
        bytes: u64,
        /// Bytes of the window net of the pinned buffer.
        budget_bytes: u64,
    },
    /// Buffers outside the window were asked for.
    #[error("v{arch} has no mappings outside the 32-bit window, v81 and later do; plan without extended buffers")]
    NoExtended {
        /// The architecture.
        arch: u32,
    },
    /// The cap holds no tensor.
    #[error("a buffer cap of {cap_bytes} bytes holds no line of 128; raise it")]
    Cap {
        /// The cap as given.
        cap_bytes: u64,
    },
}
