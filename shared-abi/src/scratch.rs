//! How much scratch memory (VTCM, or what stands in for it) an op needs: a pure function that host and DSP share.
//!
//! A kernel works in whatever lies between its least and its full need and gives the same bits either way; below the
//! least the op is unsupported, and both sides say so from here.

use crate::code::{DType, Opcode};
use crate::layout::align_up;
use crate::limits::LINE_BYTES;
use crate::op::{Op, Shape};
use crate::support::{Part, Reason, Unsupported};
use crate::tile::{TILE_K, TileLayout};

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

/// Refuses an op whose least need is more than `scratch_bytes` when the sources of `srcs` (bit i is source i) lie in extended
/// buffers, from which they are copied to scratch. Operands must have passed [`crate::support::check_extended`].
///
/// A weight of a product comes in slices of rows, one group of tiles or one row of floats at a time at least; a table of
/// GET_ROWS by rows, or by parts of a row of 32 elements at least; everything else as a whole.
pub fn check_extended(op: &Op, srcs: u16, n_threads: u32, scratch_bytes: u64) -> Result<(), Unsupported> {
    let mut whole = 0u64;
    let mut slice = 0u64;
    for (idx, src) in op.srcs.iter().enumerate() {
        let Some(src) = src else { continue };
        if srcs.checked_shr(u32::try_from(idx).unwrap_or(u32::MAX)).unwrap_or(0) & 1 == 0 {
            continue;
        }
        match op.opcode {
            Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx if op.dst(idx).is_some() => {
                slice = slice.max(weight_slice_bytes(src));
            }
            Opcode::GetRows if idx == 0 => {
                let [k, _, n2, n3] = src.ne;
                // A piece of a row is whole blocks, and at least a tile.
                let block = u32::try_from(src.dtype.block_elems()).unwrap_or(u32::MAX);
                let part = Shape {
                    ne: [k.min(TILE_K.max(block)), 1, n2.min(1), n3.min(1)],
                    ..*src
                };
                slice = line(part.extent_bytes().unwrap_or(u64::MAX)).saturating_add(LINE_BYTES);
            }
            _ => whole = whole.saturating_add(line(src.extent_bytes().unwrap_or(u64::MAX))),
        }
    }
    let least = line(need(op, n_threads).least);
    let bytes = least.saturating_add(whole).saturating_add(slice);
    if bytes <= scratch_bytes {
        Ok(())
    } else {
        Err(Unsupported {
            at: Part::Op,
            reason: Reason::Scratch,
        })
    }
}

/// The smallest slice of a weight: a group of tiles, or a row, of all its matrices.
fn weight_slice_bytes(weight: &Shape) -> u64 {
    let [k, rows, n2, n3] = weight.ne;
    let matrices = u64::from(n2).saturating_mul(u64::from(n3));
    let bytes = match TileLayout::new(weight.dtype, k) {
        Some(tile) if weight.tiled => u64::from(tile.group_bytes),
        _ => weight.dtype.row_bytes(u64::from(k)).unwrap_or(u64::MAX),
    };
    if rows == 0 {
        0
    } else {
        line(bytes.saturating_mul(matrices))
    }
}

/// Bytes of one activation row prepared for a quantised weight, at most: per 32 elements a vector for the int8 codes and one
/// each for scale, sum and offset, and a line for the row. Kernels that need no vectors of equal lanes take less and do more rows at a time.
pub fn quantized_row_bytes(k: u32) -> u64 {
    u64::from(k / 32)
        .saturating_mul(4 * LINE_BYTES)
        .saturating_add(LINE_BYTES)
}

/// Activation rows up to which 8-bit weights meet two int8 terms instead of one.
pub const FINE_ROWS: u64 = 4;

/// Int8 terms that a prepared activation is the sum of: its codes, and where it pays the codes of what they leave over.
///
/// 8-bit weights are those of the layers that models keep precise, above all the one that makes the logits. With few rows
/// such a product waits for its weights, so the second term costs little and takes the activations' rounding away.
pub fn activation_terms(weight: DType, rows: u64) -> u64 {
    match weight {
        DType::Q8_0 if rows <= FINE_ROWS => 2,
        _ => 1,
    }
}

