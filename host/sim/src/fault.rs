//! What goes wrong on the simulated DSP, and when.

use std::sync::{Arc, Mutex, PoisonError};

/// Faults to come. Clones share the list; each entry happens once.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    entries: Arc<Mutex<Vec<Entry>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    seq: u64,
    op_idx: u32,
    kind: FaultKind,
}

/// A fault.
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

impl FaultPlan {
    /// Adds a fault in the batch with sequence number `seq`, before op `op_idx`.
    pub fn add(&self, seq: u64, op_idx: u32, kind: FaultKind) {
        self.lock().push(Entry { seq, op_idx, kind });
    }

    /// Takes the fault planned for an op, if any.
    pub(crate) fn at_op(&self, seq: u64, op_idx: u32) -> Option<FaultKind> {
        self.take(|entry| entry.seq == seq && entry.op_idx == op_idx && !matches!(entry.kind, FaultKind::Reply(_)))
    }

    /// Takes the garbage planned for a batch's reply, if any.
    pub(crate) fn at_reply(&self, seq: u64) -> Option<Garbage> {
        let taken = self.take(|entry| entry.seq == seq && matches!(entry.kind, FaultKind::Reply(_)));
        match taken {
            Some(FaultKind::Reply(garbage)) => Some(garbage),
            _ => None,
        }
    }

    fn take(&self, wanted: impl Fn(&Entry) -> bool) -> Option<FaultKind> {
        let mut entries = self.lock();
        let idx = entries.iter().position(wanted)?;
        Some(entries.swap_remove(idx).kind)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
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
