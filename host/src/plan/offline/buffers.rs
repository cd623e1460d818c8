//! What the offline planners place: chains of tensors that share one range, each a rectangle in time and bytes.

use crate::plan::dynamic::Address;
use crate::plan::error::PlanError;
use crate::plan::graph::{Graph, TensorId};
use crate::plan::lifetimes::{FOREVER, Lifetimes, Reuse, operand_to_replace};

/// A range needed during `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) bytes: u64,
    /// First tensor of the chain, for messages.
    pub(crate) tensor: u32,
}

/// Buffers of one kind, by start, and which buffer each tensor shares.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers {
    pub(crate) list: Vec<Buffer>,
    /// Buffer of each tensor of this kind; `u32::MAX` for others.
    owner: Vec<u32>,
    /// Bytes that end at a step, while the lower bound is summed up.
    ending: Vec<u64>,
}

impl Buffers {
    /// Joins chains of in-place results and collects the buffers of `kind`. Lifetimes must be computed.
    pub(crate) fn collect(&mut self, graph: &Graph, life: &Lifetimes, room: &[u64], kind: u8, alignment: u64) {
        self.list.clear();
        self.owner.clear();
        self.owner.resize(graph.tensors.len(), u32::MAX);
        let steps = graph.nodes.len() as u32 + 1;
        let end = |idx: u32| match life.last[idx as usize] {
            FOREVER => steps,
            last => last + 1,
        };
        let starts = |idx: u32, step: u32| {
            let i = idx as usize;
            room[i] != 0 && graph.tensors[i].kind == kind && life.start[i] == step
        };
        for idx in 0..graph.tensors.len() as u32 {
            if starts(idx, 0) {
                self.open(idx, 0, end(idx), room[idx as usize]);
            }
        }
        let mask = alignment - 1;
        let same_room = |a: u64, b: u64| (a + mask) & !mask == (b + mask) & !mask;
        for (step, node) in (1..).zip(&graph.nodes) {
            for operand in graph.operands_of(node) {
                // Made later than read: lives from its first reader on.
                let root = graph.tensors[operand.0 as usize].root;
                if starts(root, step) && root != node.dst {
                    self.open(root, step, end(root), room[root as usize]);
                }
            }
            if !starts(node.dst, step) {
                continue;
            }
            match operand_to_replace(graph, life, node, step, Reuse::Full, same_room) {
                Some(root) if self.owner[node.dst as usize] == u32::MAX => {
                    let owner = self.owner[root as usize];
                    self.owner[node.dst as usize] = owner;
                    self.list[owner as usize].end = end(node.dst);
                }
                _ => self.open(node.dst, step, end(node.dst), room[node.dst as usize]),
            }
        }
    }

    /// Copies the address of each buffer to the tensors that share it.
    pub(crate) fn spread(&self, graph: &Graph, room: &[u64], kind: u8, at: &[Address], places: &mut [Address]) {
        for (idx, t) in graph.tensors.iter().enumerate() {
            if room[idx] != 0 && t.kind == kind {
                places[idx] = at[self.owner[idx] as usize];
            }
        }
    }

    /// Largest number of bytes alive at one step: no placement can be smaller.
    pub(crate) fn lower_bound(&mut self, graph: &Graph) -> Result<u64, PlanError> {
        let steps = self.list.iter().map(|b| b.end).max().unwrap_or(0) as usize + 1;
        self.ending.clear();
        self.ending.resize(steps, 0);
        let (mut live, mut bound, mut step) = (0u64, 0u64, 0usize);
        for b in &self.list {
            while step < b.start as usize {
                step += 1;
                live -= self.ending[step];
            }
            live = live.checked_add(b.bytes).ok_or_else(|| PlanError::OffsetOverflow {
                tensor: graph.name(TensorId(b.tensor)).to_owned(),
                bytes: b.bytes,
                offset: live,
            })?;
            self.ending[b.end as usize] += b.bytes;
            bound = bound.max(live);
        }
        Ok(bound)
    }

    /// Adds the buffer of `tensor`, unless it has one.
    fn open(&mut self, tensor: u32, start: u32, end: u32, bytes: u64) {
        let owner = &mut self.owner[tensor as usize];
        if *owner == u32::MAX {
            *owner = self.list.len() as u32;
            self.list.push(Buffer {
                start,
                end,
                bytes,
                tensor,
            });
        }
    }
}
