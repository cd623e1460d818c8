//! Operands in extended buffers, which have no address: DMA brings them to scratch before the kernel runs.
//!
//! Small ones come whole, and kernels see them as they see any other. What is too large for that is a weight: of a product
//! it comes in slices of rows, the next on its way while one is multiplied ([`super::slices`]); of GET_ROWS the rows that
//! are asked for come ([`super::table_rows`]). Either way the kernel runs on a part of the op whose bits are those of the
//! whole.

use core::cell::Cell;

use hexloom_abi::limits::LINE_BYTES;
use hexloom_abi::op::Shape;
use hexloom_abi::{Opcode, Status, TensorDesc, scratch, support};

use super::Failure;
use super::lookahead::is_product;
use super::op::{OpRunner, fail};
use super::operands::{Operands, device_address_of};
use super::written::WrittenRanges;
use super::{slices, table_rows};
use crate::dma::{DmaError, Engine, Ticket, Transfer};
use crate::platform::{DeviceAddress, Platform};
use crate::tensor::Span;

/// Channel of the thread that stages.
const CHANNEL: usize = 0;

/// Moves bytes of extended buffers into scratch.
pub(super) struct Mover<'a, 'r, P> {
    runner: &'r OpRunner<'a, P>,
    engine: &'a dyn Engine,
    last: Cell<Option<Ticket>>,
}

/// Scratch that is not taken yet; kernels get the beginning, copies are put at the end.
#[derive(Clone, Copy)]
pub(super) struct Room<'a>(pub(super) Span<'a, u8>);

/// Runs an op some of whose sources (bits of `srcs`) lie in extended buffers.
pub(super) fn run<'a, P: Platform>(
    runner: &OpRunner<'a, P>,
    operands: Operands<'a>,
    (srcs, dsts): (u16, u16),
    written: &mut WrittenRanges,
) -> Result<(), Failure> {
    let op = operands.op();
    support::check_extended(&op, srcs, dsts).map_err(|refusal| fail(Status::Unsupported, refusal.detail()))?;
    let scratch = runner.whole_scratch()?;
    scratch::check_extended(&op, srcs, runner.n_threads(), scratch.len() as u64)
        .map_err(|refusal| fail(Status::ScratchTooSmall, refusal.detail()))?;
    let engine = runner.pool.platform().dma().ok_or(fail(Status::NoExtended, 0))?;
    let mover = Mover {
        runner,
        engine,
        last: Cell::new(None),
    };
    let result = mover.run(operands, srcs, Room(scratch), written);
    // Of an op that failed, too, nothing may be in flight into scratch.
    mover.finish()?;
    result
}

