//! Random graphs against the validator: both planners, every limit, twice the same.

mod plan_support;

use hexloom::plan::{
    Budget, Flags, Graph, InPlace, Limits, OnlinePlanner, PlanError, Planner, TensorId, TensorSpec, Unread,
};
use plan_support::assert_valid;
use proptest::prelude::*;

/// One tensor and the node that makes it; numbers are taken modulo what there is.
#[derive(Debug, Clone)]
struct Step {
    bytes: u64,
    operands: Vec<prop::sample::Index>,
    /// Looks into its first operand instead of having memory.
    view: bool,
    flags: u8,
    kind: u8,
    mask: u16,
}

fn step(sizes: BoxedStrategy<u64>) -> impl Strategy<Value = Step> {
    let flags = prop_oneof![12 => Just(0u8), 1 => Just(1), 1 => Just(2), 1 => Just(4), 1 => Just(3)];
    let operands = prop::collection::vec(any::<prop::sample::Index>(), 0..5);
    (sizes, operands, prop::bool::weighted(0.15), flags, 0u8..2, any::<u16>()).prop_map(
        |(bytes, operands, view, flags, kind, mask)| Step {
            bytes,
            operands,
            view,
            flags,
            kind,
            mask,
        },
    )
}

fn sizes() -> BoxedStrategy<u64> {
    prop_oneof![1 => Just(0u64), 6 => 1u64..2_000, 2 => Just(256u64), 1 => 4_000u64..9_000].boxed()
}

fn huge_sizes() -> BoxedStrategy<u64> {
    prop_oneof![2 => 1u64..100, 1 => (u64::MAX / 4 - 100)..(u64::MAX / 4 + 100), 1 => any::<u64>()].boxed()
}

/// In-place chains come from taking the size of the first operand whenever the mask allows it.
fn build(steps: &[Step], kinds: u8) -> Graph {
    let mut graph = Graph::new();
    let flag = [
        Flags::NONE,
        Flags::INPUT,
        Flags::OUTPUT,
        Flags::INPUT | Flags::OUTPUT,
        Flags::EXTERNAL,
    ];
    for (i, s) in steps.iter().enumerate() {
        let operands: Vec<TensorId> = s
            .operands
            .iter()
            .filter(|_| i > 0)
            .map(|o| TensorId(o.index(i) as u32))
            .collect();
        let first = operands.first().copied();
        let view = first.filter(|_| s.view).map(|o| (o, 0));
        let bytes = match first {
            Some(o) if s.view => graph.bytes(o) / u64::from(s.mask % 2 + 1),
            Some(o) if s.mask % 4 == 1 => graph.bytes(o),
            _ => s.bytes,
        };
        let name = format!("t{i}");
        let spec = TensorSpec {
            name: &name,
            bytes,
            view,
            flags: flag[s.flags as usize % 5],
            kind: s.kind % kinds,
        };
        let id = graph.add_tensor(spec).expect("a tensor");
        if !operands.is_empty() {
            let same = |o: &TensorId| graph.bytes(*o) == bytes;
            let mask = operands
                .iter()
                .enumerate()
                .fold(0, |m, (k, o)| m | u16::from(same(o)) << k);
            graph.add_node(id, &operands, InPlace(mask & s.mask)).expect("a node");
        }
    }
    graph
}

fn limits() -> impl Strategy<Value = Limits> {
    let chunk = prop_oneof![Just(1u64), 64u64..4_096, Just(u64::MAX)];
    (0u32..13, chunk, 1usize..20, any::<bool>()).prop_map(|(shift, chunk, max_chunks, unbounded)| Limits {
        max_chunks,
        last_chunk_unbounded: unbounded,
        ..Limits::chunked(1 << shift, chunk)
    })
}

/// Plans every way; whatever succeeds must be valid, and quick must succeed and be no larger where on-line does.
fn check(graph: &Graph, limits: &[Limits]) {
    let mut planner = Planner::new();
    let quick = planner.quick(graph, limits);
    let search = planner.search(graph, limits, Budget::steps(500));
    for unread in [Unread::Kept, Unread::Freed] {
        let online = OnlinePlanner::new().plan(graph, limits, unread);
        if let Ok(plan) = &online {
            assert_valid(graph, limits, plan);
        }
        if let (Unread::Kept, Ok(online)) = (unread, &online) {
            let quick = quick.as_ref().expect("quick plans what on-line can");
            for (q, o) in quick.kinds.iter().zip(&online.kinds) {
                assert!(
                    q.bytes() <= o.bytes() && q.chunks.len() <= o.chunks.len(),
                    "{q:?} {o:?}"
                );
            }
        }
    }
    match (&quick, &search) {
        (Ok(quick), Ok(search)) => {
            assert_valid(graph, limits, quick);
            assert_valid(graph, limits, search);
            for (q, s) in quick.kinds.iter().zip(&search.kinds) {
                assert!(q.lower_bound <= s.bytes() && s.bytes() <= q.bytes());
            }
            assert_eq!(quick.check(graph), Ok(()));
        }
        (quick, Ok(_)) => assert!(matches!(quick, Err(PlanError::OutOfChunks { .. })), "{quick:?}"),
        (quick, search) => assert!(quick.is_err(), "{search:?}"),
    }
    assert_eq!(quick, planner.quick(graph, limits));
    assert_eq!(search, Planner::new().search(graph, limits, Budget::steps(500)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_plan_well(steps in prop::collection::vec(step(sizes()), 1..60), l in limits(), m in limits()) {
        check(&build(&steps, 2), &[l, m]);
    }

    #[test]
    fn sizes_near_the_last_address_never_wrap(steps in prop::collection::vec(step(huge_sizes()), 1..12), l in limits()) {
        check(&build(&steps, 1), &[l]);
    }

    #[test]
    fn exactly_the_chunks_allowed_and_one_more(n in 15usize..19, shift in 0u32..8) {
        let bytes = 1u64 << shift;
        let mut graph = Graph::new();
        for i in 0..n {
            let name = format!("t{i}");
            let spec = TensorSpec { name: &name, bytes, view: None, flags: Flags::OUTPUT, kind: 0 };
            graph.add_tensor(spec).expect("a tensor");
        }
        let limits = [Limits::chunked(bytes, bytes)];
        let plan = Planner::new().quick(&graph, &limits);
        prop_assert_eq!(plan.is_ok(), n <= 16);
        prop_assert_eq!(OnlinePlanner::new().plan(&graph, &limits, Unread::Freed).is_ok(), n <= 16);
    }

    #[test]
    fn any_change_of_structure_is_noticed(steps in prop::collection::vec(step(sizes()), 2..30), at: prop::sample::Index, what in 0..4) {
        let graph = build(&steps, 2);
        let limits = [Limits::unlimited(32); 2];
        let plan = Planner::new().quick(&graph, &limits).expect("a plan");
        let mut other = steps.clone();
        let changed = &mut other[at.index(steps.len())];
        match what {
            0 => changed.flags = (changed.flags + 2) % 5,
            1 => changed.kind += 1,
            2 => changed.mask ^= 0xffff,
            _ => changed.operands.reverse(),
        }
        let rebuilt = build(&other, 2);
        if format!("{rebuilt:?}") == format!("{graph:?}") {
            prop_assert_eq!(plan.check(&rebuilt), Ok(()));
        } else if plan.check(&rebuilt).is_ok() {
            // Only what no plan depends on may differ: sizes that shrank, and external or unplanned tensors.
            prop_assert!(hexloom::plan::validate(&rebuilt, &limits, &plan).is_ok());
        }
    }
}