/// Bytes of one activation row prepared for a float weight: f32 values.
pub fn float_row_bytes(k: u32) -> u64 {
    line(u64::from(k).saturating_mul(4))
}

/// Positions of the KV cache that one attention step works through at a time, and that a mask can hide as a whole.
pub const ATTENTION_BLOCK: u32 = 64;
/// Keys or values widened to f32 at a time.
pub const ATTENTION_STRIP: u32 = 16;
/// Query rows that share one pass over keys and values.
pub const ATTENTION_ROWS: u32 = 8;
/// Query tokens up to which the KV range is cut, because few query rows would leave threads idle.
pub const ATTENTION_SPLIT_TOKENS: u32 = 4;
/// Least KV positions of a piece.
pub const ATTENTION_MIN_PIECE: u32 = 128;
/// Most pieces of the KV range.
pub const ATTENTION_MAX_PIECES: u32 = 16;

/// KV positions of one piece, whose result is computed apart and merged: fixed by the op, so that results do not depend
/// on threads. At least 1.
pub fn attention_piece(n_tokens: u32, n_kv: u32) -> u32 {
    if n_tokens > ATTENTION_SPLIT_TOKENS {
        return n_kv.max(1);
    }
    n_kv.div_ceil(ATTENTION_MAX_PIECES)
        .checked_next_multiple_of(ATTENTION_BLOCK)
        .unwrap_or(u32::MAX)
        .max(ATTENTION_MIN_PIECE)
}

/// Bytes of one row's partial attention result: DV sums, then on a line of their own maximum and denominator.
pub fn attention_partial_bytes(dv: u32) -> u64 {
    float_row_bytes(dv).saturating_add(LINE_BYTES)
}

/// Bytes of one thread's attention working set: queries, sums, scores, one strip of keys or values as f32.
pub fn attention_thread_bytes(dk: u32, dv: u32) -> u64 {
    let rows = u64::from(ATTENTION_ROWS);
    let queries = rows.saturating_mul(float_row_bytes(dk));
    let sums = rows.saturating_mul(float_row_bytes(dv));
    let scores = rows.saturating_mul(float_row_bytes(ATTENTION_BLOCK));
    let strip = u64::from(ATTENTION_STRIP).saturating_mul(float_row_bytes(dk.max(dv)));
    queries
        .saturating_add(sums)
        .saturating_add(scores)
        .saturating_add(strip)
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
        row.max(match weight.tiled {
            true => quantized_row_bytes(k).saturating_mul(activation_terms(weight.dtype, x.rows())),
            false => float_row_bytes(k),
        })
    });
    ScratchNeed {
        least: if x.rows() > 0 { row } else { 0 },
        full: row.saturating_mul(x.rows()),
    }
}

fn attention(op: &Op, n_threads: u32) -> ScratchNeed {
    let (Some(q), Some(k), Some(v)) = (op.src(0), op.src(1), op.src(2)) else {
        return ScratchNeed::default();
    };
    let [dk, n_tokens, n_heads, n_seqs] = q.ne;
    let [_, n_kv, n_kv_heads, _] = k.ne;
    let [dv, ..] = v.ne;
    let working = per_thread(attention_thread_bytes(dk, dv), n_threads).full;
    let pieces = n_kv.div_ceil(attention_piece(n_tokens, n_kv));
    if pieces <= 1 {
        return ScratchNeed {
            least: working,
            full: working,
        };
    }
    // An item is up to ATTENTION_ROWS query rows of one KV head; at least one item's partial results must fit.
    let item = attention_partial_bytes(dv)
        .saturating_mul(u64::from(ATTENTION_ROWS))
        .saturating_mul(u64::from(pieces));
    let group = n_heads.checked_div(n_kv_heads).unwrap_or(0);
    let items = u64::from(n_tokens)
        .saturating_mul(u64::from(group))
        .div_ceil(u64::from(ATTENTION_ROWS))
        .saturating_mul(u64::from(n_kv_heads))
        .saturating_mul(u64::from(n_seqs));
    ScratchNeed {
        least: working.saturating_add(item),
        full: working.saturating_add(item.saturating_mul(items)),
    }
}

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
