//! One op of a batch: rules, operands, caches, scratch and streams, kernel.

use hexloom_abi::message::NO_OP;
use hexloom_abi::{BatchView, Status, scratch, support};

use super::written::WrittenRanges;
use super::{Failure, lookahead, operands};
use crate::dma::stream::Streams;
use crate::hvx::plain::Plain;
use crate::hvx::{Isa, Kernel, Part};
use crate::kernels::{Context, KernelSet, Streaming};
use crate::mapping::Addresses;
use crate::platform::Platform;
use crate::pool::{Fork, Pool, Work};
use crate::tensor::Span;

/// What the ops of one batch run on.
pub(super) struct OpRunner<'a, P> {
    pub(super) pool: &'a Pool<P>,
    pub(super) kernels: KernelSet,
    pub(super) view: BatchView<'a>,
    pub(super) addresses: &'a Addresses,
    /// All of it; streams have the end.
    scratch: Span<'a, u8>,
    streams: Option<Streams<'a>>,
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
    ///   `addresses` until [`OpRunner::finish`] has returned without a failure;
    /// - nobody else uses `scratch` until then.
    pub(super) unsafe fn new(
        pool: &'a Pool<P>,
        kernels: KernelSet,
        view: BatchView<'a>,
        addresses: &'a Addresses,
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
            view,
            addresses,
            scratch,
            streams,
        }
    }

    /// Runs op `op_idx`.
    pub(super) fn run(&self, op_idx: usize, written: &mut WrittenRanges) -> Result<(), Failure> {
        let view = &self.view;
        let Some(desc) = view.ops().get(op_idx) else {
            return Err(fail(Status::Invalid, 0));
        };
        let n_threads = self.pool.n_threads();
        let op = view.op(desc).map_err(|status| fail(status, 0))?;
        support::check(&op).map_err(|refusal| fail(Status::Unsupported, refusal.detail()))?;
        scratch::check(&op, n_threads, self.scratch.len() as u64)
            .map_err(|refusal| fail(Status::ScratchTooSmall, refusal.detail()))?;
        operands::check_overlap(view, desc, &op).map_err(|detail| fail(Status::Invalid, detail))?;
        let platform = self.pool.platform();
        // Destinations too: a store into a line whose other bytes are stale here would send those back with it.
        for tensor in desc.srcs.iter().chain(&desc.dsts).filter_map(|&idx| view.operand(idx)) {
            written.before_use(platform, tensor, self.addresses);
        }
        let (scratch, streams) = self.scratch_for(scratch::need(&op, n_threads).least)?;
        let next = streams.and_then(|_| lookahead::next_product(self, op_idx, scratch.len() as u64, written));
        let streaming = streams.map(|streams| Streaming {
            streams,
            sources: lookahead::constants(self, desc, written),
            next: next.as_ref().map(|(args, sources)| (args, *sources)),
        });
        // SAFETY: the caller of `new` vouches for view and addresses.
        let args = unsafe { operands::resolve(view, desc, op, self.addresses) };
        platform.disturb_scratch(scratch.len());
        let cx = Context::new(self.pool, scratch).streaming(streaming);
        let result = self.kernels.run(&cx, &args);
        // A kernel that failed may have written a part, which must not come out of the cache at some later time.
        for tensor in desc.dsts.iter().filter_map(|&idx| view.operand(idx)) {
            written.after_write(platform, tensor, self.addresses);
        }
        result.map_err(|status| fail(status, 0))?;
        // What is in flight between two ops is what a product has pushed for the next one, with nothing in between that
        // writes it. If that one did not read it, nothing is known of what comes after.
        match streams {
            Some(streams) if lookahead::is_product(op.opcode) && !streams.take_was_read() => self.drain(streams),
            Some(streams) => self.check(streams),
            None => Ok(()),
        }
    }

    /// Waits until nothing of the batch is in flight.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        self.streams.as_ref().map_or(Ok(()), |streams| self.drain(streams))
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

    /// A transfer that failed may still write: the session ends with it.
    fn check(&self, streams: &Streams<'_>) -> Result<(), Failure> {
        match streams.failure() {
            Some(status) => {
                self.pool.poison();
                Err(fail(status, 0))
            }
            None => Ok(()),
        }
    }
}

fn fail(status: Status, detail: u32) -> Failure {
    Failure {
        status,
        op_idx: NO_OP,
        detail,
    }
}
