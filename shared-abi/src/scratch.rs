//! How much scratch memory (VTCM, or what stands in for it) an op needs: a pure function that host and DSP share.
//!
//! A kernel works in whatever lies between its least and its full need and gives the same bits either way; below the
//! least the op is unsupported, and both sides say so from here.

use crate::code::{DType, Opcode};
use crate::layout::align_up;
use crate::limits::LINE_BYTES;
use crate::op::Op;
use crate::support::{Part, Reason, Unsupported};

/// Scratch bytes of an op at a given number of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScratchNeed {
    /// With less the op cannot run.
    pub least: u64,
    /// With this much nothing is done in pieces.
    pub full: u64,
}

/// What an op needs. Operands must have passed [`crate::support::check`].
pub fn need(op: &Op, n_threads: u32) -> ScratchNeed {
    match op.opcode {
        Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx => matmul(op),
        Opcode::FlashAttnExt => attention(op, n_threads),
        Opcode::Rope => rope(op, n_threads),
        _ => ScratchNeed::default(),
    }
}

/// Refuses an op whose least need is more than `scratch_bytes`.
pub fn check(op: &Op, n_threads: u32, scratch_bytes: u64) -> Result<(), Unsupported> {
    if need(op, n_threads).least <= scratch_bytes {
        Ok(())
    } else {
        Err(Unsupported {
            at: Part::Op,
            reason: Reason::Scratch,
        })
    }
}

/// Bytes of one activation row prepared for a quantised weight: int8 codes, then per 32 of them an f32
/// scale, an f32 sum and an i32 sum of codes.
pub fn quantized_row_bytes(k: u32) -> u64 {
    let k = u64::from(k);
    line(k.saturating_add((k / 32).saturating_mul(12)))
}

/// Bytes of one activation row prepared for a float weight: f32 values.
pub fn float_row_bytes(k: u32) -> u64 {
    line(u64::from(k).saturating_mul(4))
}

/// Positions of the KV cache that one attention step works through at a time.
pub const ATTENTION_BLOCK: u32 = 64;
/// KV positions of one partial result when few query rows leave threads idle: fixed, so that results do not depend on threads.
pub const ATTENTION_SPLIT: u32 = 512;
/// Query tokens up to which the KV range is split.
pub const ATTENTION_SPLIT_TOKENS: u32 = 4;
/// Query rows that share one pass over keys and values.
pub const ATTENTION_ROWS: u32 = 8;

/// KV pieces that attention computes apart and merges.
pub fn attention_pieces(n_tokens: u32, n_kv: u32) -> u32 {
    if n_tokens <= ATTENTION_SPLIT_TOKENS {
        n_kv.div_ceil(ATTENTION_SPLIT).max(1)
    } else {
        1
    }
}

/// Bytes of one partial attention result: DV sums, maximum and denominator, on a line.
pub fn attention_partial_bytes(dv: u32) -> u64 {
    line(u64::from(dv).saturating_mul(4).saturating_add(8))
}

/// Bytes of one thread's attention working set: queries, scores, sums, one block of keys or values as f32.
pub fn attention_thread_bytes(dk: u32, dv: u32) -> u64 {
    let rows = u64::from(ATTENTION_ROWS);
    let widest = dk.max(dv);
    let queries = rows.saturating_mul(float_row_bytes(dk));
    let sums = rows.saturating_mul(float_row_bytes(dv));
    let scores = rows.saturating_mul(float_row_bytes(ATTENTION_BLOCK));
    let block = u64::from(ATTENTION_BLOCK).saturating_mul(float_row_bytes(widest));
    queries
        .saturating_add(sums)
        .saturating_add(scores)
        .saturating_add(block)
}

fn matmul(op: &Op) -> ScratchNeed {
    let weights = op.n_srcs().saturating_sub(match op.opcode {
        Opcode::MulMatAdd => 2,
        _ => 1,
    });
    let Some(x) = op.src(weights) else {
        return ScratchNeed::default();
    };
    let [k, ..] = x.ne;
    // The weights of MUL_MAT_NX may differ in type; the same memory then holds one preparation after the other.
    let row = op.srcs.iter().take(weights).flatten().fold(0, |row, weight| {
        row.max(match weight.dtype {
            DType::Q4_0 | DType::Q4_1 | DType::Q8_0 => quantized_row_bytes(k),
            _ => float_row_bytes(k),
        })
    });
    ScratchNeed {
        least: if x.rows() > 0 { row } else { 0 },
        full: row.saturating_mul(x.rows()),
    }
}

fn attention(op: &Op, n_threads: u32) -> ScratchNeed {
    let (Some(q), Some(v)) = (op.src(0), op.src(2)) else {
        return ScratchNeed::default();
    };
    let [dk, n_tokens, n_heads, n_seqs] = q.ne;
    let [dv, n_kv, ..] = v.ne;
    let working = per_thread(attention_thread_bytes(dk, dv), n_threads).full;
    let pieces = attention_pieces(n_tokens, n_kv);
    let partials = if pieces > 1 {
        [n_tokens, n_heads, n_seqs, pieces]
            .iter()
            .fold(attention_partial_bytes(dv), |bytes, &n| {
                bytes.saturating_mul(u64::from(n))
            })
    } else {
        0
    };
    let bytes = working.saturating_add(partials);
    ScratchNeed {
        least: bytes,
        full: bytes,
    }
}

/// Frequencies of all pairs as three f32 each, then cosines and sines of each thread; all in whole vectors of 32.
fn rope(op: &Op, n_threads: u32) -> ScratchNeed {
    let n_dims = u64::from(op.param(1));
    let frequencies = line((n_dims / 2).saturating_mul(4)).saturating_mul(3);
    let tables = per_thread(line(n_dims.saturating_mul(4)).saturating_mul(2), n_threads);
    let bytes = tables.full.saturating_add(frequencies);
    ScratchNeed {
        least: bytes,
        full: bytes,
    }
}

fn per_thread(bytes: u64, n_threads: u32) -> ScratchNeed {
    let all = line(bytes).saturating_mul(u64::from(n_threads.max(1)));
    ScratchNeed { least: all, full: all }
}

fn line(bytes: u64) -> u64 {
    align_up(bytes, LINE_BYTES).unwrap_or(u64::MAX)
}
