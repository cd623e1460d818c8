//! The answer: what to drop and what to map before each batch, for as many tokens as it takes to repeat.

use super::cycle::{Cost, Cycle, Set, Sets, members};

/// What happens before one batch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Buffers to be taken back first.
    pub drop: Vec<usize>,
    /// Buffers that the batch maps then.
    pub map: Vec<usize>,
}

/// Steps that repeat.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// Buffers to be mapped before the first token, largest first.
    pub first: Vec<usize>,
    /// Steps of each batch of each token; token `t` takes entry `t % tokens.len()`.
    pub tokens: Vec<Vec<Step>>,
    /// Maps in all of `tokens`.
    pub maps: u64,
    /// Bytes of these maps.
    pub bytes: u64,
    /// No schedule can do with fewer maps per token.
    pub lower_bound: f64,
    /// Whether all schedules were looked at, so that none has fewer maps, or equal maps and fewer bytes.
    pub proven: bool,
}

/// How a schedule is wrong; batches count from the first token on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScheduleFault {
    /// Another number of batches than the cycle.
    #[error("token {0} has another number of batches")]
    Batches(usize),
    /// Something is dropped that is not mapped, or mapped that already is.
    #[error("batch {0} drops what is not mapped or maps what is")]
    Twice(usize),
    /// A batch lacks a buffer.
    #[error("batch {0} runs without one of its buffers")]
    Missing(usize),
    /// More is mapped than the window holds.
    #[error("batch {0} has more mapped than the window holds")]
    Full(usize),
    /// The end is not the beginning.
    #[error("what is mapped at the end is not what was at the beginning")]
    Open,
    /// The counts are not those of the steps.
    #[error("the counts are not those of the steps")]
    Counts,
}

impl Schedule {
    /// Maps per token.
    pub fn maps_per_token(&self) -> f64 {
        self.maps as f64 / self.tokens.len().max(1) as f64
    }

    /// Bytes mapped per token.
    pub fn bytes_per_token(&self) -> f64 {
        self.bytes as f64 / self.tokens.len().max(1) as f64
    }

    /// Proves that the schedule serves `cycle` and repeats.
    ///
    /// # Errors
    /// The first [`ScheduleFault`].
    pub fn check(&self, cycle: &Cycle) -> Result<(), ScheduleFault> {
        let mut mapped = vec![false; cycle.buffer_bytes.len()];
        self.first.iter().for_each(|&buffer| mapped[buffer] = true);
        let before = mapped.clone();
        let (mut maps, mut bytes) = (0, 0);
        for (token, steps) in self.tokens.iter().enumerate() {
            if steps.len() != cycle.batches.len() {
                return Err(ScheduleFault::Batches(token));
            }
            for (batch, (step, needed)) in steps.iter().zip(&cycle.batches).enumerate() {
                let at = token * steps.len() + batch;
                for (list, to) in [(&step.drop, false), (&step.map, true)] {
                    for &buffer in list {
                        if std::mem::replace(&mut mapped[buffer], to) == to {
                            return Err(ScheduleFault::Twice(at));
                        }
                    }
                }
                maps += step.map.len() as u64;
                bytes += step.map.iter().map(|&buffer| cycle.buffer_bytes[buffer]).sum::<u64>();
                if needed.iter().any(|&buffer| !mapped[buffer]) {
                    return Err(ScheduleFault::Missing(at));
                }
                let used = mapped.iter().zip(&cycle.buffer_bytes).filter(|(mapped, _)| **mapped);
                if used.map(|(_, bytes)| bytes).sum::<u64>() > cycle.window_bytes {
                    return Err(ScheduleFault::Full(at));
                }
            }
        }
        match () {
            () if mapped != before => Err(ScheduleFault::Open),
            () if (maps, bytes) != (self.maps, self.bytes) => Err(ScheduleFault::Counts),
            () => Ok(()),
        }
    }

    /// Everything stays mapped.
    pub(super) fn resident(cycle: &Cycle, all: Set) -> Self {
        Self {
            first: largest_first(cycle, all),
            tokens: vec![vec![Step::default(); cycle.batches.len()]],
            maps: 0,
            bytes: 0,
            lower_bound: 0.0,
            proven: true,
        }
    }
}

/// What is mapped during each batch of tokens that repeat: each entry leads to the next, the last to the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Round {
    pub(super) mapped: Vec<Set>,
}

impl Round {
    /// What the round costs.
    pub(super) fn cost(&self, sets: &Sets<'_>) -> Cost {
        let before = self.mapped.iter().cycle().skip(self.mapped.len() - 1);
        let new = self.mapped.iter().zip(before).map(|(now, before)| now & !before);
        new.fold(Cost::default(), |cost, new| cost + sets.cost(new))
    }

    /// Tokens in the round.
    pub(super) fn tokens(&self, sets: &Sets<'_>) -> usize {
        self.mapped.len() / sets.batches.len()
    }

    /// Whether it costs less per token than `other`.
    pub(super) fn beats(&self, other: &Self, sets: &Sets<'_>) -> bool {
        let scaled = |a: &Self, b: &Self| a.cost(sets).weight() * b.tokens(sets) as i128;
        scaled(self, other) < scaled(other, self)
    }

    /// The schedule; `lower_bound` is `None` when the round is known to be the best.
    pub(super) fn into_schedule(self, cycle: &Cycle, lower_bound: Option<f64>) -> Schedule {
        let n_batches = cycle.batches.len();
        let last = self.mapped.last().copied().unwrap_or(0);
        let mut before = last;
        let (mut maps, mut bytes) = (0, 0);
        let mut step = |&now: &Set| {
            let step = Step {
                drop: members(before & !now).collect(),
                map: largest_first(cycle, now & !before),
            };
            before = now;
            maps += step.map.len() as u64;
            bytes += step.map.iter().map(|&buffer| cycle.buffer_bytes[buffer]).sum::<u64>();
            step
        };
        let tokens: Vec<Vec<Step>> = self
            .mapped
            .chunks(n_batches)
            .map(|token| token.iter().map(&mut step).collect())
            .collect();
        let per_token = maps as f64 / tokens.len().max(1) as f64;
        Schedule {
            first: largest_first(cycle, last),
            tokens,
            maps,
            bytes,
            lower_bound: lower_bound.map_or(per_token, |bound| bound.min(per_token)),
            proven: lower_bound.is_none(),
        }
    }
}

fn largest_first(cycle: &Cycle, set: Set) -> Vec<usize> {
    let mut list: Vec<usize> = members(set).collect();
    list.sort_by_key(|&buffer| std::cmp::Reverse(cycle.buffer_bytes[buffer]));
    list
}
