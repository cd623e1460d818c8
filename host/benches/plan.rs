//! Planning time per graph: divide by the nodes in the name to compare with ggml's (see `benches/peer`).
//!
//! What matters: `online` at most ggml's plan, `quick` at most three times that, `rebind` at most ggml's
//! replay; quick mode of rand_big at most 2 us a node. Packing benchmarks show quick passes (at most 5 ms)
//! and the time until an instance of minimalloc is placed at capacity.

#[path = "../tests/plan_support/mod.rs"]
mod plan_support;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use hexloom::plan::text::InPlaceRules;
use hexloom::plan::{Budget, Limits, OnlinePlanner, Planner, Problem, Unread};
use plan_support::{MODEL_GRAPHS, RANDOM_GRAPHS, data, graph};

const CAPACITY: u64 = 1_048_576;

fn graphs(c: &mut Criterion) {
    for (name, ..) in MODEL_GRAPHS.into_iter().chain(RANDOM_GRAPHS) {
        let graph = graph(name, InPlaceRules::Ggml);
        let limits = [Limits::unlimited(32)];
        let mut group = c.benchmark_group(format!("{name} ({} nodes)", graph.nodes()));
        let mut online = OnlinePlanner::new();
        group.bench_function("online", |b| {
            b.iter(|| black_box(online.plan(&graph, &limits, Unread::Kept)))
        });
        let mut planner = Planner::new();
        group.bench_function("quick", |b| b.iter(|| black_box(planner.quick(&graph, &limits))));
        let plan = planner.quick(&graph, &limits).expect(name);
        group.bench_function("rebind", |b| b.iter(|| black_box(plan.check(black_box(&graph)))));
        group.finish();
    }
}

fn packing(c: &mut Criterion) {
    let mut group = c.benchmark_group("minimalloc");
    group.sample_size(10);
    for name in 'A'..='K' {
        let text = std::fs::read_to_string(data(&format!("minimalloc/{name}.{CAPACITY}.csv"))).expect("a file");
        let problem = Problem::read(&text).expect("a problem");
        group.bench_function(format!("{name} quick"), |b| {
            b.iter(|| black_box(problem.pack(None, Budget::steps(0))))
        });
        let until_placed = || problem.pack(Some(CAPACITY), Budget::steps(u64::MAX));
        group.bench_function(format!("{name} at capacity"), |b| b.iter(|| black_box(until_placed())));
    }
    group.finish();
}

criterion_group!(benches, graphs, packing);
criterion_main!(benches);
