//! A lower bound on maps per token, and prices that guide the search.
//!
//! Between two uses of a buffer it either stays mapped (a hit) or is mapped again. Let `x` be the share of tokens in
//! which it stays. During each batch, what stays must fit beside the batch: in bytes, and in number, since no more than
//! the smallest ones that fit can stay. Averages over tokens keep to these limits, so the largest sum of `x` under them is
//! a linear program whose value no schedule can beat. The dual prices give the value of any weights `y`, so the bound
//! holds even if the simplex method stops early or rounds.

use super::cycle::{Sets, members};
use super::simplex;

/// Bound and prices of a cycle.
pub(super) struct Relaxed {
    /// No schedule has fewer maps per token.
    pub(super) maps_per_token: f64,
    /// Price of staying mapped during a batch: fixed, and by bytes.
    prices: Vec<(f64, f64)>,
}

impl Relaxed {
    /// What it still costs `bytes` to stay during the batches after `at` until the use `distance` batches later.
    pub(super) fn rent(&self, at: usize, distance: usize, bytes: u64) -> f64 {
        let n = self.prices.len();
        let during = (1..distance).map(|step| self.prices[(at + step) % n]);
        during.map(|(fixed, by_bytes)| fixed + by_bytes * bytes as f64).sum()
    }
}

/// A stretch of batches between two uses of a buffer.
struct Gap {
    bytes: f64,
    /// Batches strictly between the uses.
    during: Vec<usize>,
}

pub(super) fn relax(sets: &Sets<'_>) -> Relaxed {
    let gaps = gaps(sets);
    let n = sets.batches.len();
    let window = sets.window as f64;
    let mut rows = Vec::with_capacity(2 * n + gaps.len());
    let mut limits = Vec::with_capacity(2 * n + gaps.len());
    for batch in 0..n {
        let room = sets.window.saturating_sub(sets.sum(sets.batches[batch]));
        let inside: Vec<bool> = gaps.iter().map(|gap| gap.during.contains(&batch)).collect();
        let row = |value: fn(&Gap) -> f64| {
            let entry = |(gap, &inside): (&Gap, &bool)| if inside { value(gap) } else { 0.0 };
            gaps.iter().zip(&inside).map(entry).collect::<Vec<f64>>()
        };
        rows.push(row(|_| 1.0));
        limits.push(most_that_fit(&gaps, &inside, room));
        // Bytes in shares of the window, so that all numbers are of one size.
        rows.push(row(|gap| gap.bytes).iter().map(|bytes| bytes / window).collect());
        limits.push(room as f64 / window);
    }
    for gap in 0..gaps.len() {
        rows.push((0..gaps.len()).map(|other| f64::from(u8::from(other == gap))).collect());
        limits.push(1.0);
    }
    let mut duals = simplex::duals(&rows, &limits);
    duals.truncate(2 * n);
    let prices: Vec<(f64, f64)> = duals.chunks(2).map(|pair| (pair[0], pair[1] / window)).collect();
    let hits = dual_value(&gaps, &prices, &limits[..2 * n], window);
    Relaxed {
        maps_per_token: (gaps.len() as f64 - hits - 1e-6).max(0.0),
        prices,
    }
}

/// An upper bound on hits, whatever the prices are, as long as none is negative.
fn dual_value(gaps: &[Gap], prices: &[(f64, f64)], limits: &[f64], window: f64) -> f64 {
    let paid: f64 = prices
        .iter()
        .zip(limits.chunks(2))
        .map(|((fixed, by_bytes), limits)| fixed * limits[0] + by_bytes * window * limits[1])
        .sum();
    let profit = |gap: &Gap| {
        let rent: f64 = gap
            .during
            .iter()
            .map(|&batch| prices[batch].0 + prices[batch].1 * gap.bytes)
            .sum();
        (1.0 - rent).max(0.0)
    };
    paid + gaps.iter().map(profit).sum::<f64>()
}

/// Every stretch with at least one batch inside; others cost nothing.
fn gaps(sets: &Sets<'_>) -> Vec<Gap> {
    let n = sets.batches.len();
    let mut gaps = Vec::new();
    for batch in 0..n {
        for buffer in members(sets.batches[batch]) {
            let distance = sets.distance(batch, buffer);
            if distance > 1 {
                gaps.push(Gap {
                    bytes: sets.bytes[buffer] as f64,
                    during: (1..distance).map(|step| (batch + step) % n).collect(),
                });
            }
        }
    }
    gaps
}

/// How many of the gaps can be inside at once: the smallest ones, until the room is used up.
fn most_that_fit(gaps: &[Gap], inside: &[bool], room: u64) -> f64 {
    let mut sizes: Vec<u64> = gaps
        .iter()
        .zip(inside)
        .filter(|(_, inside)| **inside)
        .map(|(gap, _)| gap.bytes as u64)
        .collect();
    sizes.sort_unstable();
    let mut used = 0u64;
    let fitting = sizes.iter().take_while(|&&bytes| {
        used = used.saturating_add(bytes);
        used <= room
    });
    fitting.count() as f64
}
