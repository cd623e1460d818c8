//! What hexloom's host and DSP halves agree on: wire structures, codes, layout arithmetic and checked views.
//!
//! A batch crosses the queue as one [`BatchRequest`] plus one *block* of shared memory that holds its buffer, tensor and
//! op descriptors and room for profile and trace records. The DSP answers each request with exactly one [`BatchReply`].
//! Nothing here allocates, and nothing here knows an operating system: the crate is read by both sides, so it holds
//! only what both must compute alike. See `docs/abi.md` for the layout in pictures.
//!
//! Reading order: [`code`] (numbers), [`message`], [`descriptor`], [`layout`], [`view`], then the rules that both
//! sides apply to an op: [`tile`], [`window`], [`recurrence`], [`support`], [`scratch`], [`inplace`], [`mod@unit`].
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

pub mod code;
pub mod control;
pub mod descriptor;
pub mod fastrpc;
pub mod fence;
pub mod inplace;
pub mod layout;
pub mod limits;
pub mod message;
pub mod op;
pub mod profile;
pub mod recurrence;
pub mod scratch;
pub mod support;
pub mod tile;
pub mod unit;
pub mod view;
pub mod window;

pub use code::{DType, DTypeCode, OpCode, Opcode, Status, StatusCode};
pub use descriptor::{BufferDesc, NO_TENSOR, OpDesc, TensorDesc};
pub use fence::{AllreduceParams, FenceRef, FenceSlot, GroupParams};
pub use layout::BlockLayout;
pub use message::{BatchReply, BatchRequest, StartRequest};
pub use op::Op;
pub use profile::{BatchProgress, OpProfile, TraceRecord};
pub use view::BatchView;
