//! Memory that host and DSP share: buffers, and where tensors lie in them.
//!
//! [`Buffer`] is one shared allocation. [`layout`] plans weights and KV caches by layer; [`compute`] plans what a graph
//! computes. Both planners are pure; buffers are made from their plans.

mod buffer;
pub mod compute;
pub mod layout;

pub use buffer::Buffer;
pub(crate) use buffer::BufferKind;
