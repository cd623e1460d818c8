//! Search mode: restarts of the skyline search on a ladder of heights between the bound and the best so far.
//!
//! Everything but the clock is deterministic: the same rectangles and the same number of steps give the
//! same packing on every machine. Scores are integers for that reason.

use std::time::{Duration, Instant};

use super::skyline::{Outcome, Rect, Skyline};

/// How long to search. Whichever ends first ends the search; results at equal steps are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// States looked at; a microsecond or a few each.
    pub steps: u64,
    /// Time from the start; `None` makes the result depend on `steps` only.
    pub time: Option<Duration>,
}

impl Budget {
    /// Bound by the clock only.
    pub const fn time(time: Duration) -> Self {
        Self {
            steps: u64::MAX,
            time: Some(time),
        }
    }

    /// Bound by steps only: deterministic.
    pub const fn steps(steps: u64) -> Self {
        Self { steps, time: None }
    }
}

/// Counts a [`Budget`] down.
pub(crate) struct Meter {
    steps_left: u64,
    deadline: Option<Instant>,
}

impl Meter {
    pub(crate) fn start(budget: Budget) -> Self {
        let deadline = budget.time.and_then(|t| Instant::now().checked_add(t));
        Self {
            steps_left: budget.steps,
            deadline,
        }
    }

    pub(crate) fn spend(&mut self, steps: u64) {
        self.steps_left = self.steps_left.saturating_sub(steps);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.steps_left == 0 || self.deadline.is_some_and(|d| Instant::now() >= d)
    }
}

/// More rectangles than this are left to the greedy passes.
pub(crate) const MAX_RECTS: usize = 4_000;
/// Restarts at one height before a lower aim is given up for the time being.
const TRIES_PER_AIM: u32 = 2;
/// Every so many tries at the best aim, easier aims get theirs.
const DETOUR: u64 = 8;
const STACK_BYTES: usize = 64 << 20;

/// A rectangle to pack: alive during `[start, end)`, `bytes` high.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) bytes: u64,
}

/// Looks for a packing lower than `height`; returns its offsets and its height.
///
/// Stops at `enough` (the lower bound, or a capacity above it) or when the budget is used up.
pub(crate) fn pack(items: &[Item], height: u64, enough: u64, meter: &mut Meter) -> Option<(Vec<u64>, u64)> {
    let unit = items.iter().fold(0, |g, i| gcd(g, i.bytes));
    let empty = |i: &Item| i.bytes == 0 || i.start >= i.end;
    let solid: Vec<Item> = items.iter().filter(|i| !empty(i)).copied().collect();
    if items.len() > MAX_RECTS || height <= enough || unit == 0 {
        return None;
    }
    // Heights up to a quarter of the range leave room for sums in the search.
    let height = i32::try_from(height / unit).ok().filter(|&h| h < i32::MAX / 8)?;
    let enough = (enough / unit) as i32;
    let (order, rects) = sections(&solid, unit);
    let search = || Ladder::new(rects, enough, height).climb(meter);
    let found = std::thread::scope(|s| {
        let thread = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(s, search);
        thread.ok().and_then(|t| t.join().ok()).flatten()
    })?;
    let mut solid_offsets = vec![0; solid.len()];
    for (&item, &offset) in order.iter().zip(&found) {
        solid_offsets[item] = offset as u64 * unit;
    }
    let mut next = solid_offsets.into_iter();
    let offsets: Vec<u64> = items
        .iter()
        .map(|i| if empty(i) { 0 } else { next.next().unwrap_or(0) })
        .collect();
    let height = items.iter().zip(&offsets).map(|(i, o)| o + i.bytes).max().unwrap_or(0);
    Some((offsets, height))
}

/// Largest sum of bytes alive at once.
pub(crate) fn lower_bound(items: &[Item]) -> u64 {
    let mut events: Vec<(i64, bool, u64)> = Vec::with_capacity(2 * items.len());
    for i in items.iter().filter(|i| i.start < i.end) {
        events.push((i.start, true, i.bytes));
        events.push((i.end, false, i.bytes));
    }
    events.sort_unstable();
    let mut live = 0u64;
    let mut bound = 0;
    for (_, begins, bytes) in events {
        live = if begins {
            live.saturating_add(bytes)
        } else {
            live.saturating_sub(bytes)
        };
        bound = bound.max(live);
    }
    bound
}

/// Rectangles by start over as few sections as tell conflicts apart: one for each start that an end follows.
fn sections(items: &[Item], unit: u64) -> (Vec<usize>, Vec<Rect>) {
    let mut events: Vec<(i64, bool)> = items.iter().flat_map(|i| [(i.start, true), (i.end, false)]).collect();
    events.sort_unstable();
    let peaks = events.windows(2).filter(|w| w[0].1 && !w[1].1).map(|w| w[0].0);
    let peaks: Vec<i64> = peaks.collect();
    let section = |t: i64| peaks.partition_point(|&p| p < t) as u32;
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&i| (section(items[i].start), section(items[i].end), i));
    let rect = |&i: &usize| {
        let item = items[i];
        Rect {
            first: section(item.start),
            end: section(item.end),
            size: (item.bytes / unit) as i32,
        }
    };
    let rects = order.iter().map(rect).collect();
    (order, rects)
}

