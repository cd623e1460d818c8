//! One op of a batch: rules, operands, a member's share, caches, scratch and streams, kernel.

use hexloom_abi::message::NO_OP;
use hexloom_abi::{BatchView, FenceRef, GroupParams, Opcode, Status, TensorDesc, scratch, support};

use super::fence::{Slot, WaitError};
use super::group::Group;
use super::operands::{Operands, base_of};
use super::written::WrittenRanges;
use super::{Failure, lookahead, operands, reduce, set_rows, share, stage};
use crate::dma::stream::Streams;
use crate::hmx::UnitKind;
use crate::hvx::plain::Plain;
use crate::hvx::{Isa, Kernel, Part};
use crate::kernels::{Context, KernelSet, Streaming};
use crate::mapping::Bases;
use crate::platform::Platform;
use crate::pool::{Fork, Pool, Work};
use crate::tensor::{Span, Tensor};

/// What the ops of one batch run on.
pub(super) struct OpRunner<'a, P> {
    pub(super) pool: &'a Pool<P>,
    kernels: KernelSet,
    unit: Option<UnitKind>,
    pub(super) view: BatchView<'a>,
    pub(super) bases: &'a Bases,
    /// All of it; streams have the end.
    scratch: Span<'a, u8>,
    streams: Option<Streams<'a>>,
    group: Option<Group<'a>>,
}

/// Waits for what each thread has in flight.
struct Drain<'s, 'a>(&'s Streams<'a>);

impl Kernel for Drain<'_, '_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        self.0.drain(part.idx);
    }
}

impl<'a, P: Platform> OpRunner<'a, P> {
    /// A runner for the ops of `view`, with streams if the platform has an engine.
    ///
    /// # Safety
    /// - `view` is the result of `BatchView::parse`, and as many bytes as its buffers' descriptors say are accessible at
    ///   `bases`, by code or by the DMA engine, until [`OpRunner::finish`] has returned without a failure;
    /// - nobody else uses `scratch` until then.
    pub(super) unsafe fn new(
        pool: &'a Pool<P>,
        (kernels, unit): (KernelSet, Option<UnitKind>),
        view: BatchView<'a>,
        bases: &'a Bases,
        scratch: Span<'a, u8>,
    ) -> Self {
        let region_bytes = Streams::region_bytes(scratch.len());
        let region = scratch.part(scratch.len() - region_bytes, region_bytes);
        let streams = pool.platform().dma().map(|engine| {
            // SAFETY: the caller keeps scratch, and ops get none of the region but after a drain; the platform, which owns
            // the engine, is borrowed.
            unsafe { Streams::new(engine, region, pool) }
        });
        Self {
            pool,
            kernels,
            unit,
            view,
            bases,
            scratch,
            streams,
            group: None,
        }
    }

    /// Runs op `op_idx`.
    pub(super) fn run(&mut self, op_idx: usize, written: &mut WrittenRanges) -> Result<(), Failure> {
        let desc = self.view.ops().get(op_idx).ok_or(fail(Status::Invalid, 0))?;
        let operands = Operands::new(&self.view, desc).map_err(|status| fail(status, 0))?;
        let op = operands.op();
        support::check(&op).map_err(|refusal| fail(Status::Unsupported, refusal.detail()))?;
        operands
            .check_overlap()
            .map_err(|detail| fail(Status::Invalid, detail))?;
        if let Some(group) = &mut self.group {
            group.barrier(self.pool, written)?;
        }
        let platform = self.pool.platform();
        match op.opcode {
            Opcode::MdevGroup | Opcode::Fence => platform.disturb_scratch(0),
            _ => {}
        }
        match op.opcode {
            Opcode::MdevGroup => self.join(&operands, op_idx),
            // Members other than the first wait as well: a barrier would not wait as long as the fence may take.
            Opcode::Fence => self.fence(&operands, written),
            Opcode::CpyFence if self.leads() => {
                let mut copy = operands.clone();
                copy.dsts[1] = None;
                self.compute(op_idx, copy, written)?;
                self.signal(&operands, operands.dst(1), written)
            }
            Opcode::Allreduce | Opcode::AllreduceAdd if self.leads() => reduce::run(self, &operands, written),
            _ => match self.share(operands) {
                Some(operands) => self.compute(op_idx, operands, written),
                // Others do it.
                None => {
                    platform.disturb_scratch(0);
                    Ok(())
                }
            },
        }
    }

