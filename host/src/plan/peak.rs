//! Who lies in a chunk: at its fullest moment ("what would I have to make smaller?"), and over time, for a picture.

use super::graph::{Graph, TensorId};
use super::lifetimes::{Lifetimes, Unread};
use super::problem::{Packing, Problem, ProblemBuffer};
use super::result::{Placement, Plan};

/// The fullest moment of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peak {
    /// Step of that moment: 0 before the first node, `i + 1` while node `i` runs.
    pub step: u32,
    /// Bytes alive in the chunk then.
    pub bytes: u64,
    /// The tensors alive in the chunk then and their room in bytes, largest first. Of tensors that share a range
    /// in place the one being made is named.
    pub tensors: Vec<(TensorId, u64)>,
}

impl Plan {
    /// The fullest moment of chunk `chunk` of kind `kind`; `None` when it holds nothing.
    pub fn peak(&self, graph: &Graph, kind: u8, chunk: u32) -> Option<Peak> {
        let mut life = Lifetimes::default();
        life.compute(graph, Unread::Freed);
        let here = self.tensors_in(graph, kind, chunk);
        // Live bytes only grow where a tensor begins.
        let mut steps: Vec<u32> = here.iter().map(|&(idx, _)| life.start[idx as usize]).collect();
        steps.dedup();
        let alive_at = |step: u32| {
            let alive = here
                .iter()
                .filter(|t| (life.start[t.0 as usize]..=life.last[t.0 as usize]).contains(&step));
            let mut alive: Vec<&(u32, u64)> = alive.collect();
            // Later tensors at an offset took it over from earlier ones.
            alive.sort_by_key(|&&(idx, offset)| (offset, std::cmp::Reverse(idx)));
            alive.dedup_by_key(|t| t.1);
            alive
                .into_iter()
                .map(|&(idx, _)| (TensorId(idx), self.room[idx as usize]))
                .collect::<Vec<_>>()
        };
        let sum = |tensors: &[(TensorId, u64)]| tensors.iter().map(|t| t.1).sum::<u64>();
        let (step, bytes) = steps
            .into_iter()
            .map(|step| (step, sum(&alive_at(step))))
            .reduce(|best, next| if next.1 > best.1 { next } else { best })?;
        let mut tensors = alive_at(step);
        tensors.sort_by_key(|&(id, bytes)| (std::cmp::Reverse(bytes), id));
        Some(Peak { step, bytes, tensors })
    }

    /// A chunk as a packing problem that is solved already: what [`draw`](super::svg::draw) needs.
    ///
    /// Time counts steps. A tensor that a result takes over ends one step early, so that nothing overlaps.
    pub fn chunk_as_problem(&self, graph: &Graph, kind: u8, chunk: u32) -> (Problem, Packing) {
        let mut life = Lifetimes::default();
        life.compute(graph, Unread::Freed);
        let here = self.tensors_in(graph, kind, chunk);
        let steps = graph.nodes.len() as u32 + 1;
        let taken: std::collections::HashSet<(u64, u32)> = here
            .iter()
            .map(|&(idx, offset)| (offset, life.start[idx as usize]))
            .collect();
        let mut problem = Problem::default();
        let mut offsets = Vec::with_capacity(here.len());
        for &(idx, offset) in &here {
            let (start, last) = (life.start[idx as usize], life.last[idx as usize].min(steps - 1));
            let upper = if last > start && taken.contains(&(offset, last)) {
                last
            } else {
                last + 1
            };
            problem.buffers.push(ProblemBuffer {
                id: graph.name(TensorId(idx)).to_owned(),
                lower: start.into(),
                upper: upper.into(),
                size: self.room[idx as usize],
            });
            offsets.push(offset);
        }
        let height = problem
            .buffers
            .iter()
            .zip(&offsets)
            .map(|(b, o)| o + b.size)
            .max()
            .unwrap_or(0);
        let lower_bound = problem.lower_bound();
        (
            problem,
            Packing {
                offsets,
                height,
                lower_bound,
            },
        )
    }

    /// Tensors placed in a chunk and their offsets, in graph order.
    fn tensors_in(&self, graph: &Graph, kind: u8, chunk: u32) -> Vec<(u32, u64)> {
        let of_kind = |&idx: &u32| graph.planned(idx) && graph.tensors[idx as usize].kind == kind;
        let in_chunk = |idx: u32| match self.placement(graph, TensorId(idx)) {
            Placement::At(at) if at.chunk == chunk => Some((idx, at.offset)),
            _ => None,
        };
        (0..graph.tensors.len() as u32)
            .filter(of_kind)
            .filter_map(in_chunk)
            .collect()
    }
}
