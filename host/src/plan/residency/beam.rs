//! Search for many buffers: a beam of sets through many tokens, scored by the bound's prices, beside the rule that drops
//! what is used last.
//!
//! A set is worth what it has cost, less one map for each buffer in it that will be used, plus the rent that the buffer
//! has yet to pay until then. With exact prices a set on the best path is never worth less than another.

use std::collections::HashMap;

use super::bound::Relaxed;
use super::cycle::{Cost, Set, Sets, members};
use super::schedule::Round;

/// Sets kept after each batch.
const WIDTH: usize = 96;
/// Ways of making room tried from each set.
const WAYS: usize = 4;
/// Batches looked ahead at most, in all tokens together.
const MAX_STEPS: usize = 6_000;

/// A good round.
pub(super) fn search(sets: &Sets<'_>, relaxed: &Relaxed) -> Round {
    let n_buffers = sets.bytes.len();
    let n_tokens = (3 * n_buffers + 4).min(MAX_STEPS / sets.batches.len()).max(4);
    let mut best = simulate(sets, n_tokens, &furthest);
    let by_rent = |at: usize, buffer: usize| {
        // Lowest value goes first; per byte, so that one large buffer does not cost many small ones.
        let rent = relaxed.rent(at, sets.distance(at, buffer), sets.bytes[buffer]);
        ((1.0 - rent) / sets.bytes[buffer] as f64 * 1e18) as i64
    };
    for round in [
        simulate(sets, n_tokens, &|sets, at, buffer| {
            by_rent(at, buffer).saturating_sub(sets.distance(at, buffer) as i64)
        }),
        beam(sets, relaxed, n_tokens),
    ] {
        if round
            .as_ref()
            .is_some_and(|round| best.as_ref().is_none_or(|best| round.beats(best, sets)))
        {
            best = round;
        }
    }
    best.unwrap_or_else(|| lone(sets))
}

/// What is used last goes first.
fn furthest(sets: &Sets<'_>, at: usize, buffer: usize) -> i64 {
    -(sets.distance(at, buffer) as i64)
}

/// Each batch alone: always possible.
fn lone(sets: &Sets<'_>) -> Round {
    Round {
        mapped: sets.batches.clone(),
    }
}

/// Follows one rule: the droppable buffer with the lowest rank goes first.
fn simulate(sets: &Sets<'_>, n_tokens: usize, rank: &dyn Fn(&Sets<'_>, usize, usize) -> i64) -> Option<Round> {
    let mut mapped: Set = 0;
    let mut path = Vec::with_capacity(n_tokens * sets.batches.len());
    for _ in 0..n_tokens {
        for (at, &batch) in sets.batches.iter().enumerate() {
            mapped |= batch;
            while !sets.fits(mapped) {
                let goes = members(mapped & !batch).min_by_key(|&buffer| (rank(sets, at, buffer), buffer))?;
                mapped &= !(1 << goes);
            }
            path.push(mapped);
        }
    }
    round_of(sets, &path)
}

/// The cheapest stretch of whole tokens between two equal sets.
fn round_of(sets: &Sets<'_>, path: &[Set]) -> Option<Round> {
    let n = sets.batches.len();
    let mut costs = vec![0i128];
    let mut total = Cost::default();
    for (idx, &now) in path.iter().enumerate() {
        let before = if idx == 0 { 0 } else { path[idx - 1] };
        total = total + sets.cost(now & !before);
        if (idx + 1) % n == 0 {
            costs.push(total.weight());
        }
    }
    // Ends of tokens by what is mapped then.
    let mut ends: HashMap<Set, Vec<usize>> = HashMap::new();
    let mut best: Option<(i128, usize, usize)> = None;
    for token in 0..path.len() / n {
        let same = ends.entry(path[(token + 1) * n - 1]).or_default();
        for &earlier in same.iter() {
            let (cost, tokens) = (costs[token + 1] - costs[earlier + 1], (token - earlier) as i128);
            if best.is_none_or(|(other, from, to)| cost * ((to - from) as i128) < other * tokens) {
                best = Some((cost, earlier, token));
            }
        }
        same.push(token);
    }
    let (_, from, to) = best?;
    let mapped = path[(from + 1) * n..(to + 1) * n].to_vec();
    Some(Round { mapped })
}

