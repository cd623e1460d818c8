//! Graphs and packing problems that the planning tests and benchmarks share.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use std::io::Read;
use std::path::PathBuf;

use hexloom::plan::text::{InPlaceRules, read_graph};
use hexloom::plan::{Graph, Limits, Plan, validate};

/// The seventeen graphs of real models, each with ggml's total and the lower bound, bytes.
pub const MODEL_GRAPHS: [(&str, u64, u64); 17] = [
    ("S30x576_b1_fa", 795_776, 791_136),
    ("S30x576_b1_nofa", 608_864, 604_224),
    ("S30x576_b512_fa_out1", 16_920_608, 12_724_256),
    ("S30x576_b512_nofa_out1", 47_456_288, 45_094_944),
    ("S30x576_b512_nofa_out1_silumul", 47_456_288, 45_094_944),
    ("S30x576_b512_fa", 101_842_944, 101_842_944),
    ("S30x576_b512_nofa", 101_842_944, 101_842_944),
    ("B32x4096_b1_fa", 1_638_528, 1_605_728),
    ("B32x4096_b1_nofa", 1_646_688, 1_613_888),
    ("B32x4096_b512_fa_out1", 117_452_832, 100_673_568),
    ("B32x4096_b512_nofa_out1", 314_581_024, 297_801_760),
    ("B32x4096_b512_fa", 271_056_896, 271_056_896),
    ("B32x4096_b512_nofa", 314_580_992, 297_801_728),
    ("MoE32_8x2_b1_fa", 1_638_528, 1_605_728),
    ("MoE32_8x2_b512_fa_out1", 205_533_216, 188_774_432),
    ("unet64_320", 128_811_008, 112_721_920),
    ("train24x1024", 1_035_993_120, 1_027_604_512),
];

/// Random graphs, with the same two numbers under ggml's lifetimes.
pub const RANDOM_GRAPHS: [(&str, u64, u64); 5] = [
    ("rand_0", 538_816, 462_432),
    ("rand_1", 700_192, 634_880),
    ("rand_2", 678_464, 563_776),
    ("rand_3", 605_376, 538_976),
    ("rand_big", 4_030_080, 3_934_496),
];

/// A file under `tests/data`.
pub fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

/// Reads one of the graphs in `tests/data/graphs`.
pub fn graph(name: &str, rules: InPlaceRules) -> Graph {
    let file = std::fs::File::open(data(&format!("graphs/{name}.txt.gz"))).expect("a graph of tests/data");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .expect("gzip text");
    read_graph(&text, rules).expect("a graph the reader takes")
}

/// Fails with the fault when `plan` is wrong.
pub fn assert_valid(graph: &Graph, limits: &[Limits], plan: &Plan) {
    if let Err(fault) = validate(graph, limits, plan) {
        panic!("{fault}");
    }
}
