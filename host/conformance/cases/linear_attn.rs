//! LINEAR_ATTN: every rule, shared and own operands, one token and several, states kept of several tokens.

use hexloom::abi::Opcode;
use hexloom::abi::recurrence::{BONUS, DELTA, LOW_RANK, PLAIN};

use crate::{Case, Fill, Layout, Operand};

/// Width of a state's rows, their number, heads, tokens, sequences.
type Sizes = [u32; 5];

/// A case whose keys, queries and decays are those of `shared` heads, and that keeps the states of `kept` tokens.
fn case(rule: u32, [width, values, heads, tokens, seqs]: Sizes, [shared, kept]: [u32; 2]) -> Case {
    // Decays below 1 and small keys, so that states stay near 1 over many tokens.
    let small = |n: u32, heads: u32, tokens: u32| {
        Operand::f32([n, heads, tokens, seqs]).fill(Fill::Values(vec![0.25, -0.125, 0.1, 0.3, -0.2, 0.05, 0.15]))
    };
    let decays = |n: u32| Operand::f32([n, shared, tokens, seqs]).fill(Fill::Values(vec![0.9, 0.5, 0.75, 0.99, 0.8]));
    let case = Case::new(Opcode::LinearAttn)
        .named(format_args!(
            "rule {rule}, {width} {values} {heads} {tokens} {seqs}, {shared} shared, {kept} kept"
        ))
        .src(small(width, shared, tokens))
        .src(decays(if rule == DELTA { 1 } else { width }))
        .src(small(width, shared, tokens))
        .src(Operand::f32([values, heads, tokens, seqs]))
        .src(Operand::f32([width, values, heads, seqs]));
    let case = match rule {
        DELTA => case.src(Operand::f32([1, heads, tokens, seqs]).fill(Fill::Values(vec![0.5, 0.9, 0.1]))),
        LOW_RANK => case.src(small(width, heads, tokens)).src(small(width, shared, tokens)),
        BONUS => case.src(Operand::f32([width, heads, 1, 1])),
        _ => case,
    };
    case.dst(Operand::f32([values, heads, tokens, seqs]).fill(Fill::Junk))
        .dst(Operand::f32([width, values, heads, seqs * kept]).fill(Fill::Junk))
        .param(0, rule)
        .param_f32(1, 0.5)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for rule in [PLAIN, DELTA, LOW_RANK, BONUS] {
        cases.push(case(rule, [64, 64, 2, 1, 1], [2, 1]));
        cases.push(case(rule, [33, 7, 4, 5, 2], [2, 1]));
        cases.push(case(rule, [33, 7, 4, 5, 2], [2, 1]).param(2, 1).named("in groups"));
        cases.push(case(rule, [16, 16, 1, 4, 2], [1, 3]));
        cases.push(case(rule, [1, 1, 1, 1, 1], [1, 1]));
    }
    let mut gated = case(PLAIN, [33, 7, 4, 5, 4], [2, 1]).named("with beta");
    gated = gated.src(Operand::f32([1, 4, 5, 2]).fill(Fill::Values(vec![0.5, 0.9, 0.1])));
    cases.push(gated);
    let mut turned = case(PLAIN, [20, 6, 2, 3, 1], [2, 1]);
    turned.srcs[4] = Some(Operand::f32([20, 6, 2, 1]).layout(Layout::Permuted([1, 0, 2, 3])));
    cases.push(turned.named("turned"));
    cases
}
