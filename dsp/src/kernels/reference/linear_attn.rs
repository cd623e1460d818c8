//! LINEAR_ATTN: sums in f64, the state rounded to its own type after each token.

use hexloom_abi::Status;
use hexloom_abi::recurrence::{BONUS, DELTA, GROUPED, LOW_RANK, PLAIN};

use super::element::{Index, get, put, rows};
use crate::kernels::OpArgs;
use crate::tensor::Tensor;

pub(super) fn linear_attn(args: &OpArgs<'_>) -> Result<(), Status> {
    let (queries, decays, keys) = (args.src(0)?, args.src(1)?, args.src(2)?);
    let (values, before) = (args.src(3)?, args.src(4)?);
    let (out, after) = (args.dst(0)?, args.dst(1)?);
    let (rule, scale) = (args.op.param(0), f64::from(args.op.param_f32(1)));
    let [_, n_heads, n_tokens, n_seqs] = out.ne();
    let width = before.ne()[0];
    let n_kept = after.ne()[3] / n_seqs;
    // Element i of what a head reads of an operand; one that has a single element has it for all.
    let of = |tensor: &Tensor<'_>, i: usize, [head, token, seq]: [usize; 3]| {
        let [n0, n1, n2, n3] = tensor.ne();
        let head = if args.op.param(2) == GROUPED {
            head / (n_heads / n1)
        } else {
            head % n1
        };
        get(tensor, [i % n0, head, token % n2, seq / (n_seqs / n3)])
    };
    let absent = if rule == PLAIN { 1.0 } else { 0.0 };
    let first = |i, at| args.src_opt(5).map_or(absent, |tensor| of(&tensor, i, at));
    let second = |i, at| args.src_opt(6).map_or(0.0, |tensor| of(&tensor, i, at));
    for [value, head, seq] in rows(&before) {
        let place = |slot: usize, i: usize| -> Index { [i, value, head, slot * n_seqs + seq] };
        for i in 0..width {
            put(&after, place(0, i), get(&before, [i, value, head, seq]));
        }
        for token in 0..n_tokens {
            let at = [head, token, seq];
            let v = get(&values, [value, head, token, seq]);
            let state = |i| get(&after, place(0, i));
            let known: f64 = match rule {
                DELTA => (0..width)
                    .map(|i| of(&keys, i, at) * of(&decays, i, at) * state(i))
                    .sum(),
                LOW_RANK => (0..width).map(|i| first(i, at) * state(i)).sum(),
                _ => 0.0,
            };
            let gain = match rule {
                PLAIN | DELTA => (v - known) * first(0, at),
                _ => v,
            };
            let mut result = 0.0;
            for i in 0..width {
                let (was, taken) = (state(i), gain * of(&keys, i, at));
                let next = was * of(&decays, i, at) + taken + second(i, at) * known;
                let read = if rule == BONUS {
                    was + first(i, at) * taken
                } else {
                    next
                };
                result += of(&queries, i, at) * read;
                put(&after, place(0, i), next);
            }
            put(&out, [value, head, token, seq], result * scale);
            let left = n_tokens - 1 - token;
            if left > 0 && left < n_kept {
                for i in 0..width {
                    let kept = get(&after, place(0, i));
                    put(&after, place(left, i), kept);
                }
            }
        }
    }
    Ok(())
}
