//! Rules of making room, the sixteen-buffer regression, and random batches against the window's own book-keeping.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn need(id: u32, mib: u64) -> Need {
    Need { id, bytes: mib * MIB }
}

/// Sixteen buffers of 256 MiB, at most four live at once, in a window of 2 GiB whose unmaps give nothing back by
/// themselves: every map passes, by waiting.
#[test]
fn sixteen_buffers_four_at_a_time() {
    for late in [0, 1, 4, 1000] {
        let window = Window::new(2048 * MIB).with_late_frees(late, 7);
        let mut table = Table::new(window, Making::Stretch);
        for id in 0..16 {
            if id >= 4 {
                table.forget(&[id - 4]);
            }
            assert!(table.resolve(&[need(id, 256)]), "buffer {id}, late by {late}");
        }
        let costs = table.costs();
        assert_eq!(
            (costs.maps, costs.remaps, costs.defragmentations, costs.evictions),
            (16, 0, 0, 0)
        );
        assert_eq!(costs.waits > 0, late > 100, "{costs:?}");
    }
}

/// Three holes of 10 in a window of 100: one mapping of 10 moves, the reference maps everything again.
#[test]
fn holes_are_joined_by_moving_little() {
    let moved = |making| {
        let mut table = Table::new(Window::new(100 * MIB), making);
        let batch: Vec<Need> = (0..10).map(|id| need(id, 10)).collect();
        assert!(table.resolve(&batch));
        table.forget(&[1, 3, 8]);
        let again: Vec<Need> = batch
            .iter()
            .copied()
            .filter(|need| ![1, 3, 8].contains(&need.id))
            .collect();
        assert!(table.resolve(&[again, vec![need(20, 20)]].concat()));
        (table.costs().defragmentations, table.costs().remapped_bytes / MIB)
    };
    assert_eq!(moved(Making::Stretch), (1, 10));
    assert_eq!(moved(Making::DropAll), (1, 70));
}

#[test]
fn the_least_recently_used_goes_when_bytes_run_out() {
    let mut table = Table::new(Window::new(100 * MIB), Making::Stretch);
    assert!(table.resolve(&[need(1, 40)]));
    assert!(table.resolve(&[need(2, 40)]));
    assert!(table.resolve(&[need(1, 40)]));
    assert!(table.resolve(&[need(3, 60)]));
    assert_eq!(table.mappings(), [(1, 0, 40 * MIB), (3, 40 * MIB, 60 * MIB)]);
    assert!(!table.resolve(&[need(1, 40), need(4, 61)]));
    assert_eq!(table.costs().failures, 1);
}

#[test]
fn one_buffer_named_twice_is_one_mapping() {
    let mut table = Table::new(Window::new(100 * MIB), Making::Stretch);
    assert!(table.resolve(&[need(1, 40), need(1, 40)]));
    assert_eq!(table.costs().maps, 1);
    table.forget(&[1]);
    assert!(table.is_empty());
}

proptest! {
    /// Batches whose buffers fit are resolved whatever was mapped before, and mappings never overlap.
    #[test]
    fn what_fits_is_mapped(
        batches in prop::collection::vec(prop::collection::vec(0u32..40, 1..8), 1..40),
        late in 0u64..20,
        making in prop::sample::select(vec![Making::Stretch, Making::DropAll]),
    ) {
        // Sizes of 1 to 12; any seven distinct buffers fit into 84.
        let window = Window::new(84 * MIB).with_late_frees(late, 3);
        let mut table = Table::new(window, making);
        for ids in batches {
            let batch: Vec<Need> = ids.iter().map(|&id| need(id, 1 + u64::from(id * 7 % 12))).collect();
            let done = table.resolve(&batch);
            prop_assert!(done || making == Making::DropAll, "{:?}", batch);
            let mappings = table.mappings();
            prop_assert!(mappings.windows(2).all(|pair| pair[0].1 + pair[0].2 <= pair[1].1));
            prop_assert!(mappings.last().is_none_or(|last| last.1 + last.2 <= 84 * MIB));
            prop_assert!(!done || batch.iter().all(|need| mappings.iter().any(|mapping| mapping.0 == need.id)));
        }
    }
}
