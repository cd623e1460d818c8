//! Numbers that bound every message, in one place because both sides size their memory by them.

/// First word of every request, reply and start message: `HXLM` in memory order.
pub const MAGIC: u32 = u32::from_le_bytes(*b"HXLM");
/// Version of everything in this crate. Any change of a layout, a code's meaning or a weight tile raises it.
pub const VERSION: u16 = 1;

/// Bytes of a cache line of the DSP's level-2 cache: sections, queue slots and fence slots start on one.
pub const LINE_BYTES: u64 = 128;
/// Dimensions of a tensor. `ne[0]` is the innermost.
pub const MAX_DIMS: usize = 4;
/// Operands an op can read.
pub const MAX_SRCS: usize = 10;
/// Operands an op can write.
pub const MAX_DSTS: usize = 4;
/// 32-bit parameters of an op.
pub const MAX_PARAMS: usize = 16;
/// Distinct buffers in one batch.
pub const MAX_BUFFERS: u32 = 16;
/// Tensor descriptors in one batch; indices are 16-bit and `0xffff` means "absent".
pub const MAX_TENSORS: u32 = 8192;
/// Ops in one batch.
pub const MAX_OPS: u32 = 4096;
/// Weights that one `MUL_MAT_NX` multiplies with one activation.
pub const MAX_NX: usize = 4;
/// Elements of an operand, repeated ones included: more than any memory has, and no more than a thread gets through.
pub const MAX_ELEMS: u64 = 1 << 36;
/// DSP threads of a session.
pub const MAX_THREADS: u32 = 10;
/// Trace records of one thread in one batch.
pub const MAX_TRACE_RECORDS: u32 = 65_536;
/// Counters of the performance monitoring unit in an op's profile.
pub const PMU_COUNTERS: usize = 8;
/// Live entries of the DSP's mapping table.
pub const MAX_MAPPINGS: usize = 64;
/// Bytes of a fence slot; a slot shares its line with nothing else.
pub const FENCE_SLOT_BYTES: u64 = 128;
/// Default bytes of the DSP's 32-bit window that a session may fill with mappings (3200 MiB); [`window_bytes`] knows of
/// architectures that have less.
pub const WINDOW_BYTES_DEFAULT: u64 = 3_355_443_200;
/// Trailing bytes that every shared buffer has beyond its last tensor, so that a whole-vector load of a tail stays inside.
pub const GUARD_BYTES: u64 = 4096;

/// Bytes of the 32-bit window that a session of an architecture may fill with mappings: older DSPs have 3000 MiB.
pub const fn window_bytes(arch: u32) -> u64 {
    if arch < 75 { 3000 << 20 } else { WINDOW_BYTES_DEFAULT }
}

/// Most bytes of one mapping on an architecture: older DSPs take a signed 32-bit length.
pub const fn map_bytes_max(arch: u32) -> u64 {
    if arch < 75 { 1 << 31 } else { u64::MAX }
}

/// Whether an architecture has mappings outside the 32-bit window, which only its DMA engine reaches.
pub const fn has_extended_mappings(arch: u32) -> bool {
    arch >= 81
}
