//! The messages that cross the queue, and the one that starts a session.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::code::{Status, StatusCode};
use crate::limits::{MAGIC, MAX_BUFFERS, MAX_OPS, MAX_TENSORS, MAX_THREADS, MAX_TRACE_RECORDS, VERSION};

/// A batch announced to the DSP: 64 bytes in the queue. Written by the host, read once by the DSP.
///
/// The block itself is named by the queue packet's buffer reference (fd, offset, size); it lies in the session's pinned
/// buffer. `block_offset` and `block_bytes` repeat offset and size so that a packet and a request that were torn apart
/// are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BatchRequest {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u16,
    /// [`REQUEST_PROFILE`] and [`REQUEST_TRACE`]; all other bits zero.
    pub flags: u16,
    /// Sequence number: 1 for a session's first request, then rising by one.
    pub seq: u64,
    /// Byte offset of the block in the session's pinned buffer, a multiple of 128.
    pub block_offset: u64,
    /// Bytes of the block: at least what [`crate::BlockLayout`] gives for the counts below.
    pub block_bytes: u32,
    /// Buffer descriptors, at most 16.
    pub n_buffers: u32,
    /// Tensor descriptors, at most 8,192.
    pub n_tensors: u32,
    /// Op descriptors, at most 4,096.
    pub n_ops: u32,
    /// Trace records of each thread; 0 without [`REQUEST_TRACE`].
    pub n_traces: u32,
    /// DSP threads that trace rows are laid out for; 0 without [`REQUEST_TRACE`].
    pub n_threads: u32,
    /// Low half of the sequence number of the batch before it in the same run; 0 = none. When that batch failed, this one
    /// fails with its status: no op runs, and who waits for its fences is told.
    pub after: u32,
    /// Zero.
    pub reserved: [u32; 3],
}

/// Fill an [`crate::OpProfile`] for every op.
pub const REQUEST_PROFILE: u16 = 1;
/// Fill [`crate::TraceRecord`]s.
pub const REQUEST_TRACE: u16 = 2;

/// The DSP's answer to one request: 128 bytes in the queue. Written by the DSP, read once by the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BatchReply {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u16,
    /// Zero.
    pub flags: u16,
    /// The request's sequence number; 0 when the request was too short to hold one.
    pub seq: u64,
    /// Status of the batch: that of the first op that failed, or of the message itself.
    pub status: StatusCode,
    /// Index of the first op that failed; [`NO_OP`] when none ran or none failed.
    pub failed_op: u32,
    /// Ops that were completed.
    pub n_ops_done: u32,
    /// What the status is about: an index into buffers, tensors or operands, as `docs/abi.md` lists per status.
    pub detail: u32,
    /// Cycle counter when the request was taken.
    pub cycles_start: u64,
    /// Cycle counter when the reply was written.
    pub cycles_stop: u64,
    /// Wall time of the batch in microseconds.
    pub elapsed_us: u32,
    /// Mappings made for this batch.
    pub n_maps: u32,
    /// Trace records that each thread had, those included for which its row had no room.
    pub n_traces: [u32; 10],
    /// Zero.
    pub reserved: [u32; 8],
}

/// [`BatchReply::failed_op`] when the failure belongs to no op.
pub const NO_OP: u32 = u32::MAX;

/// Arguments of a session's `start` call: 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StartRequest {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u16,
    /// [`START_REFERENCE`], and one of [`START_NO_MATRIX_UNIT`] and [`START_MATRIX_MODEL`]; all other bits zero.
    pub flags: u16,
    /// Number given by the platform to this session.
    pub session_id: u32,
    /// DSP threads to use, 1 to 10; 0 = all there are.
    pub n_threads: u32,
    /// Identity of the exported queue.
    pub queue_id: u64,
    /// Bytes of the 32-bit window this session may fill with mappings, the pinned buffer not counted.
    pub window_bytes: u64,
    /// fd of the session's pinned queue-and-fence buffer.
    pub pinned_fd: u32,
    /// Largest block that will be announced, in bytes.
    pub block_bytes_max: u32,
    /// Bytes of the pinned buffer.
    pub pinned_bytes: u64,
    /// Scratch bytes to use at most; 0 = all there is.
    pub scratch_bytes_max: u64,
    /// Zero.
    pub reserved: [u32; 2],
}

/// Run the plain reference kernels instead of the vector kernels.
pub const START_REFERENCE: u16 = 1;
/// Leave the matrix unit alone: vector kernels serve everything.
pub const START_NO_MATRIX_UNIT: u16 = 2;
/// Where there is no matrix unit, run its software model in its place.
pub const START_MATRIX_MODEL: u16 = 4;

