//! Fences: 128-byte slots in a pinned buffer that one session signals and another waits on.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::code::{Status, StatusCode};

/// A fence slot. The signaller stores `status` first, then `seq`; a waiter reads `seq` first, then `status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(128))]
pub struct FenceSlot {
    /// Last sequence number signalled; compared by [`seq_reached`].
    pub seq: u32,
    /// Status that travels with it; a failure fails every waiter.
    pub status: StatusCode,
    /// Zero.
    pub reserved: [u32; 30],
}

/// Which fence, and what to do with it: 16 bytes, carried by `FENCE` in `params[0..4]`.
///
/// Both fence ops also name the slot as a tensor flagged [`crate::descriptor::TENSOR_FENCE`], from which its address comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FenceRef {
    /// Index of the buffer descriptor that holds the slot.
    pub buffer_idx: u16,
    /// Slot number in that buffer's fence area.
    pub slot: u16,
    /// Sequence number to signal or to wait for.
    pub seq: u32,
    /// [`FENCE_SIGNAL`] or [`FENCE_WAIT`].
    pub mode: u32,
    /// Longest wait in microseconds; not used by a signal.
    pub timeout_us: u32,
}

/// Mode: store status and sequence number.
pub const FENCE_SIGNAL: u32 = 1;
/// Mode: wait until the sequence number is reached.
pub const FENCE_WAIT: u32 = 2;

impl FenceSlot {
    /// A slot that nobody has signalled.
    pub const fn new() -> Self {
        Self {
            seq: 0,
            status: StatusCode(Status::Ok.number()),
            reserved: [0; 30],
        }
    }
}

impl Default for FenceSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether `seq` is at or past `wanted`, across wrap-around.
pub const fn seq_reached(seq: u32, wanted: u32) -> bool {
    seq.wrapping_sub(wanted) < 0x8000_0000
}

crate::layout::assert_layout!(FenceSlot, 128, 128, { seq: 0, status: 4, reserved: 8 });
crate::layout::assert_layout!(FenceRef, 16, 4, { buffer_idx: 0, slot: 2, seq: 4, mode: 8, timeout_us: 12 });
