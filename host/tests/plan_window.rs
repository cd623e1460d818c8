//! Planning for the window as the issue of mappings asks for it: random histories, and models larger than the window.

#[path = "plan_support/models.rs"]
mod models;

use hexloom::plan::buffers::BufferLimits;
use hexloom::plan::window::{Costs, Event, HistoryOptions, Making, Replay, Way, Window};
use models::{EIGHT_B, SMOLLM2, streamed, weights};

const WINDOW: u64 = 3_355_443_200;
const MIB: u64 = 1 << 20;

fn replay(history: &[Event], window_bytes: u64, late_calls: u64, way: Way) -> Costs {
    let mut replay = Replay::new(Window::new(window_bytes).with_late_frees(late_calls, 5), way);
    history
        .iter()
        .for_each(|event| replay.step(event).expect("tensors that fit"));
    replay.costs()
}

/// A sample of what `examples/window_histories.rs` runs a thousand of.
#[test]
fn histories_do_not_fail_and_move_less_than_the_reference() {
    let mut totals = [Costs::default(); 2];
    for (seed, window_bytes) in (1..25)
        .map(|seed| (seed, WINDOW))
        .chain((100..108).map(|seed| (seed, 2048 * MIB)))
    {
        let history = HistoryOptions::new(window_bytes).history(seed);
        let reference = Way::FirstFit {
            cap_bytes: 256 * MIB,
            making: Making::DropAll,
        };
        let ways = [Way::Hexloom(BufferLimits::new(79, window_bytes)), reference];
        let costs = ways.map(|way| replay(&history, window_bytes, seed % 20, way));
        assert_eq!(costs[0].failures, 0, "seed {seed}: {:?}", costs[0]);
        assert!(
            costs[0].remapped_bytes <= costs[1].remapped_bytes,
            "seed {seed}: {costs:?}"
        );
        totals.iter_mut().zip(costs).for_each(|(total, costs)| *total += costs);
    }
    let [ours, reference] = totals;
    assert!(2 * ours.defragmentations < reference.defragmentations, "{totals:?}");
    assert!(10 * ours.remapped_bytes < reference.remapped_bytes, "{totals:?}");
}

/// Histories keep to the live bytes they promise.
#[test]
fn histories_fill_the_window_and_no_more() {
    let sum = |tensors: &[(String, u64)]| tensors.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let mut fullest = 0;
    for seed in 0..20 {
        let mut live = std::collections::BTreeMap::new();
        for event in HistoryOptions::new(WINDOW).history(seed) {
            let copied = match &event {
                Event::Load {
                    model,
                    weights,
                    cache,
                    compute,
                } => {
                    live.insert(*model, (sum(weights) + sum(compute), sum(cache)));
                    0
                }
                Event::Resize { model, cache, copies } => {
                    let entry = live.get_mut(model).expect("a live model");
                    let old = std::mem::replace(&mut entry.1, sum(cache));
                    if *copies { old } else { 0 }
                }
                Event::Unload { model } => {
                    live.remove(model).expect("a live model");
                    0
                }
                Event::Tokens(_) => 0,
            };
            let all = copied + live.values().map(|(fixed, cache)| fixed + cache).sum::<u64>();
            assert!(all <= WINDOW / 1000 * 980, "seed {seed}: {all} live");
            fullest = fullest.max(all);
        }
    }
    assert!(fullest > WINDOW / 100 * 97, "{fullest}");
}

#[test]
fn smollm2_streams_through_small_windows() {
    let total: u64 = weights(SMOLLM2).iter().map(|(_, bytes)| bytes).sum();
    for window_mib in [24, 48, 64] {
        let stream = streamed(SMOLLM2, window_mib * MIB).expect("the head fits");
        assert_eq!(stream.schedule.check(&stream.cycle), Ok(()));
        // All schedules were looked at, and first-fit placement adds nothing.
        assert!(stream.schedule.proven);
        assert_eq!(stream.placed_maps_per_token, stream.schedule.maps_per_token());
        // What is not mapped at a time must be mapped within each token, in mappings no larger than the window.
        let at_least = (total - window_mib * MIB).div_ceil(window_mib * MIB) as f64;
        assert!(
            (at_least..8.0).contains(&stream.placed_maps_per_token),
            "{}",
            stream.placed_maps_per_token
        );
    }
}

#[test]
fn a_model_of_eight_billion_streams() {
    let stream = streamed(EIGHT_B, WINDOW).expect("every tensor fits");
    assert_eq!(stream.schedule.check(&stream.cycle), Ok(()));
    let bound = stream.schedule.lower_bound;
    assert!(
        stream.placed_maps_per_token <= 1.1 * bound,
        "{} over {bound}",
        stream.placed_maps_per_token
    );
}
