//! ggml's back-end interface, API version 3, as ggml 0.27 has it: plain C structures, declared here from their facts.
//!
//! Version 3 differs from version 2 by two functions for many tensors at once in [`BufferTypeFns`]. ggml itself
//! compares the version in [`Registry`] and refuses another one in a sentence; `ggml` checks what the number does not tell.
//! Functions that may be absent are `Option`s; the types of those that hexloom never provides are left at [`Unused`].

mod backend;
mod graph;
mod tensor;

pub use backend::{
    Backend, BackendFns, Buffer, BufferFns, BufferType, BufferTypeFns, Caps, Device, DeviceFns, Event, Props, Registry,
    RegistryFns, Unused,
};
pub use graph::Graph;
#[cfg(test)]
pub(crate) use tensor::test_tensor;
pub use tensor::{FLAG_COMPUTE, FLAG_OUTPUT, Op, Tensor};

/// The version of the interface.
pub const API_VERSION: i32 = 3;

/// How a graph ended.
pub type Status = i32;
/// Everything computed.
pub const STATUS_SUCCESS: Status = 0;
/// Something failed; the log says what.
pub const STATUS_FAILED: Status = -1;
/// No memory.
pub const STATUS_ALLOC_FAILED: Status = -2;

/// A device with memory of its own, as far as ggml is concerned.
pub const DEVICE_TYPE_GPU: u32 = 1;
/// The buffer holds weights.
pub const USAGE_WEIGHTS: u32 = 1;
