//! The case list: one file per op family, each a function that gives its cases.

mod argmax;
mod argsort;
mod attention;
mod binary;
mod count_equal;
mod cpy;
mod functions;
mod gated;
mod linear_attn;
mod matmul;
mod norm;
mod reduce;
mod refused;
mod rope;
mod rows;
mod soft_max;
mod unary;
mod window;

use crate::case::Case;

/// A family of cases.
pub type Family = (&'static str, fn() -> Vec<Case>);

/// Every family, by the name of its file.
pub const FAMILIES: &[Family] = &[
    ("argmax", argmax::cases),
    ("argsort", argsort::cases),
    ("attention", attention::cases),
    ("binary", binary::cases),
    ("count_equal", count_equal::cases),
    ("cpy", cpy::cases),
    ("functions", functions::cases),
    ("gated", gated::cases),
    ("linear_attn", linear_attn::cases),
    ("matmul", matmul::cases),
    ("norm", norm::cases),
    ("reduce", reduce::cases),
    ("refused", refused::cases),
    ("rope", rope::cases),
    ("rows", rows::cases),
    ("soft_max", soft_max::cases),
    ("unary", unary::cases),
    ("window", window::cases),
];

/// Every case.
pub fn all() -> Vec<Case> {
    FAMILIES.iter().flat_map(|(_, cases)| cases()).collect()
}

/// Cases for runners that are slow: those that cost at most `work` ([`Case::work`]), and of each op with the same element
/// types the cheapest.
pub fn cheap(work: u64) -> Vec<Case> {
    let mut cases = all();
    let kind = |case: &Case| {
        let operands = case.srcs.iter().flatten().chain(&case.dsts);
        (case.opcode, operands.map(|operand| operand.dtype).collect::<Vec<_>>())
    };
    // Stable, so that the list keeps its order among equals.
    cases.sort_by_key(Case::work);
    let mut seen = Vec::new();
    cases.retain(|case| {
        let kind = kind(case);
        let first = !seen.contains(&kind);
        if first {
            seen.push(kind);
        }
        first || case.work() <= work
    });
    cases
}
