//! The batch interpreter: one request in, exactly one reply out, garbage included.
//!
//! [`Session::serve`] is the way of a batch through the DSP: check the message, copy the block's descriptors out of
//! shared memory, parse the copy, resolve buffers, then per op: rules, operands, kernel, profile. The first failure ends
//! the batch; its op index and status go into the reply, and to the peers that wait for what it would have signalled.

mod batch;
mod failed;
mod fence;
mod group;
mod lookahead;
mod op;
mod operands;
mod reduce;
mod set_rows;
mod share;
mod slices;
mod stage;
mod table_rows;
mod written;

use heapless::HistoryBuf;
use hexloom_abi::control::CountedEvents;
use hexloom_abi::message::{NO_OP, REQUEST_TRACE, START_MATRIX_MODEL, START_NO_MATRIX_UNIT, START_REFERENCE};
use hexloom_abi::profile::{TRACE_CACHE, TRACE_MAP};
use hexloom_abi::view::ParseError;
use hexloom_abi::{BatchReply, BatchRequest, BatchView, BlockLayout, StartRequest, Status};
use zerocopy::FromBytes;

use crate::hmx::{MatrixUse, UnitKind};
use crate::kernels::KernelSet;
use crate::log;
use crate::mapping::{MappingTable, PinnedBuffer};
use crate::platform::Platform;
use crate::pool::{Fork, Pool};
use crate::tensor::Span;
use crate::trace::TraceRows;
use batch::Batch;
use written::WrittenRanges;

/// One packet from the queue.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The message's bytes.
    pub message: &'a [u8],
    /// The block that came with it, if exactly one buffer reference did.
    pub block: Option<BlockRef>,
}

/// A block in shared memory, as the queue hands it over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRef {
    /// fd of the buffer it lies in.
    pub fd: u32,
    /// Byte offset in that buffer.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Address at which this side sees it.
    pub address: u64,
}

/// Failed batches that are remembered: later batches of their runs follow within a queue's length.
const N_FAILED: usize = 16;

/// What a started session was promised and may use.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// fd of the pinned buffer.
    pub pinned_fd: u32,
    /// Bytes of the pinned buffer.
    pub pinned_bytes: u64,
    /// Bytes of the 32-bit window that may be mapped.
    pub window_bytes: u64,
    /// Kernels to run.
    pub kernels: KernelSet,
    /// Whether the matrix unit is used.
    pub matrix: MatrixUse,
}

/// A started session on the DSP.
pub struct Session<'a, P> {
    pool: &'a Pool<P>,
    mappings: MappingTable,
    limits: SessionLimits,
    /// The matrix unit in use.
    unit: Option<UnitKind>,
    /// Private memory that descriptors are copied to before they are checked.
    descriptors: &'a mut [u8],
    scratch: Span<'a, u8>,
    written: WrittenRanges,
    /// Low halves of the numbers of the last batches that failed, with how they did.
    failed: HistoryBuf<(u32, Status), N_FAILED>,
    /// Rows of the traced batch being worked on: address and bytes.
    traced: Option<(u64, u64)>,
}

/// How far a batch came.
#[derive(Default)]
struct Progress {
    n_ops_done: u32,
}

/// Why a batch ended early.
struct Failure {
    status: Status,
    op_idx: u32,
    detail: u32,
}

impl SessionLimits {
    /// Limits from a checked start message, with `kernels` unless the message asks for the references; unsupported where
    /// those are not.
    pub fn new(start: &StartRequest, kernels: KernelSet) -> Result<Self, Status> {
        Ok(Self {
            pinned_fd: start.pinned_fd,
            pinned_bytes: start.pinned_bytes,
            window_bytes: start.window_bytes,
            kernels: match start.flags & START_REFERENCE {
                0 => kernels,
                _ => KernelSet::reference().ok_or(Status::Unsupported)?,
            },
            matrix: match start.flags & (START_NO_MATRIX_UNIT | START_MATRIX_MODEL) {
                0 => MatrixUse::IfThere,
                START_MATRIX_MODEL => MatrixUse::OrModel,
                _ => MatrixUse::Off,
            },
        })
    }
}

