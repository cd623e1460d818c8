//! What a fence slot tells its waiters, across wrap-around and later signals, and the rules of the ops that use slots.

use hexloom_abi::fence::{FENCE_SIGNAL, MAX_TIMEOUT_US, seq_reached};
use hexloom_abi::op::Shape;
use hexloom_abi::support::{Part, check, check_extended};
use hexloom_abi::{AllreduceParams, DType, FenceRef, FenceSlot, GroupParams, Op, Opcode, Status};
use proptest::prelude::*;

proptest! {
    /// Signals in order, failures among them: a waiter fails exactly from the first that failed to the last.
    #[test]
    fn a_late_waiter_misses_no_failure(start in any::<u32>(), failed in prop::collection::vec(any::<bool>(), 1..40)) {
        let mut slot = FenceSlot { seq: start, ..FenceSlot::new() }.signalled(start, Status::Ok);
        let numbers = || (1u32..).zip(&failed).map(|(step, failed)| (start.wrapping_add(step), *failed));
        for (seq, failed) in numbers() {
            let status = if failed { Status::IndexOutOfRange } else { Status::Ok };
            slot = slot.signalled(seq, status);
        }
        for (seq, _) in numbers() {
            let fails = numbers().any(|(later, failed)| failed && seq_reached(later, seq))
                && numbers().any(|(earlier, failed)| failed && seq_reached(seq, earlier));
            let wanted = if fails { Status::IndexOutOfRange } else { Status::Ok };
            prop_assert_eq!(slot.outcome(seq), Some(wanted));
        }
        prop_assert_eq!(slot.outcome(slot.seq.wrapping_add(1)), None);
    }
}

#[test]
fn old_failures_are_forgotten_before_they_look_new() {
    let mut slot = FenceSlot::new().signalled(1, Status::Timeout);
    for step in 1..8u32 {
        let seq = step << 29;
        slot = slot.signalled(seq, Status::Ok);
        assert_eq!(slot.outcome(seq), Some(Status::Ok), "{seq:#x}");
    }
}

/// What a group does once all have come to a later barrier.
#[test]
fn a_settled_failure_does_not_reach_the_next_one() {
    let slot = FenceSlot::new().signalled(4, Status::Timeout).signalled(5, Status::Ok);
    let slot = slot
        .settled()
        .signalled(8, Status::Ok)
        .signalled(12, Status::WindowFull);
    let outcomes = [5, 8, 9, 12].map(|seq| slot.outcome(seq).unwrap());
    assert_eq!(
        outcomes,
        [Status::Ok, Status::Ok, Status::WindowFull, Status::WindowFull]
    );
}

#[test]
fn fresh_memory_is_no_failure_and_other_numbers_are() {
    let zeros = FenceSlot {
        seq: 0,
        status: hexloom_abi::StatusCode(0),
        ..FenceSlot::new()
    };
    assert_eq!((zeros.outcome(0), zeros.outcome(1)), (Some(Status::Ok), None));
    let garbage = FenceSlot {
        status: hexloom_abi::StatusCode(77),
        failed_after: u32::MAX,
        ..FenceSlot::new()
    };
    assert_eq!(garbage.outcome(0), Some(Status::Internal));
}

fn op(opcode: Opcode, params: [u32; 16], srcs: &[Shape], dsts: &[Shape]) -> Op {
    let mut op = Op {
        opcode,
        params,
        srcs: [None; 10],
        dsts: [None; 4],
    };
    for (to, from) in op.srcs.iter_mut().zip(srcs) {
        *to = Some(*from);
    }
    for (to, from) in op.dsts.iter_mut().zip(dsts) {
        *to = Some(*from);
    }
    op
}

fn dense(dtype: DType, ne: [u32; 4]) -> Shape {
    Shape::dense(dtype, ne).unwrap()
}

fn slots(n: u32) -> Shape {
    dense(DType::I32, [32, n, 1, 1])
}

fn refused_at(op: &Op) -> Option<Part> {
    check(op).err().map(|refusal| refusal.at)
}

