//! The passes that quick mode tries, and the best placement among them.

use super::buffers::Buffer;
use super::greedy::{Conflicts, Placed};
use super::pack::{Item, Meter, Random, log2, pack};
use crate::plan::dynamic::Address;
use crate::plan::limits::Limits;
use crate::plan::result::Method;

/// Pairs alive together, per buffer, past which passes cost more than they are worth at every change of graph.
const PAIRS_PER_BUFFER: usize = 160;

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

    /// Whether more passes would cost more than the little that is left to gain.
    fn good_enough(&self) -> bool {
        let gain = self.best.bytes().saturating_sub(self.lower_bound);
        self.at_bound() || (self.method.is_some() && self.conflicts.per_buffer() > 24 && gain <= self.lower_bound / 100)
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

    /// Tries what quick mode has beyond the first order, until the bound is met.
    pub(crate) fn try_others(&mut self, buffers: &[Buffer], limits: &Limits) {
        for method in [Method::ByArea, Method::ByLifetime, Method::ByStart] {
            if !self.good_enough() {
                self.try_order(buffers, limits, method);
            }
        }
        for order in [Method::BySize, Method::ByLifetime] {
            if self.has_conflicts && self.lower_bound > limits.chunk_bytes && !self.good_enough() {
                self.sort(buffers, order);
                self.try_by_chunk(buffers, limits);
            }
        }
    }

    /// Searches for something better than the best and than `bytes` until the bound is met or `meter` is over.
    pub(crate) fn improve(&mut self, buffers: &[Buffer], limits: &Limits, bytes: u64, meter: &mut Meter) {
        let height = if self.method.is_some() {
            self.best.bytes().min(bytes)
        } else {
            bytes
        };
        let largest = buffers.iter().map(|b| b.bytes).max().unwrap_or(0);
        if height <= limits.chunk_bytes.max(largest) {
            let item = |b: &Buffer| Item {
                start: b.start.into(),
                end: b.end.into(),
                bytes: b.bytes,
            };
            let items: Vec<Item> = buffers.iter().map(item).collect();
            if let Some((offsets, height)) = pack(&items, height, self.lower_bound, meter) {
                self.best.at.clear();
                self.best
                    .at
                    .extend(offsets.into_iter().map(|offset| Address { chunk: 0, offset }));
                self.best.chunks = vec![height];
                self.method = Some(Method::Search);
            }
        } else if self.has_conflicts {
            self.shuffle(buffers, limits, meter);
        }
    }

    /// Tries random mixtures of size and lifetime as order, both ways of filling chunks in turn.
    fn shuffle(&mut self, buffers: &[Buffer], limits: &Limits, meter: &mut Meter) {
        let mut random = Random::default();
        while !meter.is_over() && !self.at_bound() {
            let [high, long, noise] = [(); 3].map(|()| random.next(1 << 10));
            self.keys.clear();
            for (b, i) in buffers.iter().zip(0..) {
                let score = high * log2(b.bytes) + long * log2((b.end - b.start).into()) + noise * random.next(370);
                self.keys.push((!score, i));
            }
            self.order_by_keys();
            let best = (self.best.bytes(), self.method);
            let done = self.attempt.fill(buffers, &self.conflicts, &self.order, limits);
            self.enter(done.is_ok(), Method::Search);
            self.try_by_chunk(buffers, limits);
            if (self.best.bytes(), self.method) != best {
                self.method = Some(Method::Search);
            }
            meter.spend(buffers.len() as u64);
        }
    }

    /// Fills chunk after chunk by the order at hand; worth it only where one chunk is not enough.
    fn try_by_chunk(&mut self, buffers: &[Buffer], limits: &Limits) {
        let done = self
            .attempt
            .fill_by_chunk(buffers, &self.conflicts, &self.order, limits);
        self.enter(done.is_ok(), Method::ChunkByChunk);
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
        self.order_by_keys();
    }

    fn order_by_keys(&mut self) {
        self.keys.sort_unstable();
        self.order.clear();
        self.order.extend(self.keys.iter().map(|k| k.1));
    }
}