impl<'a, P: Platform> Session<'a, P> {
    /// A session on `pool`. `descriptors` (8-byte aligned) takes the host-written part of the largest block; `scratch`
    /// (128-byte aligned) is all that kernels may use.
    pub fn new(pool: &'a Pool<P>, limits: SessionLimits, descriptors: &'a mut [u8], scratch: Span<'a, u8>) -> Self {
        log::session_started(pool.n_threads(), scratch.len() as u32, limits.window_bytes);
        Self {
            pool,
            mappings: MappingTable::new(limits.window_bytes),
            limits,
            unit: limits.matrix.unit(pool.platform().has_matrix_unit()),
            descriptors,
            scratch,
            written: WrittenRanges::default(),
            failed: HistoryBuf::new(),
            traced: None,
        }
    }

    /// Runs one batch and gives the reply to send.
    pub fn serve(&mut self, packet: &Packet<'_>) -> BatchReply {
        let platform = self.pool.platform();
        let (cycles_start, nanos_start) = (platform.cycles(), platform.nanos());
        let maps_before = self.mappings.n_maps();
        let seq = peek_seq(packet.message);
        let mut progress = Progress::default();
        let mut reply = match self.run(packet, &mut progress) {
            Ok(()) => BatchReply::new(seq, Status::Ok),
            Err(failure) => {
                let Failure { status, op_idx, detail } = failure;
                self.failed.write((seq as u32, status));
                if op_idx == NO_OP {
                    log::batch_refused(seq, status.name(), detail);
                }
                BatchReply {
                    failed_op: op_idx,
                    detail,
                    ..BatchReply::new(seq, status)
                }
            }
        };
        let platform = self.pool.platform();
        self.pool.mark(0, TRACE_CACHE, false);
        self.written.clean_all(platform);
        self.pool.mark(0, TRACE_CACHE, true);
        if let Some((address, bytes)) = self.traced.take() {
            reply.n_traces = self.pool.trace().close();
            platform.clean(address, bytes);
        }
        reply.n_ops_done = progress.n_ops_done;
        reply.n_maps = self.mappings.n_maps().wrapping_sub(maps_before);
        reply.cycles_start = cycles_start;
        reply.cycles_stop = platform.cycles();
        reply.elapsed_us = u32::try_from(platform.nanos().saturating_sub(nanos_start) / 1000).unwrap_or(u32::MAX);
        reply
    }

    /// The reply to a packet that cannot be run now, for a reason outside it.
    pub fn refuse(&self, packet: &Packet<'_>, status: Status) -> BatchReply {
        BatchReply {
            failed_op: NO_OP,
            ..BatchReply::new(peek_seq(packet.message), status)
        }
    }

    /// Takes the mappings of an fd back, on the host's `munmap` call.
    pub fn forget(&mut self, fd: u32) {
        self.mappings.forget(self.pool.platform(), fd);
    }

    /// Lets the performance counters count events for the profiles of batches.
    pub fn count(&self, events: &CountedEvents) -> Result<(), Status> {
        self.pool.platform().count(events)
    }

    /// Live mappings.
    pub fn n_mappings(&self) -> usize {
        self.mappings.len()
    }

    fn run(&mut self, packet: &Packet<'_>, progress: &mut Progress) -> Result<(), Failure> {
        let is_poisoned = self.pool.is_poisoned();
        match self.run_block(packet, progress) {
            // What is wrong with the batch besides does not matter any more.
            Err(_) if is_poisoned => Err(message_failure(Status::Poisoned)),
            result => result,
        }
    }

