//! Memory that host and DSP share: buffers, and where tensors lie in them.
//!
//! [`Buffer`] is one shared allocation; [`compute`] plans what a graph computes. Weights and KV caches are planned by
//! [`crate::plan::buffers`].

mod buffer;
pub mod compute;

pub use buffer::Buffer;
pub(crate) use buffer::BufferKind;