#[test]
fn fences() {
    let wait = |timeout| op(Opcode::Fence, FenceRef::wait(1, timeout).params(), &[slots(1)], &[]);
    assert_eq!(refused_at(&wait(1)), None);
    assert_eq!(refused_at(&wait(MAX_TIMEOUT_US)), None);
    for unbounded in [0, MAX_TIMEOUT_US + 1] {
        assert_eq!(refused_at(&wait(unbounded)), Some(Part::Param(3)));
    }
    let signal = |srcs: &[Shape], dsts: &[Shape]| op(Opcode::Fence, FenceRef::signal(1).params(), srcs, dsts);
    assert_eq!(refused_at(&signal(&[], &[slots(1)])), None);
    assert_eq!(refused_at(&signal(&[slots(1)], &[])), Some(Part::Src(0)));
    assert_eq!(refused_at(&signal(&[], &[])), Some(Part::Dst(0)));
    assert_eq!(refused_at(&signal(&[], &[slots(2)])), Some(Part::Dst(0)));
    let mut unknown = wait(1);
    unknown.params[2] = 3;
    assert_eq!(refused_at(&unknown), Some(Part::Param(2)));
    let x = dense(DType::F32, [8, 1, 1, 1]);
    let copy = |params| op(Opcode::CpyFence, params, &[x], &[x, slots(1)]);
    assert_eq!(refused_at(&copy(FenceRef::signal(1).params())), None);
    assert_eq!(refused_at(&copy(FenceRef::wait(1, 1).params())), Some(Part::Param(2)));
    assert_eq!(
        FENCE_SIGNAL,
        FenceRef::of(&copy(FenceRef::signal(1).params()).params).mode
    );
}

#[test]
fn groups() {
    let group = |member, n_members, n_slots| {
        let params = GroupParams {
            member,
            n_members,
            base_seq: 7,
            timeout_us: 1,
        };
        op(Opcode::MdevGroup, params.params(), &[slots(n_slots)], &[])
    };
    assert_eq!(refused_at(&group(0, 1, 1)), None);
    assert_eq!(refused_at(&group(7, 8, 8)), None);
    assert_eq!(refused_at(&group(2, 2, 2)), Some(Part::Param(0)));
    assert_eq!(refused_at(&group(0, 9, 9)), Some(Part::Param(1)));
    assert_eq!(refused_at(&group(0, 2, 1)), Some(Part::Src(0)));
}

#[test]
fn reductions() {
    let params = AllreduceParams {
        rank: 1,
        n_ranks: 2,
        entry_seq: u32::MAX,
        exit_seq: 0,
        timeout_us: 1,
    };
    let x = |dtype| dense(dtype, [96, 3, 1, 1]);
    let plain = |dtype, n_dsts: usize| {
        let srcs = [x(dtype), x(dtype), slots(1), slots(1)];
        op(Opcode::Allreduce, params.params(), &srcs, &vec![x(dtype); n_dsts])
    };
    for dtype in [DType::F32, DType::F16] {
        assert_eq!(refused_at(&plain(dtype, 1)), None);
        assert_eq!(refused_at(&plain(dtype, 2)), None);
    }
    assert_eq!(refused_at(&plain(DType::I32, 1)), Some(Part::Src(0)));
    assert_eq!(refused_at(&plain(DType::F32, 0)), Some(Part::Op));
    assert_eq!(refused_at(&plain(DType::F32, 3)), Some(Part::Op));
    let mut backwards = plain(DType::F32, 1);
    backwards.params[AllreduceParams::EXIT_SEQ_PARAM] = u32::MAX;
    assert_eq!(refused_at(&backwards), Some(Part::Param(3)));
    let mut other_shape = plain(DType::F32, 1);
    other_shape.srcs[1] = Some(dense(DType::F32, [96, 2, 1, 1]));
    assert_eq!(refused_at(&other_shape), Some(Part::Src(1)));
    let with = |addend: Shape| {
        let srcs = [x(DType::F32), x(DType::F32), slots(1), slots(1), addend];
        op(Opcode::AllreduceAdd, params.params(), &srcs, &[x(DType::F32)])
    };
    assert_eq!(refused_at(&with(x(DType::F32))), None);
    assert_eq!(refused_at(&with(dense(DType::F32, [96, 1, 1, 1]))), None);
    assert_eq!(refused_at(&with(dense(DType::F32, [1, 1, 1, 1]))), Some(Part::Src(4)));
    assert_eq!(refused_at(&with(x(DType::F16))), Some(Part::Src(4)));
}

#[test]
fn extended_operands() {
    let x = dense(DType::F32, [32, 1, 1, 1]);
    let add = op(Opcode::Add, [0; 16], &[x, x], &[x]);
    assert_eq!(check_extended(&add, 0b11, 0), Ok(()));
    assert_eq!(
        check_extended(&add, 0, 1).map_err(|refusal| refusal.at),
        Err(Part::Dst(0))
    );
    let wait = op(Opcode::Fence, FenceRef::wait(1, 1).params(), &[slots(1)], &[]);
    assert_eq!(
        check_extended(&wait, 1, 0).map_err(|refusal| refusal.at),
        Err(Part::Src(0))
    );
}