    /// Ends the batch: waits until nothing of it is in flight, then for the group.
    pub(super) fn finish(&mut self, written: &mut WrittenRanges, failed: bool) -> Result<(), Failure> {
        self.streams.as_ref().map_or(Ok(()), |streams| self.drain(streams))?;
        match &mut self.group {
            Some(group) if !failed => group.barrier(self.pool, written),
            _ => Ok(()),
        }
    }

    /// This session's share of an op; `None` when others do it.
    pub(super) fn share(&self, operands: Operands<'a>) -> Option<Operands<'a>> {
        match &self.group {
            Some(group) => share::of_member(&operands, group.member(), group.n_members()),
            None => Some(operands),
        }
    }

    /// Whether this session does what one member of a group does for all.
    fn leads(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.member() == 0)
    }

    fn join(&mut self, operands: &Operands<'_>, op_idx: usize) -> Result<(), Failure> {
        if op_idx != 0 {
            return Err(fail(Status::Invalid, 0));
        }
        let tensor = operands.src(0).map_err(|status| fail(status, 0x100))?;
        let params = GroupParams::of(&operands.params);
        // SAFETY: the caller of `new` vouches for view and places.
        let group = unsafe { Group::new(params, tensor, base_of(tensor, self.bases)) };
        self.group = Some(group.map_err(|status| fail(status, 0x100))?);
        Ok(())
    }

    fn fence(&self, operands: &Operands<'_>, written: &mut WrittenRanges) -> Result<(), Failure> {
        let params = FenceRef::of(&operands.params);
        let Ok(tensor) = operands.src(0) else {
            return match self.leads() {
                true => self.signal(operands, operands.dst(0), written),
                false => Ok(()),
            };
        };
        // With nothing left that counts as written here, the next use of each buffer reads memory.
        written.clean_all(self.pool.platform());
        let slot = self.slot(tensor).map_err(|status| fail(status, 0x100))?;
        self.wait(&slot, params.seq, params.timeout_us, 0)
    }

    fn signal(
        &self,
        operands: &Operands<'_>,
        tensor: Result<&TensorDesc, Status>,
        written: &mut WrittenRanges,
    ) -> Result<(), Failure> {
        let slot = tensor.and_then(|tensor| self.slot(tensor));
        let slot = slot.map_err(|status| fail(status, 0x200))?;
        written.clean_all(self.pool.platform());
        slot.signal(self.pool.platform(), FenceRef::of(&operands.params).seq, Status::Ok);
        Ok(())
    }

