//! Totals on the model graphs: ggml's to the byte in graph order, the lower bound offline.

mod plan_support;

use hexloom::plan::text::InPlaceRules;
use hexloom::plan::{Limits, OnlinePlanner, Planner, Unread};
use plan_support::{MODEL_GRAPHS, RANDOM_GRAPHS, assert_valid, graph};

const ALIGNMENT: u64 = 32;

#[test]
fn online_totals_equal_those_of_ggml() {
    for (name, ggml, _) in MODEL_GRAPHS {
        let graph = graph(name, InPlaceRules::Ggml);
        let limits = [Limits::unlimited(ALIGNMENT)];
        let plan = OnlinePlanner::new().plan(&graph, &limits, Unread::Kept).expect(name);
        assert_eq!(plan.bytes(), ggml, "{name}");
        assert_valid(&graph, &limits, &plan);
    }
}

#[test]
fn quick_meets_the_bound_on_model_graphs() {
    for (name, _, bound) in MODEL_GRAPHS {
        let graph = graph(name, InPlaceRules::Ggml);
        let limits = [Limits::unlimited(ALIGNMENT)];
        let plan = Planner::new().quick(&graph, &limits).expect(name);
        assert_valid(&graph, &limits, &plan);
        assert_eq!((plan.bytes(), plan.kinds[0].lower_bound), (bound, bound), "{name}");
    }
}

#[test]
fn quick_is_near_the_bound_on_random_graphs() {
    let mut sum = 0.0;
    for (name, ggml, bound) in &RANDOM_GRAPHS[..4] {
        let graph = graph(name, InPlaceRules::Ggml);
        let limits = [Limits::unlimited(ALIGNMENT)];
        let plan = Planner::new().quick(&graph, &limits).expect(name);
        assert_valid(&graph, &limits, &plan);
        let lower_bound = plan.kinds[0].lower_bound;
        assert!(lower_bound <= *bound, "{name}: {lower_bound}");
        assert!(plan.bytes() <= *ggml, "{name}: {}", plan.bytes());
        let ratio = plan.bytes() as f64 / lower_bound as f64;
        assert!(ratio <= 1.05, "{name}: {ratio}");
        sum += ratio;
    }
    assert!(sum / 4.0 <= 1.03, "mean {}", sum / 4.0);
}
