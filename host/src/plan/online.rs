//! The graph allocator in graph order: what ggml does, to the byte, with its hazards closed.
//!
//! Leaves and inputs first, then node by node: the result takes over a dying operand or gets the
//! best-fitting free block, and operands that were read for the last time are given back.

use super::dynamic::{Address, DynamicAllocator};
use super::error::PlanError;
use super::graph::{Flags, Graph, Node, TensorId};
use super::lifetimes::{FOREVER, Lifetimes, Reuse, Unread, operand_to_replace};
use super::limits::Limits;
use super::result::{KindPlan, Method, NOWHERE, Plan, StructureKey};

/// Plans graphs in graph order; keeps its memory from one graph to the next.
#[derive(Debug, Clone, Default)]
pub struct OnlinePlanner {
    life: Lifetimes,
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
        let peaks = self.place(graph, limits, unread, &room, &mut places)?;
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

    /// Places every planned tensor and returns chunk sizes per kind.
    pub(crate) fn place(
        &mut self,
        graph: &Graph,
        limits: &[Limits],
        unread: Unread,
        room: &[u64],
        places: &mut [Address],
    ) -> Result<Vec<Vec<u64>>, PlanError> {
        self.life.compute(graph, unread);
        self.allocators.truncate(limits.len());
        for (idx, &l) in limits.iter().enumerate() {
            match self.allocators.get_mut(idx) {
                Some(a) => a.reset(l),
                None => self.allocators.push(DynamicAllocator::new(l)),
            }
        }
        let OnlinePlanner { life, allocators } = self;
        let with_empty = unread == Unread::Kept && graph.tensors.iter().any(|t| t.bytes == 0);
        let mut run = Run {
            graph,
            limits,
            room,
            places,
            life,
            allocators,
            with_empty,
        };
        run.place_leaves()?;
        for (step, node) in (1..).zip(&graph.nodes) {
            run.place_result(node, step)?;
            for operand in graph.operands_of(node) {
                run.free_if_last(graph.tensors[operand.0 as usize].root, step);
            }
            run.free_if_last(graph.tensors[node.dst as usize].root, step);
        }
        if with_empty {
            run.forget_empty();
        }
        let kinds = self.allocators.iter().zip(0..);
        kinds
            .map(|(a, kind)| within_range(graph, room, kind, a.peaks().filter(|&p| p != 0).collect()))
            .collect()
    }
}

/// One pass over a graph.
struct Run<'a> {
    graph: &'a Graph,
    limits: &'a [Limits],
    room: &'a [u64],
    places: &'a mut [Address],
    life: &'a mut Lifetimes,
    allocators: &'a mut [DynamicAllocator],
    /// Tensors without bytes take part as well. They end up nowhere, but ggml asks a block for each, which
    /// changes what it chooses for others; without them its totals could not be equalled.
    with_empty: bool,
}

