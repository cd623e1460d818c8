//! Graphs that make ggml's allocator overwrite live data, crash or abort: each ends in a right plan or an error.

mod plan_support;

use hexloom::plan::{
    Flags, Graph, GraphChange, GraphMemory, InPlace, KindPlan, Limits, MAX_BYTES, MakeBuffer, Mode, OnlinePlanner,
    Placement, Plan, PlanError, Planner, TensorId, TensorSpec, Unread,
};
use plan_support::assert_valid;

const LIMITS: [Limits; 1] = [Limits::unlimited(32)];

/// A graph built one line at a time.
#[derive(Default)]
struct Build(Graph);

impl Build {
    fn tensor(&mut self, name: &str, bytes: u64, flags: Flags) -> TensorId {
        self.0
            .add_tensor(TensorSpec {
                name,
                bytes,
                view: None,
                flags,
                kind: 0,
            })
            .expect(name)
    }

    fn leaf(&mut self, name: &str, bytes: u64) -> TensorId {
        self.tensor(name, bytes, Flags::NONE)
    }

    fn node(&mut self, name: &str, bytes: u64, operands: &[TensorId], mask: u16) -> TensorId {
        let dst = self.leaf(name, bytes);
        self.0.add_node(dst, operands, InPlace(mask)).expect(name);
        dst
    }

    fn view(&mut self, name: &str, of: TensorId, flags: Flags) -> TensorId {
        let bytes = self.0.bytes(of);
        let dst = self
            .0
            .add_tensor(TensorSpec {
                name,
                bytes,
                view: Some((of, 0)),
                flags,
                kind: 0,
            })
            .expect(name);
        self.0.add_node(dst, &[of], InPlace::NONE).expect(name);
        dst
    }

    /// Plans both ways, checks both, returns the quick plan.
    fn plan(&self, limits: &[Limits]) -> Plan {
        let online = OnlinePlanner::new()
            .plan(&self.0, limits, Unread::Freed)
            .expect("an on-line plan");
        assert_valid(&self.0, limits, &online);
        let quick = Planner::new().quick(&self.0, limits).expect("a quick plan");
        assert_valid(&self.0, limits, &quick);
        quick
    }
}

/// Makes chunks that are just their sizes, and fails at the k-th.
struct Maker {
    fail_at: Option<usize>,
    made: usize,
}

impl MakeBuffer for Maker {
    type Buffer = u64;
    fn make(&mut self, _kind: usize, bytes: u64) -> Result<u64, String> {
        self.made += 1;
        if self.fail_at == Some(self.made) {
            Err("no memory".into())
        } else {
            Ok(bytes)
        }
    }
}

fn maker() -> Maker {
    Maker { fail_at: None, made: 0 }
}

/// A chain `x -> a -> b` of 64-byte tensors; `wire` says what `b` reads.
fn four_nodes(wire: usize) -> Graph {
    let mut g = Build::default();
    let x = g.leaf("x", 64);
    let a = g.node("a", 64, &[x], 0);
    let b = g.node("b", 64, &[a], 0);
    let c = g.node("c", 64, &[[a, b, x][wire]], 0);
    g.node("d", 64, &[c, b], 0);
    g.0
}

#[test]
fn hazard_1_tensors_without_bytes_need_no_memory() {
    let mut g = Build::default();
    let empty = g.leaf("empty", 0);
    let big = g.node("big", 4096, &[empty], 0);
    let also_empty = g.node("also_empty", 0, &[big, empty], 1);
    let plan = g.plan(&[Limits::chunked(32, 64)]);
    assert_eq!(plan.bytes(), 4096);
    assert_eq!(plan.placement(&g.0, also_empty), Placement::Empty);

    let mut only = Build::default();
    let e = only.leaf("e", 0);
    only.node("f", 0, &[e], 0);
    assert_eq!(
        only.plan(&LIMITS).kinds[0],
        KindPlan {
            chunks: vec![],
            lower_bound: 0,
            method: hexloom::plan::Method::Empty
        }
    );
    let kept = OnlinePlanner::new()
        .plan(&only.0, &LIMITS, Unread::Kept)
        .expect("a plan");
    assert_eq!(kept.bytes(), 0);
}