impl BatchRequest {
    /// A request with the given counts and everything else zero.
    pub const fn new(seq: u64, n_buffers: u32, n_tensors: u32, n_ops: u32) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            flags: 0,
            seq,
            block_offset: 0,
            block_bytes: 0,
            n_buffers,
            n_tensors,
            n_ops,
            n_traces: 0,
            n_threads: 0,
            after: 0,
            reserved: [0; 3],
        }
    }

    /// Checks everything that can be checked without the block: magic, version, flags, reserves and counts.
    pub fn check(&self) -> Result<(), Status> {
        check_head(self.magic, self.version, self.flags, REQUEST_PROFILE | REQUEST_TRACE)?;
        let traced = self.flags & REQUEST_TRACE != 0;
        if self.reserved != [0; 3] || (!traced && (self.n_traces != 0 || self.n_threads != 0)) {
            return Err(Status::BadFlags);
        }
        let over = self.n_buffers > MAX_BUFFERS
            || self.n_tensors > MAX_TENSORS
            || self.n_ops > MAX_OPS
            || self.n_traces > MAX_TRACE_RECORDS
            || self.n_threads > MAX_THREADS;
        if over { Err(Status::TooMany) } else { Ok(()) }
    }
}

impl BatchReply {
    /// A reply to `seq` with a status and nothing done.
    pub fn new(seq: u64, status: Status) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            flags: 0,
            seq,
            status: status.into(),
            failed_op: NO_OP,
            n_ops_done: 0,
            detail: 0,
            cycles_start: 0,
            cycles_stop: 0,
            elapsed_us: 0,
            n_maps: 0,
            n_traces: [0; 10],
            reserved: [0; 8],
        }
    }

    /// Checks head and reserves and gives the status.
    pub fn check(&self) -> Result<Status, Status> {
        check_head(self.magic, self.version, self.flags, 0)?;
        if self.reserved != [0; 8] {
            return Err(Status::BadFlags);
        }
        Status::try_from(self.status).map_err(|_| Status::Invalid)
    }
}

impl StartRequest {
    /// A start message for a session with its pinned buffer; queue, threads and limits are filled in by the caller.
    pub const fn new(session_id: u32) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            flags: 0,
            session_id,
            n_threads: 0,
            queue_id: 0,
            window_bytes: crate::limits::WINDOW_BYTES_DEFAULT,
            pinned_fd: 0,
            block_bytes_max: 0,
            pinned_bytes: 0,
            scratch_bytes_max: 0,
            reserved: [0; 2],
        }
    }

    /// Checks head, reserves and counts.
    pub fn check(&self) -> Result<(), Status> {
        const MATRIX: u16 = START_NO_MATRIX_UNIT | START_MATRIX_MODEL;
        check_head(self.magic, self.version, self.flags, START_REFERENCE | MATRIX)?;
        if self.reserved != [0; 2] || self.flags & MATRIX == MATRIX {
            return Err(Status::BadFlags);
        }
        if self.n_threads > MAX_THREADS {
            return Err(Status::TooMany);
        }
        if u64::from(self.block_bytes_max) > self.pinned_bytes {
            return Err(Status::BadBlock);
        }
        Ok(())
    }
}

fn check_head(magic: u32, version: u16, flags: u16, known: u16) -> Result<(), Status> {
    if magic != MAGIC {
        return Err(Status::BadMagic);
    }
    if version != VERSION {
        return Err(Status::BadVersion);
    }
    if flags & !known != 0 {
        return Err(Status::BadFlags);
    }
    Ok(())
}

crate::layout::assert_layout!(BatchRequest, 64, 8, {
    magic: 0, version: 4, flags: 6, seq: 8, block_offset: 16, block_bytes: 24, n_buffers: 28, n_tensors: 32,
    n_ops: 36, n_traces: 40, n_threads: 44, after: 48, reserved: 52,
});
crate::layout::assert_layout!(BatchReply, 128, 8, {
    magic: 0, version: 4, flags: 6, seq: 8, status: 16, failed_op: 20, n_ops_done: 24, detail: 28,
    cycles_start: 32, cycles_stop: 40, elapsed_us: 48, n_maps: 52, n_traces: 56, reserved: 96,
});
crate::layout::assert_layout!(StartRequest, 64, 8, {
    magic: 0, version: 4, flags: 6, session_id: 8, n_threads: 12, queue_id: 16, window_bytes: 24, pinned_fd: 32,
    block_bytes_max: 36, pinned_bytes: 40, scratch_bytes_max: 48, reserved: 56,
});