    /// The fence slot that a tensor is.
    pub(super) fn slot(&self, tensor: &TensorDesc) -> Result<Slot<'a>, Status> {
        // SAFETY: the caller of `new` vouches for view and places.
        unsafe { Slot::new(tensor, 0, base_of(tensor, self.bases)) }
    }

    /// Waits for the slot that is source `src_idx`.
    pub(super) fn wait(&self, slot: &Slot<'_>, seq: u32, timeout_us: u32, src_idx: u32) -> Result<(), Failure> {
        slot.wait(self.pool, seq, timeout_us).map_err(|error| match error {
            WaitError::Timeout => fail(Status::Timeout, 0x100 | src_idx),
            WaitError::Peer(status) => fail(Status::PeerFailed, status.number()),
        })
    }

    /// Computes an op, or a share of it, on the batch's buffers.
    fn compute(&self, op_idx: usize, operands: Operands<'a>, written: &mut WrittenRanges) -> Result<(), Failure> {
        let (srcs, dsts) = operands.extended(self.bases);
        if srcs | dsts != 0 {
            return stage::run(self, operands, (srcs, dsts), written);
        }
        let need = self.need(&operands, self.scratch.len())?;
        let dsts = self.before_use(&operands, written);
        let (scratch, streams) = self.scratch_for(need.least)?;
        let next = streams.and_then(|_| lookahead::next_product(self, op_idx, scratch.len() as u64, written));
        let streaming = streams.map(|streams| Streaming {
            streams,
            sources: lookahead::constants(self, &operands, written),
            next: next.as_ref().map(|(args, sources)| (args, *sources)),
        });
        // What asks for none gets none, so that the rule on what an op needs cannot be wrong unnoticed.
        let scratch = match need.full {
            0 => scratch.part(0, 0),
            _ => scratch,
        };
        self.pool.platform().disturb_scratch(scratch.len());
        let result = self.run_kernel(&operands, scratch, streaming);
        self.after_write(&dsts, written);
        result?;
        // What is in flight between two ops is what a product has pushed for the next one, with nothing in between that
        // writes it. If that one did not read it, nothing is known of what comes after.
        match streams {
            Some(streams) if lookahead::is_product(operands.opcode) && !streams.take_was_read() => self.drain(streams),
            Some(streams) => self.check(streams),
            None => Ok(()),
        }
    }

    /// What an op needs of scratch, the least of which must be there.
    pub(super) fn need(&self, operands: &Operands<'_>, scratch_bytes: usize) -> Result<scratch::ScratchNeed, Failure> {
        let (op, n_threads) = (operands.op(), self.pool.n_threads());
        scratch::check(&op, n_threads, scratch_bytes as u64)
            .map_err(|refusal| fail(Status::ScratchTooSmall, refusal.detail()))?;
        Ok(scratch::need(&op, n_threads))
    }

    /// Makes visible what others wrote into operands, and gives what the op will write.
    ///
    /// Destinations are made visible too: a store into a line whose other bytes are stale here would send those back with it.
    pub(super) fn before_use(&self, operands: &Operands<'_>, written: &mut WrittenRanges) -> [Option<TensorDesc>; 4] {
        let platform = self.pool.platform();
        for tensor in operands.srcs_in_buffers() {
            written.before_use(platform, tensor, self.bases);
        }
        let mut dsts = operands.dsts;
        // SAFETY: the caller of `new` vouches for view and places.
        if let Some(rows) = unsafe { set_rows::rows(operands, self.bases) } {
            dsts[0] = Some(rows);
        }
        for tensor in dsts.iter().flatten() {
            written.before_use(platform, tensor, self.bases);
        }
        dsts
    }

    /// Notes what an op has written, a kernel that failed included: that must not come out of the cache some time later.
    pub(super) fn after_write(&self, dsts: &[Option<TensorDesc>; 4], written: &mut WrittenRanges) {
        for tensor in dsts.iter().flatten() {
            written.after_write(self.pool.platform(), tensor, self.bases);
        }
    }

    /// Runs the kernel of an op whose operands are in place.
    pub(super) fn run_kernel(
        &self,
        operands: &Operands<'a>,
        scratch: Span<'a, u8>,
        streaming: Option<Streaming<'_>>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller of `new` vouches for view and places.
        let args = unsafe { operands.resolve(self.bases) }.map_err(|status| fail(status, 0))?;
        let cx = Context::new(self.pool, scratch)
            .with_unit(self.unit)
            .streaming(streaming);
        self.kernels.run(&cx, &args).map_err(|status| fail(status, 0))
    }

    /// Source `idx` as a tensor.
    pub(super) fn src_tensor(&self, operands: &Operands<'a>, idx: usize) -> Result<Tensor<'a>, Failure> {
        let desc = operands.src(idx).map_err(|status| fail(status, 0))?;
        // SAFETY: the caller of `new` vouches for view and places.
        let tensor = unsafe { operands::tensor(desc, operands.staged[idx], self.bases) };
        tensor.map_err(|status| fail(status, 0))
    }

    /// Threads of the session.
    pub(super) fn n_threads(&self) -> u32 {
        self.pool.n_threads()
    }

    /// All scratch, with nothing in flight into it.
    pub(super) fn whole_scratch(&self) -> Result<Span<'a, u8>, Failure> {
        Ok(self.scratch_for(u64::MAX)?.0)
    }

    /// Ends the session's usefulness: a transfer that failed may still write.
    pub(super) fn poison(&self, status: Status) -> Failure {
        self.pool.poison();
        fail(status, 0)
    }

    /// Scratch for an op that needs at least so much: streams keep their region unless the op cannot do without it.
    fn scratch_for(&self, least: u64) -> Result<(Span<'a, u8>, Option<&Streams<'a>>), Failure> {
        let Some(streams) = &self.streams else {
            return Ok((self.scratch, None));
        };
        let rest = self.scratch.len() - Streams::region_bytes(self.scratch.len());
        if least <= rest as u64 {
            return Ok((self.scratch.part(0, rest), Some(streams)));
        }
        self.drain(streams)?;
        Ok((self.scratch, None))
    }

    fn drain(&self, streams: &Streams<'_>) -> Result<(), Failure> {
        if streams.failure().is_none() && !streams.is_idle() {
            let drained = self.pool.fork(Work::new::<Plain, _>(&Drain(streams)));
            drained.map_err(|status| fail(status, 0))?;
        }
        self.check(streams)
    }

    fn check(&self, streams: &Streams<'_>) -> Result<(), Failure> {
        streams.failure().map_or(Ok(()), |status| Err(self.poison(status)))
    }
}

/// Fails the batch, with an op index that the caller knows.
pub(super) fn fail(status: Status, detail: u32) -> Failure {
    Failure {
        status,
        op_idx: NO_OP,
        detail,
    }
}