    fn run_block(&mut self, packet: &Packet<'_>, progress: &mut Progress) -> Result<(), Failure> {
        let (request, block, layout) = self.check_message(packet).map_err(message_failure)?;
        if request.flags & REQUEST_TRACE != 0 {
            self.open_trace(&request, &block, &layout);
        }
        let n_bytes = layout.progress_offset as usize;
        let Some(copy) = self.descriptors.get_mut(..n_bytes) else {
            return Err(message_failure(Status::TooMany));
        };
        let platform = self.pool.platform();
        platform.invalidate(block.address, layout.progress_offset);
        // SAFETY: `check_message` has found the block inside the pinned buffer, at least `layout.bytes` long, and
        // `descriptors` is private memory, so source and destination are valid for `n_bytes` and do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(block.address as *const u8, copy.as_mut_ptr(), n_bytes) };
        let view = BatchView::parse(copy, &request)?;
        let pinned = PinnedBuffer {
            fd: block.fd,
            address: block.address - block.offset,
            bytes: self.limits.pinned_bytes,
        };
        let before = self
            .failed
            .iter()
            .find(|(seq, _)| request.after != 0 && *seq == request.after);
        let ran = if self.pool.is_poisoned() {
            Err(message_failure(Status::Poisoned))
        } else if let Some(&(_, status)) = before {
            Err(message_failure(status))
        } else {
            self.pool.mark(0, TRACE_MAP, false);
            let bases = self.mappings.resolve(platform, view.buffers(), pinned);
            self.pool.mark(0, TRACE_MAP, true);
            let bases = bases.map_err(|error| Failure {
                status: error.status,
                op_idx: NO_OP,
                detail: error.buffer_idx,
            });
            bases.and_then(|bases| {
                let batch = Batch {
                    pool: self.pool,
                    limits: &self.limits,
                    unit: self.unit,
                    scratch: self.scratch,
                    request: &request,
                    block: &block,
                    layout: &layout,
                };
                batch.run(view, &bases, &mut self.written, progress)
            })
        };
        if let Err(failure) = &ran {
            // Before a mapping goes, what was written through it must be out.
            self.written.clean_all(platform);
            let from = progress.n_ops_done as usize;
            failed::tell_peers(self.pool, &mut self.mappings, pinned, &view, from, failure.status);
        }
        ran
    }

    fn open_trace(&mut self, request: &BatchRequest, block: &BlockRef, layout: &BlockLayout) {
        let rows = TraceRows {
            address: block.address + layout.traces_offset,
            row_bytes: layout.trace_row_bytes,
            n_rows: request.n_threads,
            n_records: request.n_traces,
        };
        self.traced = Some((rows.address, rows.row_bytes * u64::from(rows.n_rows)));
        // SAFETY: `check_message` has found the block at least as long as its layout, which has room for the rows, on lines
        // of their own; `serve` closes the trace before the reply.
        unsafe { self.pool.trace().open(rows) };
    }

    /// Checks the message against itself and its block against the pinned buffer, before any address is computed.
    fn check_message(&self, packet: &Packet<'_>) -> Result<(BatchRequest, BlockRef, BlockLayout), Status> {
        let request = BatchRequest::read_from_bytes(packet.message).map_err(|_| Status::Truncated)?;
        request.check()?;
        let block = packet.block.ok_or(Status::BadBlock)?;
        let layout = BlockLayout::of(&request).ok_or(Status::TooMany)?;
        let end = block.offset.checked_add(block.bytes).ok_or(Status::BadBlock)?;
        let placed = block.fd == self.limits.pinned_fd
            && block.offset == request.block_offset
            && block.bytes == u64::from(request.block_bytes)
            && block.offset.is_multiple_of(hexloom_abi::limits::LINE_BYTES)
            && end <= self.limits.pinned_bytes
            && block.address.checked_sub(block.offset).is_some();
        if !placed {
            return Err(Status::BadBlock);
        }
        if layout.bytes > block.bytes {
            return Err(Status::Truncated);
        }
        Ok((request, block, layout))
    }
}

impl<P> Session<'_, P> {
    /// Takes all mappings back; called before the session's memory goes.
    pub fn close(&mut self)
    where
        P: Platform,
    {
        self.mappings.clear(self.pool.platform());
    }
}

impl From<ParseError> for Failure {
    fn from(error: ParseError) -> Self {
        Self {
            status: error.status,
            op_idx: error.op_idx,
            detail: error.idx,
        }
    }
}

fn message_failure(status: Status) -> Failure {
    Failure {
        status,
        op_idx: NO_OP,
        detail: 0,
    }
}

/// The sequence number of a message that may be anything: bytes 8 to 16, or 0 when it is too short to hold them.
fn peek_seq(message: &[u8]) -> u64 {
    let seq = message.get(8..16).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    seq.map_or(0, u64::from_le_bytes)
}
