//! The graph allocator in graph order: what ggml does, to the byte, with its hazards closed.
//!
//! Leaves and inputs first, then node by node: the result takes over a dying operand or gets the
//! best-fitting free block, and operands that were read for the last time are given back.

use super::dynamic::{Address, DynamicAllocator};
use super::error::PlanError;
use super::graph::{Flags, Graph, TensorId};
use super::lifetimes::{Lifetimes, Reuse, Unread, operand_to_replace};
use super::limits::Limits;
use super::result::{KindPlan, Method, NOWHERE, Plan, StructureKey};

/// Plans graphs in graph order; keeps its memory from one graph to the next.
#[derive(Debug, Clone, Default)]
pub struct OnlinePlanner {
    pub(crate) life: Lifetimes,
    allocators: Vec<DynamicAllocator>,
}

impl OnlinePlanner {
    /// A planner without memory of its own yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans `graph`; `limits[k]` holds for tensors of kind `k`.
    ///
    /// With [`Unread::Kept`] and [`Limits::with_unbounded_last`] totals equal those of ggml's allocator.
    /// The lower bounds of the result are not computed and stay 0.
    ///
    /// # Errors
    /// See [`PlanError`]: limits that make no sense, tensors that fit nowhere.
    pub fn plan(&mut self, graph: &Graph, limits: &[Limits], unread: Unread) -> Result<Plan, PlanError> {
        let mut places = vec![NOWHERE; graph.tensors.len()];
        let mut room = vec![0; graph.tensors.len()];
        check(graph, limits, &mut room)?;
        self.life.compute(graph, unread);
        let peaks = self.place(graph, limits, &room, &mut places)?;
        let kind = |chunks: Vec<u64>| match chunks.is_empty() {
            true => KindPlan::empty(),
            false => KindPlan {
                chunks,
                lower_bound: 0,
                method: Method::Online,
            },
        };
        let kinds = peaks.into_iter().map(kind).collect();
        let key = StructureKey::of(graph);
        Ok(Plan {
            kinds,
            places,
            room,
            nodes: graph.nodes.len(),
            key,
        })
    }

    /// Places every planned tensor under the lifetimes computed before; returns chunk sizes per kind.
    pub(crate) fn place(
        &mut self,
        graph: &Graph,
        limits: &[Limits],
        room: &[u64],
        places: &mut [Address],
    ) -> Result<Vec<Vec<u64>>, PlanError> {
        self.allocators.truncate(limits.len());
        for (idx, &l) in limits.iter().enumerate() {
            match self.allocators.get_mut(idx) {
                Some(a) => a.reset(l),
                None => self.allocators.push(DynamicAllocator::new(l)),
            }
        }
        self.place_leaves(graph, limits, room, places)?;
        for (step, node) in (1..).zip(&graph.nodes) {
            self.place_result(graph, limits, room, places, node, step)?;
            for operand in graph.operands_of(node) {
                self.free_if_last(graph, room, places, graph.tensors[operand.0 as usize].root, step);
            }
            self.free_if_last(graph, room, places, graph.tensors[node.dst as usize].root, step);
        }
        Ok(self.allocators.iter().map(|a| a.peaks().collect()).collect())
    }

    fn place_leaves(
        &mut self,
        graph: &Graph,
        limits: &[Limits],
        room: &[u64],
        places: &mut [Address],
    ) -> Result<(), PlanError> {
        let leaves = graph
            .tensors
            .iter()
            .enumerate()
            .filter(|(_, t)| t.leaf)
            .map(|(idx, _)| idx as u32);
        for idx in leaves {
            if room[idx as usize] != 0 {
                places[idx as usize] = self.alloc(graph, limits, room, idx)?;
            }
        }
        for node in &graph.nodes {
            if graph.tensors[node.dst as usize].flags.has(Flags::INPUT) {
                self.place_once(graph, limits, room, places, node.dst)?;
            }
        }
        for idx in 0..graph.tensors.len() as u32 {
            self.free_if_last(graph, room, places, idx, 0);
        }
        Ok(())
    }