#[test]
fn hazard_2_other_wiring_with_equal_sizes_is_refused() {
    let mut memory = GraphMemory::new(LIMITS.to_vec(), Mode::Quick);
    memory.reserve(&four_nodes(0), &mut maker()).expect("reserve");
    for wire in [1, 2] {
        let error = memory.bind(&four_nodes(wire)).expect_err("other wiring");
        assert_eq!(error, PlanError::GraphChanged(GraphChange::Structure));
    }
    assert!(memory.bind(&four_nodes(0)).is_ok());
}

#[test]
fn hazard_3_measuring_changes_nothing() {
    let mut memory = GraphMemory::new(LIMITS.to_vec(), Mode::Quick);
    memory.reserve(&four_nodes(0), &mut maker()).expect("reserve");
    let held: Vec<u64> = memory.held_bytes(0).collect();
    let mut large = Build::default();
    large.leaf("large", 1 << 20);
    assert_eq!(memory.measure(&large.0).expect("measure").bytes(), 1 << 20);
    assert_eq!(memory.held_bytes(0).collect::<Vec<_>>(), held);
    assert!(memory.bind(&four_nodes(0)).is_ok());
}

#[test]
fn hazard_4_a_failed_chunk_leaves_the_old_plan_in_force() {
    let limits = vec![Limits::chunked(32, 64)];
    let mut large = Build::default();
    let leaves: Vec<TensorId> = (0..5).map(|i| large.leaf(&format!("x{i}"), 96)).collect();
    large.node("y", 96, &leaves, 0);
    for fail_at in 1..=6 {
        let mut memory = GraphMemory::new(limits.clone(), Mode::Quick);
        memory.reserve(&four_nodes(0), &mut maker()).expect("reserve");
        let held: Vec<u64> = memory.held_bytes(0).collect();
        let error = memory
            .reserve(
                &large.0,
                &mut Maker {
                    fail_at: Some(fail_at),
                    made: 0,
                },
            )
            .expect_err("no memory");
        assert!(matches!(error, PlanError::Buffer { kind: 0, bytes: 96, .. }), "{error}");
        assert_eq!(memory.held_bytes(0).collect::<Vec<_>>(), held);
        assert!(memory.bind(&four_nodes(0)).is_ok());
        assert_eq!(
            memory
                .bind(&large.0)
                .err()
                .map(|e| matches!(e, PlanError::GraphChanged(_))),
            Some(true)
        );
    }
    let never = GraphMemory::<u64>::new(limits, Mode::Online);
    assert_eq!(never.bind(&large.0), Err(PlanError::NotReserved));
}

#[test]
fn hazard_5_what_nobody_reads_dies_at_once() {
    let mut g = Build::default();
    let x = g.tensor("x", 64, Flags::OUTPUT);
    for i in 0..3 {
        let dead = g.node(&format!("dead{i}"), 256, &[x], 0);
        g.view(&format!("view{i}"), dead, Flags::NONE);
    }
    assert_eq!(g.plan(&LIMITS).bytes(), 64 + 256);
    let kept = OnlinePlanner::new().plan(&g.0, &LIMITS, Unread::Kept).expect("a plan");
    assert_eq!(kept.bytes(), 64 + 3 * 256);
}

#[test]
fn hazard_6_an_output_view_protects_what_it_looks_into() {
    let mut g = Build::default();
    let x = g.leaf("x", 256);
    let a = g.node("a", 256, &[x], 0);
    let out = g.view("out", a, Flags::OUTPUT);
    let b = g.node("b", 256, &[out], 1);
    let c = g.node("c", 256, &[b], 0);
    g.node("d", 256, &[c], 0);
    let plan = g.plan(&LIMITS);
    let at = |t| plan.placement(&g.0, t);
    assert_eq!(at(out), at(a));
    assert!(at(b) != at(a) && at(c) != at(a));
}

#[test]
fn hazard_7_a_grown_leaf_that_no_node_reads_is_noticed() {
    let graph = |bytes| {
        let mut g = Build::default();
        let x = g.leaf("x", 64);
        g.leaf("idle", bytes);
        g.node("y", 64, &[x], 0);
        g.0
    };
    let mut memory = GraphMemory::new(LIMITS.to_vec(), Mode::Quick);
    memory.reserve(&graph(64), &mut maker()).expect("reserve");
    assert!(memory.bind(&graph(32)).is_ok());
    let grown = GraphChange::Grown {
        tensor: "idle".into(),
        bytes: 65,
        planned: 64,
    };
    assert_eq!(memory.bind(&graph(65)), Err(PlanError::GraphChanged(grown)));
}

