//! Schedules with known answers, exhaustive search of another kind for small cycles, the bound for large ones.

use proptest::prelude::*;

use super::*;
use crate::plan::buffers::{BufferLimits, TensorNeed};

const PAGE: u64 = 4096;

/// A cycle in pages; each buffer is a batch of its own unless batches are given.
fn cycle(pages: &[u64], batches: &[&[usize]], window_pages: u64) -> Cycle {
    let alone = (0..pages.len()).map(|buffer| vec![buffer]);
    Cycle {
        buffer_bytes: pages.iter().map(|pages| pages * PAGE).collect(),
        batches: match batches {
            [] => alone.collect(),
            batches => batches.iter().map(|batch| batch.to_vec()).collect(),
        },
        window_bytes: window_pages * PAGE,
    }
}

fn planned(cycle: &Cycle) -> Schedule {
    let schedule = cycle.plan().unwrap();
    assert_eq!(schedule.check(cycle), Ok(()));
    assert!(schedule.lower_bound <= schedule.maps_per_token());
    schedule
}

#[test]
fn what_fits_is_never_mapped_again() {
    let schedule = planned(&cycle(&[3, 2, 1], &[], 6));
    assert_eq!((schedule.maps, schedule.first), (0, vec![0, 1, 2]));
}

/// Equal buffers in turn: the best rule there is drops what was just used, n (n - k) / (n - 1) maps a token. Least
/// recently used would map all n.
#[test]
fn equal_buffers_reach_the_known_optimum() {
    for (n, k) in [(4, 3), (5, 2), (8, 5), (12, 11), (20, 7), (40, 30)] {
        let schedule = planned(&cycle(&vec![1; n], &[], k as u64));
        let best = (n * (n - k)) as f64 / (n - 1) as f64;
        assert!(
            (schedule.maps_per_token() - best).abs() < 1e-9,
            "{n} in {k}: {}",
            schedule.maps_per_token()
        );
    }
}

/// An embedding used by the first batch and the last one stays between tokens.
#[test]
fn neighbours_across_tokens_are_seen() {
    let schedule = planned(&cycle(&[10, 4, 4, 4], &[&[0], &[1], &[2], &[3], &[0]], 14));
    assert_eq!((schedule.maps_per_token(), schedule.proven), (2.5, true));
}

/// Equal numbers of maps: the smaller buffers are the ones that are mapped again.
#[test]
fn bytes_decide_between_equal_numbers_of_maps() {
    // One of the first two can stay beside the third.
    let schedule = planned(&cycle(&[6, 5, 5], &[&[0, 1], &[2]], 11));
    assert_eq!(
        (schedule.maps_per_token(), schedule.bytes_per_token()),
        (2.0, 10.0 * PAGE as f64)
    );
}

