//! Descriptors of a block: buffers, tensors and ops. Written by the host, copied once and checked by the DSP, patched by nobody.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::code::{DTypeCode, OpCode};
use crate::limits::{MAX_DIMS, MAX_DSTS, MAX_PARAMS, MAX_SRCS};

/// One shared buffer used by a batch: 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BufferDesc {
    /// Bytes of the whole allocation, guard included; what a mapping covers.
    pub bytes: u64,
    /// Generation given by the host when it allocated the buffer; never reused, so a recycled fd hits no stale mapping.
    pub generation: u64,
    /// File descriptor that names the allocation.
    pub fd: u32,
    /// [`BUFFER_EXTENDED`]; all other bits zero.
    pub flags: u32,
    /// The host's plan: batches of this session from this one to the next that uses the buffer; 0 = unknown. When the
    /// window is full, buffers that are used last go first, those of unknown use by age.
    pub next_use: u32,
    /// Zero.
    pub reserved: u32,
}

/// The buffer is mapped outside the 32-bit window and reached by DMA only.
pub const BUFFER_EXTENDED: u32 = 1;

/// A shaped view into a buffer: 64 bytes.
///
/// `ne` are elements per dimension, innermost first; `nb` are bytes between neighbours of a dimension. For a quantised
/// type `ne[0]` is whole blocks and `nb[0]` the block's bytes. With [`TENSOR_TILED`] the bytes are in the layout of
/// [`crate::tile`] and `nb` is what [`crate::tile::TileLayout::strides`] gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TensorDesc {
    /// First byte, counted from the buffer's start.
    pub offset: u64,
    /// Bytes from the first to one past the last that the view can touch.
    pub bytes: u64,
    /// Element type.
    pub dtype: DTypeCode,
    /// [`TENSOR_WEIGHT`], [`TENSOR_TILED`], [`TENSOR_FENCE`]; all other bits zero.
    pub flags: u32,
    /// Index of the buffer descriptor.
    pub buffer_idx: u16,
    /// Zero.
    pub reserved: [u16; 3],
    /// Elements per dimension.
    pub ne: [u32; MAX_DIMS],
    /// Byte strides per dimension.
    pub nb: [u32; MAX_DIMS],
}

/// Written by the host before the session used it and by nobody since: needs no cache maintenance.
pub const TENSOR_WEIGHT: u32 = 1;
/// Bytes are weight tiles, not rows.
pub const TENSOR_TILED: u32 = 2;
/// The tensor is fence slots: I32 `[32, n]` on whole lines, kept coherent by the ops that use it.
pub const TENSOR_FENCE: u32 = 4;

/// One operation: 128 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpDesc {
    /// What to do.
    pub opcode: OpCode,
    /// Zero.
    pub flags: u32,
    /// Parameters of the op; floats as their bits. `docs/abi.md` lists them per opcode.
    pub params: [u32; MAX_PARAMS],
    /// Indices of tensors read, [`NO_TENSOR`] for an absent operand.
    pub srcs: [u16; MAX_SRCS],
    /// Indices of tensors written.
    pub dsts: [u16; MAX_DSTS],
    /// Zero. Room for a kernel choice made by the host.
    pub reserved: [u32; 7],
}

/// Index of an absent operand.
pub const NO_TENSOR: u16 = 0xffff;

impl OpDesc {
    /// An op with no operands and all parameters zero.
    pub fn new(opcode: OpCode) -> Self {
        Self {
            opcode,
            flags: 0,
            params: [0; MAX_PARAMS],
            srcs: [NO_TENSOR; MAX_SRCS],
            dsts: [NO_TENSOR; MAX_DSTS],
            reserved: [0; 7],
        }
    }
}

crate::layout::assert_layout!(BufferDesc, 32, 8, { bytes: 0, generation: 8, fd: 16, flags: 20, next_use: 24, reserved: 28 });
crate::layout::assert_layout!(TensorDesc, 64, 8, {
    offset: 0, bytes: 8, dtype: 16, flags: 20, buffer_idx: 24, reserved: 26, ne: 32, nb: 48,
});
crate::layout::assert_layout!(OpDesc, 128, 4, {
    opcode: 0, flags: 4, params: 8, srcs: 72, dsts: 92, reserved: 100,
});
