//! What goes wrong on the simulated DSP, and when.

use std::sync::{Arc, Mutex, PoisonError};

use hexloom::transport::SessionAt;

/// Faults to come. Clones share the list; each entry happens once.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    planned: Arc<Mutex<Planned>>,
}

#[derive(Debug, Default)]
struct Planned {
    ops: Vec<OpFault>,
    calls: Vec<(u64, CallFault)>,
    deaf: Vec<(SessionAt, u32)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OpFault {
    seq: u64,
    op_idx: u32,
    kind: FaultKind,
}

/// A fault in a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The DSP process ends in the op.
    Die,
    /// The op never ends.
    Stall,
    /// The DMA engine completes nothing from the op on.
    DmaStall,
    /// The batch runs, its reply is garbage.
    Reply(Garbage),
}

/// What a garbage reply looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Garbage {
    /// Half of the bytes.
    Short,
    /// All bits set.
    Ones,
    /// Another batch's sequence number.
    WrongSeq,
    /// A status that does not exist.
    UnknownStatus,
}

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallFault {
    /// It does nothing and gives this code of the platform. On the DSP side a map fails, and an unmap leaves the mapping
    /// until the process ends.
    Code(i32),
    /// It does nothing and ends when its time is over. On the DSP side it never ends.
    Timeout,
    /// The DSP process ends before it; at a call of the transport, all do.
    Death,
}

impl FaultPlan {
    /// Adds a fault in the batch with sequence number `seq`, before op `op_idx`.
    pub fn add(&self, seq: u64, op_idx: u32, kind: FaultKind) {
        self.lock().ops.push(OpFault { seq, op_idx, kind });
    }

    /// Makes call number `n` of a transport fail, counted from 1 as [`crate::SimTransport::n_calls`] counts.
    pub fn fail_call(&self, n: u64, how: CallFault) {
        self.lock().calls.push((n, how));
    }

    /// Makes the DSP process at a place take no packet any more, from the next write on. Its queue has room for `room`
    /// packets that wait there; after those, writes find it full.
    pub fn deafen(&self, at: SessionAt, room: u32) {
        self.lock().deaf.push((at, room));
    }

    /// Whether everything planned has happened.
    pub fn is_spent(&self) -> bool {
        let planned = self.lock();
        planned.ops.is_empty() && planned.calls.is_empty() && planned.deaf.is_empty()
    }

    /// Forgets what has not happened.
    pub fn clear(&self) {
        *self.lock() = Planned::default();
    }

    /// Takes the fault planned for an op, if any.
    pub(crate) fn at_op(&self, seq: u64, op_idx: u32) -> Option<FaultKind> {
        self.take(|fault| fault.seq == seq && fault.op_idx == op_idx && !matches!(fault.kind, FaultKind::Reply(_)))
    }

    /// Takes the garbage planned for a batch's reply, if any.
    pub(crate) fn at_reply(&self, seq: u64) -> Option<Garbage> {
        let taken = self.take(|fault| fault.seq == seq && matches!(fault.kind, FaultKind::Reply(_)));
        match taken {
            Some(FaultKind::Reply(garbage)) => Some(garbage),
            _ => None,
        }
    }

    /// Takes the fault planned for a call, if any.
    pub(crate) fn at_call(&self, number: u64) -> Option<CallFault> {
        let mut planned = self.lock();
        let idx = planned.calls.iter().position(|&(n, _)| n == number)?;
        Some(planned.calls.swap_remove(idx).1)
    }

    /// Takes the room of a process that is to be deaf, if it is.
    pub(crate) fn deaf(&self, at: SessionAt) -> Option<u32> {
        let mut planned = self.lock();
        let idx = planned.deaf.iter().position(|&(place, _)| place == at)?;
        Some(planned.deaf.swap_remove(idx).1)
    }

    fn take(&self, wanted: impl Fn(&OpFault) -> bool) -> Option<FaultKind> {
        let ops = &mut self.lock().ops;
        let idx = ops.iter().position(wanted)?;
        Some(ops.swap_remove(idx).kind)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Planned> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Garbage {
    /// Spoils a reply's bytes.
    pub(crate) fn spoil(self, reply: &mut Vec<u8>) {
        match self {
            Self::Short => reply.truncate(reply.len() / 2),
            Self::Ones => reply.fill(0xff),
            Self::WrongSeq => reply[8..16].copy_from_slice(&u64::MAX.to_le_bytes()),
            Self::UnknownStatus => reply[16..20].copy_from_slice(&9999u32.to_le_bytes()),
        }
    }
}