/// `n` tensors of 64 bytes alive at once, in chunks of 64.
fn all_alive(n: usize) -> Build {
    let mut g = Build::default();
    (0..n).for_each(|i| {
        g.tensor(&format!("t{i}"), 64, Flags::OUTPUT);
    });
    g
}

#[test]
fn hazard_8_sixteen_chunks_fit_and_a_seventeenth_is_refused() {
    let limits = [Limits::chunked(64, 64)];
    assert_eq!(all_alive(16).plan(&limits).kinds[0].chunks, vec![64; 16]);
    let g = all_alive(17);
    let refused = Err(PlanError::OutOfChunks {
        tensor: "t16".into(),
        bytes: 64,
        chunk_bytes: 64,
        max_chunks: 16,
    });
    assert_eq!(OnlinePlanner::new().plan(&g.0, &limits, Unread::Freed), refused);
    assert_eq!(Planner::new().quick(&g.0, &limits), refused);
    let unbounded = [limits[0].with_unbounded_last()];
    let plan = OnlinePlanner::new()
        .plan(&all_alive(41).0, &unbounded, Unread::Kept)
        .expect("a plan");
    assert_eq!((plan.kinds[0].chunks.len(), plan.bytes()), (16, 41 * 64));
}

#[test]
fn hazard_9_a_tensor_over_the_limit_gets_a_chunk_of_its_size() {
    let mut g = Build::default();
    for (name, bytes) in [("a", 64), ("b", 800), ("c", 64)] {
        g.tensor(name, bytes, Flags::OUTPUT);
    }
    let limits = [Limits::chunked(32, 256)];
    let plan = g.plan(&limits);
    assert_eq!(plan.bytes(), 128 + 800);
    let strict = [Limits {
        buffer_bytes: 256,
        ..limits[0]
    }];
    let error = PlanError::TensorTooLarge {
        tensor: "b".into(),
        bytes: 800,
        max_bytes: 256,
    };
    assert_eq!(Planner::new().quick(&g.0, &strict), Err(error));
}

#[test]
fn hazard_10_any_number_of_holes() {
    let mut g = Build::default();
    let mut holes = Vec::new();
    for i in 0..600 {
        let x = g.tensor(
            &format!("x{i}"),
            32,
            if i % 2 == 0 { Flags::OUTPUT } else { Flags::NONE },
        );
        if i % 2 == 1 {
            holes.push(x);
        }
    }
    for (i, chunk) in holes.chunks(16).enumerate() {
        g.node(&format!("y{i}"), 64, chunk, 0);
    }
    g.plan(&LIMITS);
}

#[test]
fn hazard_11_and_12_sizes_near_the_last_address_are_errors() {
    for bytes in [u64::MAX, u64::MAX - 31, u64::MAX / 2 + 1, MAX_BYTES + 1] {
        let mut g = Build::default();
        g.leaf("huge", bytes);
        let error = PlanError::TensorTooLarge {
            tensor: "huge".into(),
            bytes,
            max_bytes: MAX_BYTES,
        };
        assert_eq!(
            OnlinePlanner::new().plan(&g.0, &LIMITS, Unread::Kept),
            Err(error.clone())
        );
        assert_eq!(Planner::new().quick(&g.0, &LIMITS), Err(error));
    }
    let mut fits = Build::default();
    let x = fits.leaf("x", MAX_BYTES - 64);
    let y = fits.node("y", 32, &[x], 0);
    fits.node("z", MAX_BYTES - 64, &[y], 0);
    fits.plan(&LIMITS);
    let mut sum = Build::default();
    (0..5).for_each(|i| {
        sum.tensor(&format!("t{i}"), MAX_BYTES - 63, Flags::OUTPUT);
    });
    assert!(matches!(
        Planner::new().quick(&sum.0, &LIMITS),
        Err(PlanError::OffsetOverflow { .. })
    ));
}