impl Run<'_> {
    fn takes_part(&self, idx: u32) -> bool {
        self.room[idx as usize] != 0 || (self.with_empty && self.graph.owned(idx))
    }

    fn place_leaves(&mut self) -> Result<(), PlanError> {
        for (idx, t) in (0..).zip(&self.graph.tensors) {
            if t.leaf {
                self.place_once(idx)?;
            }
        }
        for node in &self.graph.nodes {
            if self.graph.tensors[node.dst as usize].flags.has(Flags::INPUT) {
                self.place_once(node.dst)?;
            }
        }
        for idx in 0..self.graph.tensors.len() as u32 {
            self.free_if_last(idx, 0);
        }
        Ok(())
    }

    fn place_result(&mut self, node: &Node, step: u32) -> Result<(), PlanError> {
        // Read before it is made: such a tensor has its place from its first reader on.
        for operand in self.graph.operands_of(node) {
            self.place_once(self.graph.tensors[operand.0 as usize].root)?;
        }
        let dst = node.dst as usize;
        if !self.takes_part(node.dst) || self.places[dst] != NOWHERE {
            return Ok(());
        }
        match operand_to_replace(self.graph, self.life, node, step, Reuse::Plain, |_, _| true) {
            Some(root) => {
                let at = self.places[root as usize];
                self.places[dst] = at;
                let surplus = self.room[root as usize] - self.room[dst];
                if surplus != 0 {
                    let tail = Address {
                        chunk: at.chunk,
                        offset: at.offset + self.room[dst],
                    };
                    self.allocators[self.graph.tensors[dst].kind as usize].free(tail, surplus);
                }
                self.life.last[root as usize] = 0;
                Ok(())
            }
            None => self.place_once(node.dst),
        }
    }

    fn place_once(&mut self, idx: u32) -> Result<(), PlanError> {
        if self.places[idx as usize] != NOWHERE || !self.takes_part(idx) {
            return Ok(());
        }
        let kind = self.graph.tensors[idx as usize].kind as usize;
        let bytes = self.room[idx as usize];
        self.places[idx as usize] = self.allocators[kind].alloc(bytes).map_err(|_| PlanError::OutOfChunks {
            tensor: self.graph.name(TensorId(idx)).to_owned(),
            bytes,
            chunk_bytes: self.limits[kind].chunk_bytes,
            max_chunks: self.limits[kind].max_chunks,
        })?;
        Ok(())
    }

    /// Frees `root` if `step` is its last, and makes sure that it happens once.
    fn free_if_last(&mut self, root: u32, step: u32) {
        let idx = root as usize;
        if self.life.last[idx] == step && self.places[idx] != NOWHERE {
            self.allocators[self.graph.tensors[idx].kind as usize].free(self.places[idx], self.room[idx]);
            self.life.last[idx] = FOREVER;
        }
    }

    /// Takes the places of tensors without bytes back, and the chunks that held nothing else.
    fn forget_empty(&mut self) {
        let fewer = |a: &DynamicAllocator| {
            let filled = a
                .peaks()
                .scan(0, |n, peak| Some(std::mem::replace(n, *n + u32::from(peak != 0))));
            filled.collect::<Vec<u32>>()
        };
        let renumbered: Vec<Vec<u32>> = self.allocators.iter().map(fewer).collect();
        for (idx, t) in self.graph.tensors.iter().enumerate() {
            let at = &mut self.places[idx];
            if self.room[idx] == 0 {
                *at = NOWHERE;
            } else {
                at.chunk = renumbered[t.kind as usize][at.chunk as usize];
            }
        }
    }
}

/// `chunks` if their sum is a number, else an error that names the largest tensor of the kind.
pub(crate) fn within_range(graph: &Graph, room: &[u64], kind: u8, chunks: Vec<u64>) -> Result<Vec<u64>, PlanError> {
    let total = chunks.iter().try_fold(0u64, |sum, &c| sum.checked_add(c));
    if total.is_some() {
        return Ok(chunks);
    }
    let of_kind = (0..).zip(&graph.tensors).filter(|(_, t)| t.kind == kind);
    let largest = of_kind
        .map(|(idx, _)| idx)
        .max_by_key(|&idx| room[idx as usize])
        .unwrap_or(0);
    let (tensor, bytes) = (graph.name(TensorId(largest)).to_owned(), room[largest as usize]);
    Err(PlanError::OffsetOverflow {
        tensor,
        bytes,
        offset: u64::MAX - bytes,
    })
}

/// Checks limits and sizes once, and fills `room` with rounded sizes (0 for what is not planned).
pub(crate) fn check(graph: &Graph, limits: &[Limits], room: &mut [u64]) -> Result<(), PlanError> {
    for (kind, l) in limits.iter().enumerate() {
        l.check(kind)?;
    }
    for ((idx, t), room) in (0..).zip(&graph.tensors).zip(room) {
        if !graph.owned(idx) {
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
