//! Ops that order sessions: fences, copies that signal, and reductions over several sessions.
//!
//! What changes on every run, the sequence numbers, is not in the graph: [`Sync`] says whose numbers an op takes, and the
//! prepared graph writes them before it sends the op.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hexloom_abi::fence::{AllreduceParams, FenceRef, MAX_RANKS, SLOT_WORDS};
use hexloom_abi::op::Shape;
use hexloom_abi::{DType, Opcode};

use super::{Graph, Role, Storage, TensorId};
use crate::error::{GraphError, SubmitError};
use crate::session::{Event, Session};

/// Longest wait for a peer, in microseconds, until a session's own is written in its place.
const PLACEHOLDER_US: u32 = 1;

/// Whose numbers an op takes when it is sent.
#[derive(Clone, Debug)]
pub(crate) enum Sync {
    /// Promises the event's next number and signals it.
    Signal(Event),
    /// Waits for the number that the event has promised last.
    Wait(Event),
    /// Takes part in the next round of a reduction.
    Reduce(Reduction, u32),
}

/// A sum over the tensors of several sessions, one rank each. Clones are the same reduction.
///
/// Every rank's graph must be run equally often: the n-th run of one meets the n-th run of the others.
#[derive(Clone, Debug)]
pub struct Reduction {
    ranks: Arc<[Rank]>,
}

#[derive(Debug)]
struct Rank {
    event: Event,
    round: AtomicU32,
}

impl Reduction {
    /// A reduction over 2 to 4 sessions, whose order is that of the sum.
    pub fn new(name: &str, sessions: &[Session]) -> Result<Self, SubmitError> {
        if sessions.is_empty() || sessions.len() > MAX_RANKS as usize {
            return Err(SubmitError::Graph(GraphError::Tensor {
                name: name.to_owned(),
                what: format!(
                    "{} sessions cannot be reduced over; 1 to {MAX_RANKS} can",
                    sessions.len()
                ),
            }));
        }
        let rank = |(idx, session): (usize, &Session)| {
            Ok(Rank {
                event: session.event(&format!("{name} of rank {idx}"))?,
                round: AtomicU32::new(0),
            })
        };
        let ranks: Result<Vec<Rank>, SubmitError> = sessions.iter().enumerate().map(rank).collect();
        Ok(Self { ranks: ranks?.into() })
    }

    /// Sessions that take part.
    pub fn n_ranks(&self) -> usize {
        self.ranks.len()
    }

    /// Makes the next run of every rank the same round, after a run that not all ranks have started.
    pub fn realign(&self) {
        let rounds = self.ranks.iter().map(|rank| rank.round.load(Ordering::Relaxed));
        let latest = rounds.max().unwrap_or(0);
        self.ranks
            .iter()
            .for_each(|rank| rank.round.store(latest, Ordering::Relaxed));
    }

    /// Entry and exit number of a rank's next round.
    pub(crate) fn next_round(&self, rank: u32) -> [u32; 2] {
        let rank = &self.ranks[rank as usize];
        let round = rank.round.fetch_add(1, Ordering::Relaxed);
        // Two numbers a round, 0 left out: nobody has promised it.
        let entry = round.wrapping_mul(2).wrapping_add(1);
        let exit = entry.wrapping_add(1);
        rank.event.promise_number(exit);
        [entry, exit]
    }
}

impl Sync {
    /// The events whose slots the op names.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        let (one, ranks): (Option<&Event>, &[Rank]) = match self {
            Self::Signal(event) | Self::Wait(event) => (Some(event), &[]),
            Self::Reduce(reduction, _) => (None, &reduction.ranks),
        };
        one.into_iter().chain(ranks.iter().map(|rank| &rank.event))
    }

    /// The parameters that hold this run's numbers, with the numbers.
    pub(crate) fn next(&self) -> [Option<(usize, u32)>; 2] {
        match self {
            Self::Signal(event) => [Some((FenceRef::SEQ_PARAM, event.promise())), None],
            Self::Wait(event) => [Some((FenceRef::SEQ_PARAM, event.promised())), None],
            Self::Reduce(reduction, rank) => {
                let [entry, exit] = reduction.next_round(*rank);
                [
                    Some((AllreduceParams::ENTRY_SEQ_PARAM, entry)),
                    Some((AllreduceParams::EXIT_SEQ_PARAM, exit)),
                ]
            }
        }
    }
}