#[test]
fn errors_name_the_batch() {
    let error = cycle(&[1, 2, 3], &[&[0], &[1, 2]], 4).plan().unwrap_err();
    let ResidencyError::BatchTooLarge { batch: 1, bytes, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(bytes, 5 * PAGE);
    assert!(matches!(
        cycle(&[1], &[&[1]], 4).plan(),
        Err(ResidencyError::UnknownBuffer { buffer: 1, .. })
    ));
    assert!(matches!(
        cycle(&[1; 129], &[], 4).plan(),
        Err(ResidencyError::TooManyBuffers { .. })
    ));
    assert_eq!(cycle(&[], &[], 4).plan(), Err(ResidencyError::Empty));
}

#[test]
fn the_check_sees_what_is_wrong() {
    let cycle = cycle(&[1, 1, 1], &[], 2);
    let good = planned(&cycle);
    let spoiled = |spoil: &dyn Fn(&mut Schedule)| {
        let mut schedule = good.clone();
        spoil(&mut schedule);
        schedule.check(&cycle).unwrap_err()
    };
    let mapping = good.tokens[0].iter().position(|step| !step.map.is_empty()).unwrap();
    assert_eq!(
        spoiled(&|schedule| schedule.tokens[0][mapping].map.clear()),
        ScheduleFault::Missing(mapping)
    );
    assert!(matches!(
        spoiled(&|schedule| schedule.tokens[0][mapping].drop.clear()),
        ScheduleFault::Full(_)
    ));
    assert_eq!(spoiled(&|schedule| schedule.maps += 1), ScheduleFault::Counts);
    assert_eq!(
        spoiled(&|schedule| drop(schedule.tokens[0].pop())),
        ScheduleFault::Batches(0)
    );
    let idle = (0..3).find(|buffer| !good.first.contains(buffer)).unwrap();
    assert_eq!(
        spoiled(&|schedule| schedule.tokens[0][0].drop.push(idle)),
        ScheduleFault::Twice(0)
    );
}

/// A tied model in a window of a quarter of its size: one map for the head, the layers in a few large buffers.
#[test]
fn a_stream_takes_few_large_buffers() {
    let names: Vec<String> = (0..30).map(|layer| format!("blk.{layer}.w")).collect();
    let mut tensors = vec![TensorNeed::new("token_embd.weight", 17 << 20)];
    tensors.extend(names.iter().map(|name| TensorNeed::new(name, 2 << 20)));
    let uses: Vec<usize> = (0..31).chain([0]).collect();
    let limits = BufferLimits::new(79, 24 << 20);
    let streamed = stream(&tensors, &uses, &limits).unwrap();
    assert_eq!(streamed.schedule.check(&streamed.cycle), Ok(()));
    assert_eq!(streamed.placed_maps_per_token, streamed.schedule.maps_per_token());
    assert_eq!((streamed.placed_maps_per_token, streamed.schedule.proven), (4.0, true));
    assert_eq!(streamed.batch_starts.len(), streamed.cycle.batches.len());
    let error = stream(&tensors, &uses, &BufferLimits::new(79, 16 << 20)).unwrap_err();
    assert!(error.to_string().contains("token_embd.weight"), "{error}");
}

/// Fewest maps per token over all schedules, by closed walks of every length through all sets, where anything may be
/// dropped or mapped at any time.
fn plain_optimum(cycle: &Cycle) -> f64 {
    let n_sets = 1 << cycle.buffer_bytes.len();
    let fits = |set: usize| {
        let mapped = cycle
            .buffer_bytes
            .iter()
            .enumerate()
            .filter(|(buffer, _)| set >> buffer & 1 == 1);
        mapped.map(|(_, bytes)| bytes).sum::<u64>() <= cycle.window_bytes
    };
    let far = u32::MAX / 2;
    // Cheapest ways from each set to each after one token.
    let mut token = vec![vec![far; n_sets]; n_sets];
    for (from, row) in token.iter_mut().enumerate() {
        let mut now = vec![far; n_sets];
        now[from] = 0;
        for batch in &cycle.batches {
            let needed: usize = batch.iter().map(|buffer| 1 << buffer).sum();
            let mut next = vec![far; n_sets];
            for (a, cost) in now.iter().enumerate() {
                for (b, to) in next.iter_mut().enumerate() {
                    if b & needed == needed && fits(b) {
                        *to = (*to).min(cost + (b & !a).count_ones());
                    }
                }
            }
            now = next;
        }
        row.copy_from_slice(&now);
    }
    let mut walks = token.clone();
    let mut best = f64::MAX;
    for length in 1..=n_sets {
        for (set, row) in walks.iter().enumerate() {
            best = best.min(f64::from(row[set]) / length as f64);
        }
        let step = |row: &Vec<u32>| {
            let to = |to: usize| {
                (0..n_sets)
                    .map(|via| row[via].saturating_add(token[via][to]))
                    .min()
                    .unwrap_or(far)
            };
            (0..n_sets).map(to).collect()
        };
        walks = walks.iter().map(step).collect();
    }
    best
}

fn random_cycle(buffers: std::ops::Range<usize>) -> impl Strategy<Value = Cycle> {
    let sizes = prop::collection::vec(prop_oneof![Just(4u64), 1u64..9], buffers);
    (sizes, any::<u64>(), 0u64..100).prop_map(|(pages, seed, percent)| {
        let n = pages.len();
        // Each buffer in turn; some batches use another one too.
        let with = |batch: usize| match seed >> (batch % 60) & 3 {
            0 => vec![batch, (batch + 1 + seed as usize % n) % n],
            _ => vec![batch],
        };
        let mut batches: Vec<Vec<usize>> = (0..n).map(with).collect();
        batches.iter_mut().for_each(|batch| batch.dedup());
        let bytes = |batch: &Vec<usize>| batch.iter().map(|&buffer| pages[buffer]).sum::<u64>();
        let (least, all) = (batches.iter().map(bytes).max().unwrap_or(0), pages.iter().sum::<u64>());
        Cycle {
            batches,
            window_bytes: (least + all.saturating_sub(least) * percent / 100) * PAGE,
            buffer_bytes: pages.iter().map(|pages| pages * PAGE).collect(),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn small_cycles_are_solved(cycle in random_cycle(2..5)) {
        let schedule = planned(&cycle);
        prop_assert!(schedule.proven);
        prop_assert!((schedule.maps_per_token() - plain_optimum(&cycle)).abs() < 1e-9);
    }

    /// The bound is one: it never passes what exhaustive search finds.
    #[test]
    fn the_bound_holds(cycle in random_cycle(2..11)) {
        let schedule = planned(&cycle);
        let bound = cycle.lower_bound().unwrap();
        prop_assert!(bound <= schedule.maps_per_token() + 1e-9, "{} > {}", bound, schedule.maps_per_token());
    }
}

/// Most random cycles come within a tenth of the bound; for a few neither search nor bound is good enough to tell (3 of
/// 200, the worst at 1.16). Always the same ones: what is measured is a share.
#[test]
fn large_cycles_come_close_to_the_bound() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let over = |_| {
        let cycle = random_cycle(13..18).new_tree(&mut runner).unwrap().current();
        let schedule = planned(&cycle);
        let over = schedule.maps_per_token() / schedule.lower_bound.max(1e-9);
        assert!(over <= 1.25, "{over}: {schedule:?}");
        usize::from(over > 1.1)
    };
    let n_over: usize = (0..40).map(over).sum();
    assert!(n_over <= 2, "{n_over} of 40 cycles are over");
}
