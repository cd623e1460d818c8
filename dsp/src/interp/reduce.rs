//! ALLREDUCE and ALLREDUCE_ADD: the protocol around the kernel that sums.
//!
//! A rank writes back what it has and signals "entry" in its own slot; when all have, it sums its share of every rank's
//! tensor in rank order and stores it into every destination, then signals "exit"; when all have, every destination is
//! whole and nobody reads a source any more. Shares begin on 128-byte lines, so no line has two writers.

use hexloom_abi::fence::MAX_RANKS;
use hexloom_abi::limits::LINE_BYTES;
use hexloom_abi::op::Shape;
use hexloom_abi::{AllreduceParams, Opcode, Status, TensorDesc};

use super::Failure;
use super::fence::Slot;
use super::op::{OpRunner, fail};
use super::operands::{Operands, address_of, cut};
use super::written::WrittenRanges;
use crate::kernels::REDUCE_START_PARAM;
use crate::platform::Platform;

pub(super) fn run<'a, P: Platform>(
    runner: &OpRunner<'a, P>,
    operands: &Operands<'a>,
    written: &mut WrittenRanges,
) -> Result<(), Failure> {
    let params = AllreduceParams::of(&operands.params);
    let n_ranks = params.n_ranks as usize;
    let mut slots: heapless::Vec<(u32, Slot<'a>), { MAX_RANKS as usize }> = heapless::Vec::new();
    for idx in n_ranks..2 * n_ranks {
        let slot = operands.src(idx).and_then(|tensor| runner.slot(tensor));
        let slot = slot.map_err(|status| fail(status, 0x100 | idx as u32))?;
        // The support rules have seen no more ranks than there is room for.
        let _ = slots.push((idx as u32, slot));
    }
    check_lines(runner, operands, n_ranks)?;
    let meet = |seq: u32| {
        if let Some((_, own)) = slots.get(params.rank as usize) {
            own.signal(runner.pool.platform(), seq, Status::Ok);
        }
        let others = slots.iter().filter(|(idx, _)| *idx != params.n_ranks + params.rank);
        others
            .into_iter()
            .try_for_each(|(idx, slot)| runner.wait(slot, seq, params.timeout_us, *idx))
    };
    written.clean_all(runner.pool.platform());
    meet(params.entry_seq)?;
    if let Some(share) = share(operands, &params) {
        let dsts = runner.before_use(&share, written);
        let scratch = runner.whole_scratch()?;
        runner.pool.platform().disturb_scratch(scratch.len());
        let result = runner.run_kernel(&share, scratch, None);
        runner.after_write(&dsts, written);
        result?;
        written.clean_all(runner.pool.platform());
    }
    meet(params.exit_seq)
}

/// Refuses tensors that do not begin on a line.
fn check_lines<P: Platform>(runner: &OpRunner<'_, P>, operands: &Operands<'_>, n_ranks: usize) -> Result<(), Failure> {
    let on_line = |tensor: &TensorDesc| {
        let address = address_of(tensor, runner.bases);
        address.is_some_and(|address| address.is_multiple_of(LINE_BYTES))
    };
    for (idx, src) in (0u32..).zip(&operands.srcs).take(n_ranks) {
        if !src.as_ref().is_none_or(on_line) {
            return Err(fail(Status::Invalid, 0x100 | idx));
        }
    }
    for (idx, dst) in (0u32..).zip(&operands.dsts) {
        if !dst.as_ref().is_none_or(on_line) {
            return Err(fail(Status::Invalid, 0x200 | idx));
        }
    }
    Ok(())
}

/// A rank's share as the same op over runs of elements; `None` when it has none.
///
/// With one destination a rank sums everything, for itself.
fn share<'a>(operands: &Operands<'a>, params: &AllreduceParams) -> Option<Operands<'a>> {
    let n_ranks = params.n_ranks as usize;
    let first = Shape::try_from(operands.src(0).ok()?).ok()?;
    let (elems, row) = (u32::try_from(first.elems()).ok()?, first.ne[0]);
    let n_dsts = operands.dsts.iter().flatten().count();
    let (rank, n_shares) = match n_dsts == n_ranks {
        true => (params.rank, params.n_ranks),
        false => (0, 1),
    };
    let per_line = LINE_BYTES as u32 / first.nb[0].max(1);
    let len = elems.div_ceil(per_line).div_ceil(n_shares) * per_line;
    let start = len.checked_mul(rank)?.min(elems);
    let len = len.min(elems - start);
    if len == 0 {
        return None;
    }
    let run = |tensor: &TensorDesc| cut(&flat(tensor, elems), 0, start, len);
    let mut share = operands.clone();
    share.params[REDUCE_START_PARAM] = 0;
    for src in share.srcs.iter_mut().take(n_ranks) {
        *src = src.as_ref().map(run);
    }
    for slot in share.srcs.iter_mut().skip(n_ranks).take(n_ranks) {
        *slot = None;
    }
    for dst in &mut share.dsts {
        *dst = dst.as_ref().map(run);
    }
    if operands.opcode == Opcode::AllreduceAdd {
        let addend = operands.src(2 * n_ranks).ok()?;
        let repeats = addend.ne != first.ne;
        share.srcs[2 * n_ranks] = Some(match repeats {
            true => flat(addend, row),
            false => run(addend),
        });
        if repeats {
            share.params[REDUCE_START_PARAM] = start;
        }
    }
    Some(share)
}

/// A dense tensor as one row.
fn flat(tensor: &TensorDesc, elems: u32) -> TensorDesc {
    let mut row = *tensor;
    row.ne = [elems, 1, 1, 1];
    row
}