impl Graph {
    /// Signals `event` once everything recorded so far is done and visible to other sessions.
    pub fn signal(&mut self, event: &Event) -> Result<(), GraphError> {
        let slot = self.slot(event);
        let params = FenceRef::signal(0).params();
        self.checked_node(
            event.name(),
            Opcode::Fence,
            params,
            (vec![], vec![slot]),
            Some(Sync::Signal(event.clone())),
        )
    }

    /// Waits for `event` before anything that is recorded later.
    pub fn wait_for(&mut self, event: &Event) -> Result<(), GraphError> {
        let slot = self.slot(event);
        let params = FenceRef::wait(0, PLACEHOLDER_US).params();
        let operands = (vec![Some(slot)], vec![]);
        self.checked_node(
            event.name(),
            Opcode::Fence,
            params,
            operands,
            Some(Sync::Wait(event.clone())),
        )
    }

    /// Copies `from` into `into`, which may lie in another session's buffer, then signals `event`; gives `into`.
    pub fn cpy_signal(&mut self, from: TensorId, into: TensorId, event: &Event) -> Result<TensorId, GraphError> {
        let slot = self.slot(event);
        let params = FenceRef::signal(0).params();
        let operands = (vec![Some(from)], vec![into, slot]);
        let sync = Sync::Signal(event.clone());
        self.checked_node(event.name(), Opcode::CpyFence, params, operands, Some(sync))?;
        Ok(into)
    }

    /// Replaces every rank's tensor by the sum of them all, in rank order: element by element as one session would add
    /// them one after the other. `tensors` are the ranks' tensors as this graph sees them, all placed; `rank` is this
    /// session's. Gives its own.
    pub fn all_reduce(
        &mut self,
        name: &str,
        reduction: &Reduction,
        rank: usize,
        tensors: &[TensorId],
    ) -> Result<TensorId, GraphError> {
        self.reduced(name, reduction, rank, tensors, None)
    }

    /// The same with `addend` added to the sum: as an `add` of the two would, in one op. Every rank names a tensor of its own
    /// session with the same values, of the tensors' shape or one row of it.
    pub fn all_reduce_add(
        &mut self,
        name: &str,
        reduction: &Reduction,
        rank: usize,
        tensors: &[TensorId],
        addend: TensorId,
    ) -> Result<TensorId, GraphError> {
        self.reduced(name, reduction, rank, tensors, Some(addend))
    }

    fn reduced(
        &mut self,
        name: &str,
        reduction: &Reduction,
        rank: usize,
        tensors: &[TensorId],
        addend: Option<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let own = tensors
            .get(rank)
            .copied()
            .filter(|_| tensors.len() == reduction.n_ranks());
        let own = own.ok_or_else(|| GraphError::Tensor {
            name: name.to_owned(),
            what: format!(
                "rank {rank} with {} tensors of a reduction over {} sessions",
                tensors.len(),
                reduction.n_ranks()
            ),
        })?;
        let slots: Vec<TensorId> = reduction.ranks.iter().map(|rank| self.slot(&rank.event)).collect();
        let params = AllreduceParams {
            rank: rank as u32,
            n_ranks: tensors.len() as u32,
            entry_seq: 1,
            exit_seq: 2,
            timeout_us: PLACEHOLDER_US,
        };
        let opcode = match addend {
            Some(_) => Opcode::AllreduceAdd,
            None => Opcode::Allreduce,
        };
        let srcs = tensors.iter().chain(&slots).chain(&addend).copied().map(Some).collect();
        let sync = Sync::Reduce(reduction.clone(), rank as u32);
        self.checked_node(name, opcode, params.params(), (srcs, tensors.to_vec()), Some(sync))?;
        Ok(own)
    }

    /// The tensor of an event's slot.
    fn slot(&mut self, event: &Event) -> TensorId {
        let storage = Storage::Fence(event.clone());
        self.add_tensor(event.name(), slots_shape(1), storage, Role::Inner)
    }
}

/// The shape of `n` fence slots side by side.
pub(crate) fn slots_shape(n: u32) -> Shape {
    let line = SLOT_WORDS * 4;
    Shape {
        dtype: DType::I32,
        tiled: false,
        ne: [SLOT_WORDS, n, 1, 1],
        nb: [4, line, line * n, line * n],
    }
}
