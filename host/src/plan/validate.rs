//! A plain check of a plan, sharing no code with the planners: every pair of tensors, one by one.
//!
//! It works lifetimes out again from the graph and accepts overlap in one case only: a result that lies
//! exactly where an operand lay that dies in that step and that its node may overwrite.

use super::graph::{Flags, Graph, TensorId};
use super::limits::Limits;
use super::result::{Placement, Plan};

/// What is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Two tensors alive at once share bytes.
    #[error("`{first}` at {first_at} and `{second}` at {second_at} of chunk {chunk} are alive at step {step} together")]
    Overlap {
        /// The earlier tensor.
        first: String,
        /// Its offset.
        first_at: u64,
        /// The later tensor.
        second: String,
        /// Its offset.
        second_at: u64,
        /// Their chunk.
        chunk: u32,
        /// A step at which both live; node `i` runs at step `i + 1`.
        step: usize,
    },
    /// An offset is not a multiple of the alignment.
    #[error("`{tensor}` at {offset} is not aligned to {alignment}")]
    Misaligned {
        /// The tensor.
        tensor: String,
        /// Its offset.
        offset: u64,
        /// Alignment of its kind.
        alignment: u64,
    },
    /// A tensor passes the end of its chunk, or names a chunk that is not there.
    #[error("`{tensor}` with {bytes} bytes at {offset} is not inside chunk {chunk}")]
    Outside {
        /// The tensor.
        tensor: String,
        /// Its size.
        bytes: u64,
        /// Its offset.
        offset: u64,
        /// Its chunk.
        chunk: u32,
    },
    /// A chunk is larger than the limit and than its largest tensor.
    #[error("chunk {chunk} of kind {kind} has {bytes} bytes, over the limit of {limit}")]
    ChunkTooLarge {
        /// Buffer kind.
        kind: usize,
        /// Chunk.
        chunk: usize,
        /// Its bytes.
        bytes: u64,
        /// Largest allowed.
        limit: u64,
    },
    /// More chunks than allowed.
    #[error("kind {kind} uses {chunks} chunks, allowed are {max}")]
    TooManyChunks {
        /// Buffer kind.
        kind: usize,
        /// Chunks used.
        chunks: usize,
        /// Chunks allowed.
        max: usize,
    },
    /// A tensor that needs memory got none.
    #[error("`{tensor}` has no place")]
    Unplaced {
        /// The tensor.
        tensor: String,
    },
}

/// Checks `plan` against `graph` and `limits`, pair by pair: quadratic in the number of planned tensors.
///
/// # Errors
/// The first fault found.
pub fn validate(graph: &Graph, limits: &[Limits], plan: &Plan) -> Result<(), Fault> {
    let placed = collect(graph, limits, plan)?;
    check_chunks(limits, plan, &placed)?;
    for (i, a) in placed.iter().enumerate() {
        for b in &placed[i + 1..] {
            let touch = a.kind == b.kind && a.chunk == b.chunk && a.offset < b.end() && b.offset < a.end();
            let step = a.start.max(b.start);
            if !touch || step > a.last.min(b.last) || takes_over(graph, a, b) || takes_over(graph, b, a) {
                continue;
            }
            let name = |p: &Placed| graph.name(TensorId(p.idx)).to_owned();
            return Err(Fault::Overlap {
                first: name(a),
                first_at: a.offset,
                second: name(b),
                second_at: b.offset,
                chunk: a.chunk,
                step,
            });
        }
    }
    Ok(())
}

struct Placed {
    idx: u32,
    kind: u8,
    chunk: u32,
    offset: u64,
    bytes: u64,
    start: usize,
    last: usize,
}

