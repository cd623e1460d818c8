//! What the DSP writes back into a block: how far it is, one profile record an op, and trace records by thread.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::code::{OpCode, StatusCode};
use crate::limits::PMU_COUNTERS;

/// Which op the DSP is in: one line, written before each op, so that the host can name the op in which a DSP stalled or
/// died.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BatchProgress {
    /// Sequence number of the request being worked on.
    pub seq: u64,
    /// Index of the op being worked on.
    pub op_idx: u32,
    /// Zero.
    pub reserved: [u32; 29],
}

/// Cost of one op: 64 bytes, written by the DSP after the op when [`crate::message::REQUEST_PROFILE`] is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpProfile {
    /// The op's opcode, so that a record stands alone.
    pub opcode: OpCode,
    /// How the op ended.
    pub status: StatusCode,
    /// Cycle counter at the op's start.
    pub cycles_start: u64,
    /// Cycles the op took.
    pub cycles: u64,
    /// Instruction packets executed by all threads; 0 where the platform cannot count them.
    pub packets: u32,
    /// Nanoseconds the op took.
    pub elapsed_ns: u32,
    /// Deltas of the performance counters; 0 where there are none.
    pub pmu: [u32; PMU_COUNTERS],
}

/// Start or stop of something on one thread: 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TraceRecord {
    /// Low half of the cycle counter.
    pub cycles: u32,
    /// What: one of the `TRACE_` numbers.
    pub id: u16,
    /// Bit 15: stop; bits 0 to 14: op index modulo 32,768.
    pub info: u16,
}

/// A kernel's work on one thread.
pub const TRACE_KERNEL: u16 = 1;
/// Mapping and resolving of buffers.
pub const TRACE_MAP: u16 = 2;
/// Cache maintenance.
pub const TRACE_CACHE: u16 = 3;
/// Waiting for a fence.
pub const TRACE_FENCE: u16 = 4;
/// Waiting for a transfer by DMA.
pub const TRACE_DMA: u16 = 5;
/// Bit of [`TraceRecord::info`] that marks the end.
pub const TRACE_STOP: u16 = 0x8000;

crate::layout::assert_layout!(BatchProgress, 128, 8, { seq: 0, op_idx: 8, reserved: 12 });
crate::layout::assert_layout!(OpProfile, 64, 8, {
    opcode: 0, status: 4, cycles_start: 8, cycles: 16, packets: 24, elapsed_ns: 28, pmu: 32,
});
crate::layout::assert_layout!(TraceRecord, 8, 4, { cycles: 0, id: 4, info: 6 });
