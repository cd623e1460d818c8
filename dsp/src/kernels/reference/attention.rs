//! FLASH_ATTN_EXT by the formula: all scores of a row in f64, their softmax, then the weighted sum of values.
//!
//! Scores are computed twice, once for the maximum and once for the weights, because there is nowhere to keep them.

use hexloom_abi::Status;

use super::element::{get, put};
use crate::hvx::plain::Plain;
use crate::hvx::{Isa, Kernel, Part};
use crate::kernels::slope::slope;
use crate::kernels::{Context, OpArgs};
use crate::real;
use crate::tensor::Tensor;

/// Elements of the widest head.
const MAX_HEAD: usize = hexloom_abi::support::MAX_HEAD as usize;

pub(super) fn attention(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    cx.run::<Plain, _>(&Attention {
        q: args.src(0)?,
        k: args.src(1)?,
        v: args.src(2)?,
        mask: args.src_opt(3),
        sinks: args.src_opt(4),
        out: args.dst(0)?,
        scale: f64::from(args.op.param_f32(0)),
        max_bias: args.op.param_f32(1),
        softcap: f64::from(args.op.param_f32(2)),
    })
}

struct Attention<'a> {
    q: Tensor<'a>,
    k: Tensor<'a>,
    v: Tensor<'a>,
    mask: Option<Tensor<'a>>,
    sinks: Option<Tensor<'a>>,
    out: Tensor<'a>,
    scale: f64,
    max_bias: f32,
    softcap: f64,
}

impl Kernel for Attention<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        for row in part.range(self.q.rows()) {
            self.row(self.q.row_index(row));
        }
    }
}

impl Attention<'_> {
    fn row(&self, place: [usize; 3]) {
        let [token, head, seq] = place;
        let [_, _, n_heads, n_seqs] = self.q.ne();
        let [_, n_kv, kv_heads, kv_seqs] = self.k.ne();
        let matrix = [head / (n_heads / kv_heads), seq / (n_seqs / kv_seqs)];
        let mut query = [0.0; MAX_HEAD];
        for (idx, element) in query.iter_mut().enumerate().take(self.q.ne()[0]) {
            *element = get(&self.q, [idx, token, head, seq]);
        }
        let sink = self.sinks.map(|sinks| get(&sinks, [head, 0, 0, 0]));
        let mut max = sink.unwrap_or(f64::NEG_INFINITY);
        for position in 0..n_kv {
            max = max.max(self.score(&query, place, matrix, position));
        }
        let mut sums = [0.0; MAX_HEAD];
        let mut total = 0.0;
        if max > f64::NEG_INFINITY {
            total = sink.map_or(0.0, |sink| real::exp(sink - max));
            for position in 0..n_kv {
                let score = self.score(&query, place, matrix, position);
                if score == f64::NEG_INFINITY {
                    continue;
                }
                let weight = real::exp(score - max);
                total += weight;
                for (idx, sum) in sums.iter_mut().enumerate().take(self.v.ne()[0]) {
                    *sum += weight * get(&self.v, [idx, position, matrix[0], matrix[1]]);
                }
            }
        }
        for (idx, sum) in sums.iter().enumerate().take(self.v.ne()[0]) {
            let value = if total == 0.0 { 0.0 } else { sum / total };
            put(&self.out, [idx, head, token, seq], value);
        }
    }

    fn score(&self, query: &[f64], [token, head, seq]: [usize; 3], matrix: [usize; 2], position: usize) -> f64 {
        let mask = self.mask.map_or(0.0, |mask| {
            let [_, _, m2, m3] = mask.ne();
            get(&mask, [position, token, head % m2, seq % m3])
        });
        if mask == f64::NEG_INFINITY {
            return mask;
        }
        let [dk, _, n_heads, _] = self.q.ne();
        let product: f64 = query[..dk]
            .iter()
            .enumerate()
            .map(|(idx, element)| element * get(&self.k, [idx, position, matrix[0], matrix[1]]))
            .sum();
        let mut score = product * self.scale;
        if self.softcap != 0.0 {
            score = self.softcap * tanh(score / self.softcap);
        }
        score + f64::from(slope(self.max_bias, n_heads, head)) * mask
    }
}

fn tanh(x: f64) -> f64 {
    let e = real::exp(-2.0 * x.abs());
    ((1.0 - e) / (1.0 + e)).copysign(x)
}
