//! The passes that quick mode tries, and the best placement among them.

use super::buffers::Buffer;
use super::greedy::{Conflicts, Placed};
use crate::plan::limits::Limits;
use crate::plan::result::Method;

/// Pairs alive together, per buffer, past which passes cost more than they are worth at every change of graph.
const PAIRS_PER_BUFFER: usize = 160;

/// Orders in the sequence they are tried; most graphs are settled by the first.
pub(crate) const ORDERS: [Method; 4] = [Method::BySize, Method::ByArea, Method::ByLifetime, Method::ByStart];

/// Best placement of the buffers of one kind so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Portfolio {
    pub(crate) conflicts: Conflicts,
    pub(crate) best: Placed,
    pub(crate) method: Option<Method>,
    lower_bound: u64,
    /// Placements with more chunks than this do not count.
    max_chunks: usize,
    attempt: Placed,
    order: Vec<u32>,
    keys: Vec<(u64, u32)>,
    has_conflicts: bool,
}

impl Portfolio {
    /// Starts over with other buffers.
    pub(crate) fn start(&mut self, buffers: &[Buffer], limits: &Limits, lower_bound: u64) {
        self.method = None;
        self.lower_bound = lower_bound;
        self.max_chunks = limits.max_chunks;
        self.has_conflicts = self
            .conflicts
            .find(buffers, buffers.len().saturating_mul(PAIRS_PER_BUFFER));
    }

    /// Whether nothing can beat the best in bytes, nor in number of chunks.
    pub(crate) fn settled(&self) -> bool {
        self.at_bound() && self.best.chunks.len() == 1
    }

    pub(crate) fn at_bound(&self) -> bool {
        self.method.is_some() && self.best.bytes() <= self.lower_bound
    }

    /// From now on placements with more chunks than `chunks` do not count, not even the best so far.
    pub(crate) fn allow_chunks(&mut self, chunks: usize) {
        self.max_chunks = chunks;
        if self.best.chunks.len() > chunks {
            self.method = None;
        }
    }

    /// Tries one order.
    pub(crate) fn try_order(&mut self, buffers: &[Buffer], limits: &Limits, method: Method) {
        if self.has_conflicts {
            self.sort(buffers, method);
            let done = self.attempt.fill(buffers, &self.conflicts, &self.order, limits);
            self.enter(done.is_ok(), method);
        }
    }

    /// Tries to fill chunk after chunk, by one order; worth it only where one chunk is not enough.
    pub(crate) fn try_by_chunk(&mut self, buffers: &[Buffer], limits: &Limits, order: Method) {
        if self.has_conflicts {
            self.sort(buffers, order);
            let done = self
                .attempt
                .fill_by_chunk(buffers, &self.conflicts, &self.order, limits);
            self.enter(done.is_ok(), Method::ChunkByChunk);
        }
    }

    /// Whether a placement of that size would be the new best.
    pub(crate) fn wants(&self, bytes: u64, chunks: usize) -> bool {
        let better = (bytes, chunks) < (self.best.bytes(), self.best.chunks.len());
        chunks <= self.max_chunks && (self.method.is_none() || better)
    }

    fn enter(&mut self, done: bool, method: Method) {
        if done && self.wants(self.attempt.bytes(), self.attempt.chunks.len()) {
            std::mem::swap(&mut self.best, &mut self.attempt);
            self.method = Some(method);
        }
    }

    fn sort(&mut self, buffers: &[Buffer], method: Method) {
        let key = |b: &Buffer| {
            let steps = u64::from(b.end - b.start);
            match method {
                Method::ByArea => b.bytes.saturating_mul(steps),
                Method::ByLifetime => steps,
                Method::ByStart => u64::from(u32::MAX - b.start),
                _ => b.bytes,
            }
        };
        self.keys.clear();
        self.keys.extend(buffers.iter().zip(0..).map(|(b, i)| (!key(b), i)));
        self.keys.sort_unstable();
        self.order.clear();
        self.order.extend(self.keys.iter().map(|k| k.1));
    }
}