#[test]
fn hazard_13_no_reuse_across_buffer_kinds() {
    let mut g = Graph::new();
    let spec = |name, kind| TensorSpec {
        name,
        bytes: 64,
        view: None,
        flags: Flags::NONE,
        kind,
    };
    let x = g.add_tensor(spec("x", 0)).expect("x");
    let y = g.add_tensor(spec("y", 1)).expect("y");
    g.add_node(y, &[x], InPlace(1)).expect("y");
    let limits = [LIMITS[0], Limits::unlimited(128)];
    let plan = Planner::new().quick(&g, &limits).expect("a plan");
    assert_valid(&g, &limits, &plan);
    assert_eq!(plan.kinds.iter().map(|k| k.bytes()).collect::<Vec<_>>(), [64, 128]);
    let error = PlanError::UnknownKind {
        tensor: "y".into(),
        kind: 1,
        kinds: 1,
    };
    assert_eq!(Planner::new().quick(&g, &LIMITS), Err(error));
}

#[test]
fn hazard_14_external_tensors_are_left_alone_throughout() {
    let mut g = Build::default();
    let cache = g.tensor("cache", 4096, Flags::EXTERNAL);
    let view = g.view("view", cache, Flags::NONE);
    let y = g.node("y", 64, &[view, cache], 3);
    let plan = g.plan(&LIMITS);
    assert_eq!(plan.bytes(), 64);
    assert_eq!(plan.placement(&g.0, view), Placement::External);
    assert!(matches!(plan.placement(&g.0, y), Placement::At(_)));
}

#[test]
fn hazard_16_alignment_must_be_a_power_of_two() {
    for alignment in [0, 3, 48] {
        let limits = [Limits::unlimited(alignment)];
        let error = Err(PlanError::Alignment { kind: 0, alignment });
        assert_eq!(Planner::new().quick(&Graph::new(), &limits), error);
        assert_eq!(OnlinePlanner::new().plan(&Graph::new(), &limits, Unread::Freed), error);
    }
}

#[test]
fn operands_named_twice_and_full_views_are_taken_over() {
    let mut g = Build::default();
    let w = g.tensor("w", 64, Flags::EXTERNAL);
    let x = g.node("x", 64, &[w], 0);
    let square = g.node("square", 64, &[x, x], 3);
    let flat = g.view("flat", square, Flags::NONE);
    let turned = g.node("turned", 64, &[flat], 1);
    let half = g.node("half", 64, &[turned, turned], 1);
    let plan = g.plan(&LIMITS);
    let at = |t| plan.placement(&g.0, t);
    assert_eq!((at(square), at(turned)), (at(x), at(x)));
    assert_ne!(at(half), at(x), "the second operand may not be overwritten");
    assert_eq!(plan.bytes(), 128);
}

#[test]
fn the_surplus_behind_a_smaller_result_is_free() {
    let mut g = Build::default();
    let x = g.leaf("x", 256);
    let small = g.node("small", 64, &[x], 1);
    let y = g.node("y", 192, &[small], 0);
    let plan = OnlinePlanner::new().plan(&g.0, &LIMITS, Unread::Freed).expect("a plan");
    assert_valid(&g.0, &LIMITS, &plan);
    assert_eq!(plan.bytes(), 256);
    assert_eq!(plan.placement(&g.0, small), plan.placement(&g.0, x));
    assert!(matches!(plan.placement(&g.0, y), Placement::At(at) if at.offset == 64));
}

#[test]
fn unknown_tensors_and_views_out_of_bounds_are_named() {
    let mut g = Build::default();
    let x = g.leaf("x", 64);
    let unknown = PlanError::UnknownTensor {
        user: "node `x`".into(),
        tensor: 9,
        tensors: 1,
    };
    assert_eq!(g.0.add_node(x, &[TensorId(9)], InPlace::NONE), Err(unknown));
    let spec = TensorSpec {
        name: "v",
        bytes: 64,
        view: Some((x, 1)),
        flags: Flags::NONE,
        kind: 0,
    };
    let outside = PlanError::ViewOutside {
        tensor: "v".into(),
        offset: 1,
        bytes: 64,
        root: "x".into(),
        root_bytes: 64,
    };
    assert_eq!(g.0.add_tensor(spec), Err(outside));
    let many = vec![x; 17];
    assert!(matches!(
        g.0.add_node(x, &many, InPlace::NONE),
        Err(PlanError::TooManyOperands { operands: 17, .. })
    ));
}
