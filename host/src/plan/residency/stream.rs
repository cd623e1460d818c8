//! Buffers and schedule together: weights that stream through a window smaller than they are.

use super::cycle::{Cycle, ResidencyError};
use super::schedule::Schedule;
use crate::plan::buffers::{BufferLimits, BufferPlan, PAGE_BYTES, PlannedBuffer, TensorNeed};
use crate::plan::window::{Making, Need, Table, Window};

/// Caps tried: the budget divided by halves up to this number of halves.
const HALVES_MAX: u64 = 64;
/// Rounds of the schedule that the window model runs.
const ROUNDS: u64 = 3;

/// Weights in buffers, and when each is mapped.
#[derive(Clone, PartialEq, Debug)]
pub struct Stream {
    /// The buffers.
    pub plan: BufferPlan,
    /// Which of them each batch of a token uses.
    pub cycle: Cycle,
    /// The first op of each batch.
    pub batch_starts: Vec<usize>,
    /// What is dropped and mapped when.
    pub schedule: Schedule,
    /// Maps per token in a first-fit window that starts empty, with whatever must be moved there.
    pub placed_maps_per_token: f64,
}

/// Packs `tensors` so that a token, whose ops use the tensors `uses` in this order, needs the fewest maps in a window of
/// `limits.budget_bytes`; `limits.cap_bytes` is not looked at.
///
/// A batch ends wherever an op needs a buffer that the batch has not used.
///
/// # Errors
/// See [`ResidencyError`].
pub fn stream(tensors: &[TensorNeed<'_>], uses: &[usize], limits: &BufferLimits) -> Result<Stream, ResidencyError> {
    let mut best: Option<Stream> = None;
    let mut failure = ResidencyError::Empty;
    let mut plans: Vec<BufferPlan> = Vec::new();
    for halves in 2..=HALVES_MAX {
        let cap = (limits.budget_bytes / halves).saturating_mul(2);
        let plan = BufferPlan::new(tensors, &limits.with_cap(cap))?;
        let even = evened(tensors, limits, cap, plan.buffers.len())?;
        for plan in [padded(&even), even, plan] {
            if !plans.contains(&plan) {
                plans.push(plan);
            }
        }
    }
    // Few buffers first: they need the fewest maps, and are soon looked at.
    plans.sort_by_key(|plan| plan.buffers.len());
    for plan in plans {
        let (cycle, batch_starts) = cycle(&plan, uses, limits.budget_bytes);
        let bound = match cycle.lower_bound() {
            Ok(bound) => bound,
            Err(error) => {
                failure = error;
                continue;
            }
        };
        if best.as_ref().is_some_and(|best| best.placed_maps_per_token <= bound) {
            continue;
        }
        let schedule = cycle.plan()?;
        let placed_maps_per_token = placed(&cycle, &schedule);
        let key = |maps: f64, schedule: &Schedule| (maps, schedule.bytes_per_token());
        if best
            .as_ref()
            .is_none_or(|best| key(placed_maps_per_token, &schedule) < key(best.placed_maps_per_token, &best.schedule))
        {
            best = Some(Stream {
                plan,
                cycle,
                batch_starts,
                schedule,
                placed_maps_per_token,
            });
        }
    }
    best.ok_or(failure)
}

/// The same number of buffers under the smallest cap: near to equal in size, so that one takes another's place.
fn evened(
    tensors: &[TensorNeed<'_>],
    limits: &BufferLimits,
    cap: u64,
    n_buffers: usize,
) -> Result<BufferPlan, ResidencyError> {
    let (mut low, mut high) = (PAGE_BYTES, cap.max(PAGE_BYTES));
    while high - low > PAGE_BYTES {
        let cap = low.midpoint(high);
        match BufferPlan::new(tensors, &limits.with_cap(cap))?.buffers.len() > n_buffers {
            true => low = cap,
            false => high = cap,
        }
    }
    Ok(BufferPlan::new(tensors, &limits.with_cap(high))?)
}

/// The same buffers, all as large as the largest: whatever goes leaves room for whatever comes.
fn padded(plan: &BufferPlan) -> BufferPlan {
    let mut padded = plan.clone();
    let largest = plan.buffers.iter().max_by_key(|buffer| buffer.mapped_bytes());
    if let Some(largest) = largest {
        padded.buffers.iter_mut().for_each(|buffer| {
            buffer.bytes = largest.bytes;
            buffer.guard_bytes = largest.guard_bytes;
        });
    }
    padded
}

/// Batches of one token, and the op that each starts with.
fn cycle(plan: &BufferPlan, uses: &[usize], window_bytes: u64) -> (Cycle, Vec<usize>) {
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut starts = Vec::new();
    for (op, &tensor) in uses.iter().enumerate() {
        let Some(place) = plan.places.get(tensor).copied().flatten() else {
            continue;
        };
        if batches.last().is_none_or(|batch| !batch.contains(&place.buffer)) {
            batches.push(vec![place.buffer]);
            starts.push(op);
        }
    }
    let cycle = Cycle {
        buffer_bytes: plan.buffers.iter().map(PlannedBuffer::mapped_bytes).collect(),
        batches,
        window_bytes,
    };
    (cycle, starts)
}

/// Maps per token when the schedule runs in a first-fit window.
fn placed(cycle: &Cycle, schedule: &Schedule) -> f64 {
    let mut table = Table::new(Window::new(cycle.window_bytes), Making::Stretch);
    let need = |&buffer: &usize| Need {
        id: buffer as u32,
        bytes: cycle.buffer_bytes[buffer],
    };
    let needs = |buffers: &[usize]| buffers.iter().map(need).collect::<Vec<Need>>();
    table.resolve(&needs(&schedule.first));
    let before = table.costs().maps;
    for _ in 0..ROUNDS {
        for (step, batch) in schedule
            .tokens
            .iter()
            .flat_map(|token| token.iter().zip(&cycle.batches))
        {
            table.forget(&step.drop.iter().map(|&buffer| buffer as u32).collect::<Vec<u32>>());
            table.resolve(&needs(batch));
        }
    }
    (table.costs().maps - before) as f64 / (ROUNDS * schedule.tokens.len().max(1) as u64) as f64
}