impl<'a, P: Platform> Mover<'a, '_, P> {
    fn run(
        &self,
        mut operands: Operands<'a>,
        srcs: u16,
        mut room: Room<'a>,
        written: &mut WrittenRanges,
    ) -> Result<(), Failure> {
        let large = self.large(&operands, srcs, room);
        for idx in (0..operands.srcs.len()).filter(|idx| (srcs & !large) >> idx & 1 != 0) {
            let src = *operands.src(idx).map_err(|status| fail(status, 0))?;
            let copy = room
                .take_end(src.bytes)
                .ok_or(fail(Status::ScratchTooSmall, 0x100 | idx as u32))?;
            self.bring(self.address(&src, 0)?, copy)?;
            operands.staged[idx] = Some(copy);
        }
        self.finish()?;
        let dsts = self.runner.before_use(&operands, written);
        self.runner.pool.platform().disturb_scratch(room.0.len());
        let result = match operands.opcode {
            _ if large == 0 => self.runner.run_kernel(&operands, room.0, None),
            Opcode::GetRows => table_rows::run(self, &operands, room),
            _ => slices::run(self, &operands, large, room),
        };
        self.runner.after_write(&dsts, written);
        result
    }

    /// Of the sources `srcs` those that do not come whole: weights that leave the kernel less than half of scratch.
    fn large(&self, operands: &Operands<'_>, srcs: u16, room: Room<'_>) -> u16 {
        let candidates = match operands.opcode {
            opcode if is_product(opcode) => (1 << operands.dsts.iter().flatten().count()) - 1,
            Opcode::GetRows => 1,
            _ => 0,
        };
        let srcs_whole = operands.srcs.iter().enumerate().filter(|(idx, _)| srcs >> idx & 1 != 0);
        let bytes: u64 = srcs_whole
            .filter_map(|(_, src)| src.as_ref())
            .map(|src| lines(src.bytes))
            .sum();
        match bytes <= room.0.len() as u64 / 2 && self.least(operands) <= room.0.len() as u64 - bytes {
            true => 0,
            false => srcs & candidates,
        }
    }

    /// Least scratch of the kernel.
    pub(super) fn least(&self, operands: &Operands<'_>) -> u64 {
        scratch::need(&operands.op(), self.runner.n_threads()).least
    }

    /// Scratch with which the kernel does nothing in pieces.
    pub(super) fn full(&self, operands: &Operands<'_>) -> u64 {
        scratch::need(&operands.op(), self.runner.n_threads()).full
    }

    /// Runs a part of the op whose operands are in place.
    pub(super) fn run_kernel(&self, operands: &Operands<'a>, scratch: Span<'a, u8>) -> Result<(), Failure> {
        self.runner.run_kernel(operands, scratch, None)
    }

    /// Source `idx` of operands as a tensor.
    pub(super) fn tensor(&self, operands: &Operands<'a>, idx: usize) -> Result<crate::tensor::Tensor<'a>, Failure> {
        self.runner.src_tensor(operands, idx)
    }

    /// The engine's address `offset` bytes into a tensor.
    pub(super) fn address(&self, tensor: &TensorDesc, offset: u64) -> Result<DeviceAddress, Failure> {
        let address = device_address_of(tensor, self.runner.bases).and_then(|address| address.plus(offset));
        address.ok_or(fail(Status::Invalid, 0))
    }

    /// Begins to copy as many bytes as `to` has.
    pub(super) fn bring(&self, from: DeviceAddress, to: Span<'a, u8>) -> Result<(), Failure> {
        let bytes = u32::try_from(to.len()).map_err(|_| fail(Status::ScratchTooSmall, 0))?;
        self.push(&Transfer::linear(from.source(), to.as_ptr() as u64, bytes))
    }

    /// Begins to copy rows of `row_bytes` that lie `stride` apart to where they lie side by side.
    pub(super) fn bring_rows(
        &self,
        from: DeviceAddress,
        (row_bytes, stride): (u32, u32),
        to: Span<'a, u8>,
    ) -> Result<(), Failure> {
        self.push(&Transfer {
            source: from.source(),
            target: to.as_ptr() as u64,
            row_bytes,
            rows: (to.len() / (row_bytes as usize).max(1)) as u32,
            source_stride: stride,
            target_stride: row_bytes,
        })
    }

    fn push(&self, transfer: &Transfer) -> Result<(), Failure> {
        if transfer.is_empty() {
            return Ok(());
        }
        loop {
            // SAFETY: nobody on this side writes an extended buffer, and its mapping stays for the batch; the target is scratch
            // that only this op has and that no kernel touches before `finish` or `wait`; the platform is borrowed.
            match unsafe { self.engine.push(CHANNEL, transfer) } {
                Ok(ticket) => {
                    self.last.set(Some(ticket));
                    return Ok(());
                }
                Err(DmaError::Full) if self.last.get().is_some() => self.finish()?,
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// The last transfer begun, to wait for.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.last.get()
    }

    /// Waits for a transfer and all before it.
    pub(super) fn wait(&self, ticket: Option<Ticket>) -> Result<(), Failure> {
        let waited = ticket.map_or(Ok(()), |ticket| self.engine.wait(CHANNEL, ticket));
        waited.map_err(|error| self.failed(error))
    }

    /// Waits for everything begun.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        self.wait(self.last.take())
    }

    /// A transfer that did not end may still write.
    fn failed(&self, error: DmaError) -> Failure {
        match error {
            DmaError::Fault | DmaError::Timeout => self.runner.poison(error.into()),
            _ => fail(error.into(), 0),
        }
    }
}

impl<'a> Room<'a> {
    /// Takes whole lines for `bytes` at the end and gives the bytes.
    pub(super) fn take_end(&mut self, bytes: u64) -> Option<Span<'a, u8>> {
        let (bytes, whole) = (usize::try_from(bytes).ok()?, usize::try_from(lines(bytes)).ok()?);
        let start = self.0.len().checked_sub(whole)? / LINE_BYTES as usize * LINE_BYTES as usize;
        let taken = self.0.part(start, bytes);
        self.0 = self.0.part(0, start);
        Some(taken)
    }
}

/// Whole lines that hold `bytes`.
pub(super) fn lines(bytes: u64) -> u64 {
    bytes.div_ceil(LINE_BYTES).saturating_mul(LINE_BYTES)
}

/// A descriptor of a copy of a tensor's part.
pub(super) fn copy_of(tensor: &TensorDesc, shape: &Shape) -> TensorDesc {
    TensorDesc {
        bytes: shape.extent_bytes().unwrap_or(0),
        ne: shape.ne,
        nb: shape.nb,
        ..*tensor
    }
}
