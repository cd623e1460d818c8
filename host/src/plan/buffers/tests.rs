//! Plans with known answers, the regression values, and random lists against the check and against first-fit.

use proptest::prelude::*;

use super::*;

const BUDGET: u64 = 3_355_443_200;
const CAP: u64 = 268_435_456;

fn limits(cap: u64) -> BufferLimits {
    BufferLimits::new(79, BUDGET).with_cap(cap)
}

/// Bytes of each buffer of a checked plan.
fn sizes(tensors: &[(&str, u64)], limits: &BufferLimits) -> Result<Vec<u64>, BufferPlanError> {
    let needs: Vec<TensorNeed<'_>> = tensors
        .iter()
        .map(|&(name, bytes)| TensorNeed::new(name, bytes))
        .collect();
    let plan = BufferPlan::new(&needs, limits)?;
    assert_eq!(plan.check(&needs, limits), Ok(()));
    Ok(plan.buffers.iter().map(|buffer| buffer.bytes).collect())
}

#[test]
fn layers_stay_together_in_order_of_use() {
    let names = [
        "token_embd",
        "blk.0.q",
        "blk.0.k",
        "blk.1.q",
        "blk.1.k",
        "cache_k_l0",
        "cache_v_l0",
    ];
    let bytes = [1000, 300, 300, 300, 300, 128, 128];
    let needs: Vec<_> = names
        .iter()
        .zip(bytes)
        .map(|(name, bytes)| TensorNeed::new(name, bytes))
        .collect();
    let plan = BufferPlan::new(&needs, &limits(1792)).unwrap();
    let buffers: Vec<usize> = plan.places.iter().flatten().map(|place| place.buffer).collect();
    assert_eq!(buffers, [0, 0, 0, 1, 1, 1, 1]);
}

/// Keys of all layers before all values: each layer's two are one unit all the same.
#[test]
fn one_layer_is_one_unit_wherever_it_is_listed() {
    let needs = ["cache_k_l0", "cache_k_l1", "cache_v_l0", "cache_v_l1"].map(|name| TensorNeed::new(name, 128));
    let plan = BufferPlan::new(&needs, &limits(256)).unwrap();
    let buffers: Vec<usize> = plan.places.iter().flatten().map(|place| place.buffer).collect();
    assert_eq!(buffers, [0, 1, 0, 1]);
}

#[test]
fn one_tensor_over_the_cap_gets_its_own_buffer() {
    assert_eq!(
        sizes(&[("a", 100), ("big", 5000), ("b", 100)], &limits(1024)).unwrap(),
        [256, 5120]
    );
    assert_eq!(sizes(&[("big", 556_236_800)], &limits(CAP)).unwrap(), [556_236_800]);
}

#[test]
fn few_buffers_before_order_of_use() {
    let tensors = [("a", 640), ("b", 640), ("c", 384), ("d", 384)];
    assert_eq!(sizes(&tensors, &limits(1024)).unwrap(), [1024, 1024]);
}

#[test]
fn sizes_around_the_limits() {
    let two = 1u64 << 31;
    for bytes in [0, 1, CAP, CAP + 1, two - 1, two, BUDGET] {
        let usable = sizes(&[("t", bytes)], &limits(CAP)).unwrap();
        assert_eq!(usable, [bytes.next_multiple_of(128).max(128)], "{bytes}");
    }
    for bytes in [BUDGET + 1, 1 << 32, u64::MAX - 4096, u64::MAX] {
        let error = sizes(&[("t", bytes)], &limits(CAP)).unwrap_err();
        assert!(error.to_string().contains(&bytes.to_string()), "{error}");
    }
}

