//! Units into buffers: in order of use where that needs no more buffers than the best other way.

use super::TensorNeed;
use super::units::{Joining, Unit, units};

/// Contents of one buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bin {
    pub(super) bytes: u64,
    /// By index in the list, in order of offset.
    pub(super) tensors: Vec<usize>,
}

/// The fewest buffers among four ways; the earlier way wins where they are equal, and the first keeps the order of use.
pub(super) fn pack(tensors: &[TensorNeed<'_>], rounded: &[u64], cap: u64) -> Vec<Bin> {
    let layers = units(tensors, rounded, cap, Joining::Layer);
    let bound = lower_bound(&layers, cap);
    let mut best = in_order(&layers, cap);
    if best.len() > bound {
        let runs = units(tensors, rounded, cap, Joining::Run);
        for other in [
            fit(&layers, cap, Choice::First),
            largest_first(&layers, cap),
            fit(&runs, cap, Choice::First),
        ] {
            if other.len() < best.len() {
                best = other;
            }
        }
    }
    best.sort_by_key(|bin| bin.tensors.first().copied());
    best
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    First,
    Fullest,
}

/// Buffers that any packing needs.
fn lower_bound(units: &[Unit], cap: u64) -> usize {
    let (large, small): (Vec<&Unit>, Vec<&Unit>) = units.iter().partition(|unit| unit.bytes > cap);
    let bytes = small.iter().map(|unit| u128::from(unit.bytes)).sum::<u128>();
    large.len() + bytes.div_ceil(u128::from(cap.max(1))) as usize
}

/// Each buffer a stretch of the order of use.
fn in_order(units: &[Unit], cap: u64) -> Vec<Bin> {
    let mut bins: Vec<Bin> = Vec::new();
    // A unit larger than the cap must not part its neighbours, so the open buffer is remembered.
    let mut open: Option<usize> = None;
    for unit in units {
        match open {
            Some(idx) if fits(&bins[idx], unit, cap) => bins[idx].add(unit),
            _ => {
                if unit.bytes <= cap {
                    open = Some(bins.len());
                }
                bins.push(Bin::of(unit));
            }
        }
    }
    bins
}

/// Each unit into the first, or the fullest, buffer that has room.
fn fit<'a>(units: impl IntoIterator<Item = &'a Unit>, cap: u64, choice: Choice) -> Vec<Bin> {
    let mut bins: Vec<Bin> = Vec::new();
    for unit in units {
        let mut with_room = bins.iter_mut().filter(|bin| fits(bin, unit, cap));
        let chosen = match choice {
            Choice::First => with_room.next(),
            Choice::Fullest => with_room.max_by_key(|bin| bin.bytes),
        };
        match chosen {
            Some(bin) => bin.add(unit),
            None => bins.push(Bin::of(unit)),
        }
    }
    bins.iter_mut().for_each(|bin| bin.tensors.sort_unstable());
    bins
}

fn largest_first(units: &[Unit], cap: u64) -> Vec<Bin> {
    let mut order: Vec<&Unit> = units.iter().collect();
    order.sort_by_key(|unit| std::cmp::Reverse(unit.bytes));
    fit(order, cap, Choice::Fullest)
}

fn fits(bin: &Bin, unit: &Unit, cap: u64) -> bool {
    bin.bytes.saturating_add(unit.bytes) <= cap
}

impl Bin {
    fn of(unit: &Unit) -> Self {
        Self {
            bytes: unit.bytes,
            tensors: unit.tensors.clone(),
        }
    }

    fn add(&mut self, unit: &Unit) {
        self.bytes += unit.bytes;
        self.tensors.extend(&unit.tensors);
    }
}
