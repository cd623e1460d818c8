//! Who fills a chunk at its fullest moment: the answer to "what would I have to make smaller?".

use super::graph::{Graph, TensorId};
use super::lifetimes::{Lifetimes, Unread};
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
        let here: Vec<(u32, u64)> = (0..graph.tensors.len() as u32)
            .filter(|&idx| graph.planned(idx) && graph.tensors[idx as usize].kind == kind)
            .filter_map(|idx| match self.placement(graph, TensorId(idx)) {
                Placement::At(at) if at.chunk == chunk => Some((idx, at.offset)),
                _ => None,
            })
            .collect();
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
}