#[test]
fn old_architectures_map_two_gib_at_once() {
    let v73 = BufferLimits::new(73, BUDGET).with_cap(CAP);
    assert_eq!(sizes(&[("t", 1 << 31)], &v73).unwrap(), [1 << 31]);
    let error = sizes(&[("t", (1 << 31) + 1)], &v73).unwrap_err().to_string();
    for part in ["`t`", "2147483649", "2147483648", "v73"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_guard_unless_the_tensor_takes_everything() {
    let plan = |bytes| BufferPlan::new(&[TensorNeed::new("t", bytes)], &limits(CAP)).unwrap();
    assert_eq!(plan(1000).buffers[0].mapped_bytes(), 2 * 4096);
    assert_eq!(plan(4096).buffers[0].mapped_bytes(), 2 * 4096);
    assert_eq!(plan(BUDGET).buffers[0].mapped_bytes(), BUDGET);
    assert_eq!(plan(BUDGET - 4096).buffers[0].mapped_bytes(), BUDGET);
}

#[test]
fn extended_buffers_need_the_architecture() {
    let error = sizes(&[("t", 1)], &limits(CAP).outside_window()).unwrap_err();
    assert_eq!(error, BufferPlanError::NoExtended { arch: 79 });
    let v81 = BufferLimits::new(81, BUDGET).with_cap(CAP).outside_window();
    assert_eq!(sizes(&[("t", 5 << 30)], &v81).unwrap(), [5 << 30]);
}

#[test]
fn views_come_last_and_empty_tensors_lie_somewhere() {
    assert!(sizes(&[], &limits(CAP)).unwrap().is_empty());
    assert_eq!(sizes(&[("a", 0), ("b", 0)], &limits(CAP)).unwrap(), [128]);
    let needs = [
        TensorNeed::new("a", 0),
        TensorNeed {
            name: "blk.0.view",
            bytes: 1 << 40,
            view: true,
        },
        TensorNeed::new("blk.0.q", 128),
        TensorNeed::new("b", 0),
    ];
    let plan = BufferPlan::new(&needs, &limits(CAP)).unwrap();
    assert_eq!(plan.views, [1]);
    assert_eq!(plan.places[1], None);
    assert_eq!(plan.buffers.len(), 1);
    assert_eq!(plan.places[3], Some(Place { buffer: 0, offset: 0 }));
}

#[test]
fn a_cap_that_holds_nothing() {
    assert_eq!(
        sizes(&[("t", 1)], &limits(127)),
        Err(BufferPlanError::Cap { cap_bytes: 127 })
    );
}

/// What the check refuses, one spoiled plan each.
#[test]
fn the_check_sees_what_is_wrong() {
    let needs = [TensorNeed::new("a", 200), TensorNeed::new("b", 300)];
    let limits = limits(CAP);
    let plan = BufferPlan::new(&needs, &limits).unwrap();
    let spoiled = |spoil: fn(&mut BufferPlan)| {
        let mut plan = plan.clone();
        spoil(&mut plan);
        plan.check(&needs, &limits).unwrap_err()
    };
    let offset = |plan: &mut BufferPlan, to| plan.places[1] = Some(Place { buffer: 0, offset: to });
    assert_eq!(spoiled(|plan| plan.places[0] = None), BufferFault::Listing(0));
    assert_eq!(spoiled(|plan| plan.buffers[0].bytes = 512), BufferFault::Outside(1));
    assert_eq!(spoiled(|plan| plan.buffers[0].bytes = 4 << 30), BufferFault::OverCap(0));
    let mut moved = plan.clone();
    offset(&mut moved, 128);
    assert_eq!(moved.check(&needs, &limits), Err(BufferFault::Overlap(0, 1)));
    offset(&mut moved, 250);
    assert_eq!(moved.check(&needs, &limits), Err(BufferFault::Outside(1)));
    assert_eq!(spoiled(|plan| plan.views.push(0)), BufferFault::List);
    assert_eq!(spoiled(|plan| plan.buffers[0].tensors.truncate(1)), BufferFault::List);
}

/// Units as the reference forms them, first-fit: the number of buffers to beat.
fn first_fit(tensors: &[(String, u64)], cap: u64) -> usize {
    let mut units: Vec<(Option<Layer>, u64)> = Vec::new();
    for (name, bytes) in tensors.iter().filter(|(_, bytes)| *bytes > 0) {
        let (layer, bytes) = (Layer::of(name), bytes.next_multiple_of(128));
        match units.last_mut() {
            Some((last, sum)) if layer.is_some() && *last == layer && *sum + bytes <= cap => *sum += bytes,
            _ => units.push((layer, bytes)),
        }
    }
    let mut buffers: Vec<u64> = Vec::new();
    for (_, bytes) in units {
        match buffers.iter_mut().find(|sum| **sum + bytes <= cap) {
            Some(sum) => *sum += bytes,
            None => buffers.push(bytes),
        }
    }
    buffers.len()
}

proptest! {
    #[test]
    fn random_lists(
        list in prop::collection::vec((0u32..12, 0u64..3000, any::<bool>()), 0..60),
        cap in 128u64..6000,
    ) {
        let name = |layer: u32, cache: bool| match (layer, cache) {
            (10.., _) => format!("other{layer}"),
            (_, true) => format!("cache_k_l{layer}"),
            (_, false) => format!("blk.{layer}.w"),
        };
        let tensors: Vec<(String, u64)> =
            list.iter().map(|&(layer, bytes, cache)| (name(layer, cache), bytes)).collect();
        let needs: Vec<TensorNeed<'_>> =
            tensors.iter().map(|(name, bytes)| TensorNeed::new(name, *bytes)).collect();
        let limits = limits(cap);
        let plan = BufferPlan::new(&needs, &limits).unwrap();
        prop_assert_eq!(plan.check(&needs, &limits), Ok(()));
        prop_assert!(plan.buffers.len() <= first_fit(&tensors, cap / 128 * 128).max(usize::from(!tensors.is_empty())));
        let first = |buffer: &PlannedBuffer| buffer.tensors.iter().find(|&&tensor| tensors[tensor].1 > 0).copied();
        prop_assert!(plan.buffers.is_sorted_by_key(first), "not in order of use");
    }
}