/// A set on its way.
#[derive(Clone, Copy)]
struct Way {
    mapped: Set,
    cost: Cost,
    score: f64,
    parent: usize,
}

fn beam(sets: &Sets<'_>, relaxed: &Relaxed, n_tokens: usize) -> Option<Round> {
    let n = sets.batches.len();
    let mut history: Vec<Vec<Way>> = Vec::new();
    let mut ways = vec![Way {
        mapped: 0,
        cost: Cost::default(),
        score: 0.0,
        parent: 0,
    }];
    for step in 0..n_tokens * n {
        let at = step % n;
        // What each buffer is worth when it stays after this batch.
        let worth: Vec<f64> = (0..sets.bytes.len())
            .map(|buffer| 1.0 - relaxed.rent(at, sets.distance(at, buffer), sets.bytes[buffer]))
            .collect();
        let mut next: HashMap<Set, Way> = HashMap::new();
        for (parent, way) in ways.iter().enumerate() {
            for mapped in choices(sets, way.mapped | sets.batches[at], sets.batches[at], at, &worth) {
                let cost = way.cost + sets.cost(mapped & !way.mapped);
                let score = cost.maps as f64 - members(mapped).map(|buffer| worth[buffer]).sum::<f64>();
                let new = Way {
                    mapped,
                    cost,
                    score,
                    parent,
                };
                let old = next.entry(mapped).or_insert(new);
                if cost < old.cost {
                    *old = new;
                }
            }
        }
        history.push(std::mem::take(&mut ways));
        ways = next.into_values().collect();
        ways.sort_by(|a, b| {
            a.score
                .total_cmp(&b.score)
                .then(a.cost.cmp(&b.cost))
                .then(a.mapped.cmp(&b.mapped))
        });
        ways.truncate(WIDTH);
    }
    let mut best: Option<Round> = None;
    for end in ways.iter().take(8) {
        let (mut path, mut way) = (vec![end.mapped], *end);
        for step in history[1..].iter().rev() {
            way = step[way.parent];
            path.push(way.mapped);
        }
        path.reverse();
        if let Some(round) = round_of(sets, &path)
            && best.as_ref().is_none_or(|best| round.beats(best, sets))
        {
            best = Some(round);
        }
    }
    best
}

/// A few ways of dropping just enough, by different orders.
fn choices(sets: &Sets<'_>, all: Set, needed: Set, at: usize, worth: &[f64]) -> Vec<Set> {
    if sets.fits(all) {
        return vec![all];
    }
    let mut found: Vec<Set> = Vec::with_capacity(WAYS);
    let droppable: Vec<usize> = members(all & !needed).collect();
    let mut orders: Vec<Vec<usize>> = vec![droppable.clone(); 3];
    orders[0].sort_by(|&a, &b| worth[a].total_cmp(&worth[b]).then(a.cmp(&b)));
    let per_byte = |buffer: usize| worth[buffer] / sets.bytes[buffer].max(1) as f64;
    orders[1].sort_by(|&a, &b| per_byte(a).total_cmp(&per_byte(b)).then(a.cmp(&b)));
    orders[2].sort_by_key(|&buffer| std::cmp::Reverse((sets.distance(at, buffer), sets.bytes[buffer])));
    // Each cheap one alone, where it is enough.
    for &buffer in orders[0].iter().take(2 * WAYS) {
        let kept = all & !(1 << buffer);
        if sets.fits(kept) {
            found.push(kept);
        }
    }
    for order in orders {
        let mut kept = all;
        for &buffer in &order {
            if sets.fits(kept) {
                break;
            }
            kept &= !(1 << buffer);
        }
        // What was dropped early may fit after all.
        for &buffer in order.iter().rev() {
            if kept >> buffer & 1 == 0 && sets.fits(kept | 1 << buffer) {
                kept |= 1 << buffer;
            }
        }
        found.push(kept);
    }
    found.sort_unstable();
    found.dedup();
    found
}