/// Heights aimed at, one after the other.
struct Ladder {
    rects: Vec<Rect>,
    search: Skyline,
    /// Sections each rectangle covers, and the most units alive in one of them.
    width: Vec<u64>,
    crowd: Vec<u64>,
    enough: i32,
    best: i32,
    found: Option<Vec<i32>>,
    random: Random,
}

impl Ladder {
    fn new(rects: Vec<Rect>, enough: i32, height: i32) -> Self {
        let sections = rects.iter().map(|r| r.end).max().unwrap_or(0) as usize;
        let mut live = vec![0u64; sections];
        for r in &rects {
            live[r.first as usize..r.end as usize]
                .iter_mut()
                .for_each(|l| *l += r.size as u64);
        }
        let most = |r: &Rect| {
            live[r.first as usize..r.end as usize]
                .iter()
                .copied()
                .max()
                .unwrap_or(0)
        };
        let crowd = rects.iter().map(most).collect();
        let width = rects.iter().map(|r| u64::from(r.end - r.first)).collect();
        let search = Skyline::new(rects.clone());
        Self {
            rects,
            search,
            width,
            crowd,
            enough,
            best: height,
            found: None,
            random: Random::default(),
        }
    }

    fn climb(mut self, meter: &mut Meter) -> Option<Vec<i32>> {
        let unit = 4 * self.rects.len() as u64;
        for round in 1.. {
            if self.best <= self.enough || meter.is_over() {
                break;
            }
            // Most tries go to the best aim; now and then easier ones are tried, for want of it.
            if self.try_once(self.enough, unit * luby(round), meter) || round % DETOUR != 1 {
                continue;
            }
            let mut aim = self.enough;
            while !meter.is_over() {
                let step = (self.best - aim) / 2;
                aim += step;
                // Below a thousandth it pays more to go back to the best aim.
                if step <= self.enough / 1000 {
                    break;
                }
                let reached = (0..TRIES_PER_AIM).any(|_| self.try_once(aim, unit * luby(round), meter));
                if reached {
                    aim = self.enough;
                }
            }
        }
        self.found
    }

    fn try_once(&mut self, aim: i32, steps: u64, meter: &mut Meter) -> bool {
        if meter.is_over() {
            return false;
        }
        let rank = self.random_rank();
        let by_product = self.random.next(2) == 1;
        let outcome = self.search.solve(aim, &rank, by_product, steps.min(meter.steps_left));
        meter.spend(self.search.steps());
        if outcome != Outcome::Solved {
            return false;
        }
        let offsets = self.search.offsets();
        let height = offsets
            .iter()
            .zip(&self.rects)
            .map(|(o, r)| o + r.size)
            .max()
            .unwrap_or(0);
        if height < self.best {
            self.best = height;
            self.found = Some(offsets.to_vec());
        }
        true
    }

    /// Crowded, wide and high ones first, with random weights and some noise.
    fn random_rank(&mut self) -> Vec<u32> {
        let [crowd, wide, high, noise] = [(); 4].map(|()| self.random.next(1 << 10));
        let mut order: Vec<(u64, u32)> = Vec::with_capacity(self.rects.len());
        for i in 0..self.rects.len() {
            let score = crowd * crowd / 128 * log2(self.crowd[i])
                + wide * log2(self.width[i])
                + high * log2(self.rects[i].size as u64)
                + noise * self.random.next(370);
            order.push((!score, i as u32));
        }
        order.sort_unstable();
        let mut rank = vec![0; order.len()];
        for (place, &(_, i)) in (0..).zip(&order) {
            rank[i as usize] = place;
        }
        rank
    }
}

/// The same numbers on every run.
pub(crate) struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self(0x853c_49e6_748f_ea9b)
    }
}

impl Random {
    pub(crate) fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % below
    }
}

/// The sequence 1 1 2 1 1 2 4 …: restart lengths that serve where the lucky length is not known. `i` counts from 1.
fn luby(mut i: u64) -> u64 {
    while !(i + 1).is_power_of_two() {
        i -= (1 << i.ilog2()) - 1;
    }
    i.div_ceil(2)
}

/// Logarithm in 1/256, to the next lower 1/256 of a line between powers of two.
pub(crate) fn log2(x: u64) -> u64 {
    let whole = u64::from(x.max(1).ilog2());
    whole << 8 | (x.max(1) << (63 - whole)) >> 55 & 0xff
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