    fn place_result(
        &mut self,
        graph: &Graph,
        limits: &[Limits],
        room: &[u64],
        places: &mut [Address],
        node: &super::graph::Node,
        step: u32,
    ) -> Result<(), PlanError> {
        // Read before it is made: such a tensor has its place from its first reader on.
        for operand in graph.operands_of(node) {
            let root = graph.tensors[operand.0 as usize].root;
            if places[root as usize] == NOWHERE {
                self.place_once(graph, limits, room, places, root)?;
            }
        }
        let dst = node.dst as usize;
        if room[dst] == 0 || places[dst] != NOWHERE {
            return Ok(());
        }
        match operand_to_replace(graph, &self.life, node, step, Reuse::Plain, |_, _| true) {
            Some(root) => {
                let at = places[root as usize];
                places[dst] = at;
                let surplus = room[root as usize] - room[dst];
                if surplus != 0 {
                    let tail = Address {
                        chunk: at.chunk,
                        offset: at.offset + room[dst],
                    };
                    self.allocators[graph.tensors[dst].kind as usize].free(tail, surplus);
                }
                self.life.last[root as usize] = 0;
            }
            None => places[dst] = self.alloc(graph, limits, room, node.dst)?,
        }
        Ok(())
    }

    fn place_once(
        &mut self,
        graph: &Graph,
        limits: &[Limits],
        room: &[u64],
        places: &mut [Address],
        idx: u32,
    ) -> Result<(), PlanError> {
        if room[idx as usize] != 0 && places[idx as usize] == NOWHERE {
            places[idx as usize] = self.alloc(graph, limits, room, idx)?;
        }
        Ok(())
    }

    fn alloc(&mut self, graph: &Graph, limits: &[Limits], room: &[u64], idx: u32) -> Result<Address, PlanError> {
        let kind = graph.tensors[idx as usize].kind as usize;
        let bytes = room[idx as usize];
        self.allocators[kind].alloc(bytes).map_err(|_| PlanError::OutOfChunks {
            tensor: graph.name(TensorId(idx)).to_owned(),
            bytes,
            chunk_bytes: limits[kind].chunk_bytes,
            max_chunks: limits[kind].max_chunks,
        })
    }

    /// Frees `root` if `step` is its last, and makes sure that it happens once.
    fn free_if_last(&mut self, graph: &Graph, room: &[u64], places: &[Address], root: u32, step: u32) {
        let idx = root as usize;
        if self.life.last[idx] == step && room[idx] != 0 && places[idx] != NOWHERE {
            self.allocators[graph.tensors[idx].kind as usize].free(places[idx], room[idx]);
            self.life.last[idx] = super::lifetimes::FOREVER;
        }
    }
}

/// Checks limits and sizes once, and fills `room` with rounded sizes (0 for what is not planned).
pub(crate) fn check(graph: &Graph, limits: &[Limits], room: &mut [u64]) -> Result<(), PlanError> {
    for (kind, l) in limits.iter().enumerate() {
        l.check(kind)?;
    }
    for ((idx, t), room) in (0..).zip(&graph.tensors).zip(room) {
        if !graph.planned(idx) {
            continue;
        }
        let name = || graph.name(TensorId(idx)).to_owned();
        let Some(l) = limits.get(t.kind as usize) else {
            return Err(PlanError::UnknownKind {
                tensor: name(),
                kind: t.kind,
                kinds: limits.len(),
            });
        };
        *room = match l.round(t.bytes) {
            Some(bytes) if bytes <= l.buffer_bytes => bytes,
            _ => {
                return Err(PlanError::TensorTooLarge {
                    tensor: name(),
                    bytes: t.bytes,
                    max_bytes: l.buffer_bytes,
                });
            }
        };
    }
    Ok(())
}
