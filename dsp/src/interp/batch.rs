//! The ops of a batch whose buffers are resolved, with the progress line before each and its profile record after.

use hexloom_abi::limits::PMU_COUNTERS;
use hexloom_abi::message::REQUEST_PROFILE;
use hexloom_abi::{BatchProgress, BatchRequest, BatchView, BlockLayout, OpProfile, Opcode, Status};
use zerocopy::IntoBytes;

use super::op::OpRunner;
use super::written::WrittenRanges;
use super::{BlockRef, Failure, Progress, SessionLimits};
use crate::hmx::UnitKind;
use crate::log;
use crate::mapping::Bases;
use crate::platform::Platform;
use crate::pool::Pool;
use crate::tensor::Span;

/// A batch whose buffers are resolved, and what it runs on.
pub(super) struct Batch<'a, P> {
    pub(super) pool: &'a Pool<P>,
    pub(super) limits: &'a SessionLimits,
    pub(super) unit: Option<UnitKind>,
    pub(super) scratch: Span<'a, u8>,
    pub(super) request: &'a BatchRequest,
    pub(super) block: &'a BlockRef,
    pub(super) layout: &'a BlockLayout,
}

impl<P: Platform> Batch<'_, P> {
    /// Runs all ops, in order, to the first that fails.
    pub(super) fn run(
        &self,
        view: BatchView<'_>,
        bases: &Bases,
        written: &mut WrittenRanges,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        // SAFETY: `view` was checked by `parse`, `bases` come from mappings at least as large as its buffers, which stay
        // until the next batch resolves, and a session whose transfers fail is poisoned and resolves no more. Scratch
        // belongs to the session.
        let mut runner =
            unsafe { OpRunner::new(self.pool, (self.limits.kernels, self.unit), view, bases, self.scratch) };
        let ran = (0u32..).zip(view.ops()).try_for_each(|(op_idx, desc)| {
            let at = BatchProgress {
                seq: self.request.seq,
                op_idx,
                ..BatchProgress::default()
            };
            self.pool.trace().set_op(op_idx);
            write_block(self.block, self.layout.progress_offset, &at);
            self.pool.platform().clean(
                self.block.address + self.layout.progress_offset,
                size_of::<BatchProgress>() as u64,
            );
            let before = self.is_profiled().then(|| Readings::of(self.pool.platform()));
            let result = runner.run(op_idx as usize, written);
            if let Some(before) = before {
                let status = result.as_ref().err().map_or(Status::Ok, |failure| failure.status);
                let profile = OpProfile {
                    opcode: desc.opcode,
                    status: status.into(),
                    ..before.cost(self.pool.platform())
                };
                let offset = self.layout.profiles_offset + u64::from(op_idx) * size_of::<OpProfile>() as u64;
                write_block(self.block, offset, &profile);
            }
            result.map_err(|failure| {
                let opcode = Opcode::try_from(desc.opcode).map_or("unknown", Opcode::name);
                log::op_failed(self.request.seq, op_idx, opcode, failure.status.name(), failure.detail);
                Failure { op_idx, ..failure }
            })?;
            progress.n_ops_done += 1;
            Ok(())
        });
        // Of a failed batch, too, nothing may be in flight when its mappings go.
        let finished = runner.finish(written, ran.is_err());
        ran.and(finished)?;
        if self.is_profiled() {
            let bytes = self.layout.traces_offset - self.layout.profiles_offset;
            self.pool
                .platform()
                .clean(self.block.address + self.layout.profiles_offset, bytes);
        }
        Ok(())
    }

    fn is_profiled(&self) -> bool {
        self.request.flags & REQUEST_PROFILE != 0
    }
}

/// What a machine's clocks and counters show before an op.
struct Readings {
    cycles: u64,
    nanos: u64,
    packets: u32,
    counters: [u32; PMU_COUNTERS],
}

impl Readings {
    fn of(platform: &impl Platform) -> Self {
        Self {
            counters: platform.counters(),
            cycles: platform.cycles(),
            nanos: platform.nanos(),
            packets: platform.packets(),
        }
    }

    /// What has gone by since; the record's other fields are 0.
    fn cost(&self, platform: &impl Platform) -> OpProfile {
        let now = Self::of(platform);
        let mut pmu = now.counters;
        for (counter, before) in pmu.iter_mut().zip(self.counters) {
            *counter = counter.wrapping_sub(before);
        }
        OpProfile {
            cycles_start: self.cycles,
            cycles: now.cycles.wrapping_sub(self.cycles),
            packets: now.packets.wrapping_sub(self.packets),
            elapsed_ns: u32::try_from(now.nanos.saturating_sub(self.nanos)).unwrap_or(u32::MAX),
            pmu,
            ..OpProfile::default()
        }
    }
}

fn write_block<T: IntoBytes + zerocopy::Immutable>(block: &BlockRef, offset: u64, record: &T) {
    let bytes = record.as_bytes();
    let to = (block.address + offset) as *mut u8;
    // SAFETY: `check_message` has found the block at least as long as its layout, which has room for every record.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}