impl Placed {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

fn collect(graph: &Graph, limits: &[Limits], plan: &Plan) -> Result<Vec<Placed>, Fault> {
    let lives = lifetimes(graph);
    let mut placed = Vec::new();
    for (idx, t) in (0..).zip(&graph.tensors) {
        let name = || graph.name(TensorId(idx)).to_owned();
        if t.root != idx || t.bytes == 0 || t.flags.has(Flags::EXTERNAL) {
            continue;
        }
        let Placement::At(at) = plan.placement(graph, TensorId(idx)) else {
            return Err(Fault::Unplaced { tensor: name() });
        };
        let alignment = limits[t.kind as usize].alignment;
        if at.offset % alignment != 0 {
            return Err(Fault::Misaligned {
                tensor: name(),
                offset: at.offset,
                alignment,
            });
        }
        let chunk_bytes = plan.kinds[t.kind as usize].chunks.get(at.chunk as usize);
        let end = at.offset.checked_add(t.bytes);
        if chunk_bytes.zip(end).is_none_or(|(&size, end)| end > size) {
            return Err(Fault::Outside {
                tensor: name(),
                bytes: t.bytes,
                offset: at.offset,
                chunk: at.chunk,
            });
        }
        let (start, last) = lives[idx as usize];
        let (bytes, offset) = (t.bytes, at.offset);
        placed.push(Placed {
            idx,
            kind: t.kind,
            chunk: at.chunk,
            offset,
            bytes,
            start,
            last,
        });
    }
    Ok(placed)
}

fn check_chunks(limits: &[Limits], plan: &Plan, placed: &[Placed]) -> Result<(), Fault> {
    for (kind, (l, k)) in limits.iter().zip(&plan.kinds).enumerate() {
        if k.chunks.len() > l.max_chunks {
            return Err(Fault::TooManyChunks {
                kind,
                chunks: k.chunks.len(),
                max: l.max_chunks,
            });
        }
        for (chunk, &bytes) in k.chunks.iter().enumerate() {
            let inside = placed
                .iter()
                .filter(|p| p.kind as usize == kind && p.chunk as usize == chunk);
            let largest = inside.filter_map(|p| l.round(p.bytes)).max().unwrap_or(0);
            let limit = l.chunk_bytes.max(largest);
            let endless = l.last_chunk_unbounded && chunk + 1 == k.chunks.len();
            if bytes > limit && !endless {
                return Err(Fault::ChunkTooLarge {
                    kind,
                    chunk,
                    bytes,
                    limit,
                });
            }
        }
    }
    Ok(())
}

/// First and last step at which each tensor's bytes are needed; entries of views mean nothing.
fn lifetimes(graph: &Graph) -> Vec<(usize, usize)> {
    let mut lives = vec![None; graph.tensors.len()];
    for (step, node) in (1..).zip(&graph.nodes) {
        for o in graph.operands_of(node).iter().chain([&TensorId(node.dst)]) {
            let (root, _) = graph.root(*o);
            let (_, last) = lives[root.0 as usize].get_or_insert((step, step));
            *last = step;
        }
    }
    let seen = |(t, life): (&super::graph::Tensor, Option<(usize, usize)>)| {
        let (first, last) = life.unwrap_or((0, 0));
        let start = if t.leaf || t.flags.has(Flags::INPUT) { 0 } else { first };
        (start, if t.flags.has(Flags::OUTPUT) { usize::MAX } else { last })
    };
    graph.tensors.iter().zip(lives).map(seen).collect()
}

/// Whether `new` rightly lies where `old` dies.
fn takes_over(graph: &Graph, old: &Placed, new: &Placed) -> bool {
    if old.last != new.start || new.start == 0 || old.offset != new.offset {
        return false;
    }
    let node = &graph.nodes[new.start - 1];
    let mut named = false;
    let allowed = graph.operands_of(node).iter().enumerate().all(|(i, o)| {
        let (root, offset) = graph.root(*o);
        named |= root.0 == old.idx;
        root.0 != old.idx || (node.in_place.allows(i) && offset == 0)
    });
    node.dst == new.idx && named && allowed
}
