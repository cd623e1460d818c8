//! A finished plan: where each tensor lies, how large each chunk is, and what the plan is good for.

use super::dynamic::Address;
use super::error::GraphChange;
use super::graph::{Flags, Graph, TensorId};

/// Chunk number that stands for "not planned".
const ABSENT: u32 = u32::MAX;
pub(crate) const NOWHERE: Address = Address {
    chunk: ABSENT,
    offset: 0,
};

/// Which way of planning gave the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// One tensor at a time in graph order.
    Online,
    /// Largest first, best fit.
    BySize,
    /// Largest product of size and lifetime first.
    ByArea,
    /// Longest-lived first.
    ByLifetime,
    /// Earliest first.
    ByStart,
    /// One chunk filled after the other.
    ChunkByChunk,
    /// Improved by search.
    Search,
    /// Nothing to place.
    Empty,
}

/// Where a tensor's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In memory the plan does not own.
    External,
    /// The tensor has no bytes: any non-null address will do.
    Empty,
    /// In a chunk of its buffer kind.
    At(Address),
}

/// What one buffer kind needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindPlan {
    /// Bytes of each chunk.
    pub chunks: Vec<u64>,
    /// No plan with these lifetimes can need fewer bytes, over all chunks together.
    pub lower_bound: u64,
    /// Which way of planning won.
    pub method: Method,
}

impl KindPlan {
    pub(crate) const fn empty() -> Self {
        Self {
            chunks: Vec::new(),
            lower_bound: 0,
            method: Method::Empty,
        }
    }

    /// Bytes of all chunks; saturates.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().fold(0, |sum, &c| sum.saturating_add(c))
    }
}

/// Offsets for a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// One entry per buffer kind, in the order of the limits given.
    pub kinds: Vec<KindPlan>,
    pub(crate) places: Vec<Address>,
    /// Room of each placed tensor, rounded up to the alignment.
    pub(crate) room: Vec<u64>,
    pub(crate) nodes: usize,
    pub(crate) key: StructureKey,
}

impl Plan {
    /// Where `tensor` of `graph` lies; a view lies in its root.
    pub fn placement(&self, graph: &Graph, tensor: TensorId) -> Placement {
        let t = &graph.tensors[tensor.0 as usize];
        let root = &graph.tensors[t.root as usize];
        if root.flags.has(Flags::EXTERNAL) {
            return Placement::External;
        }
        match self.places.get(t.root as usize) {
            Some(at) if at.chunk != ABSENT => Placement::At(Address {
                chunk: at.chunk,
                offset: at.offset + t.view_offset,
            }),
            _ => Placement::Empty,
        }
    }

    /// Bytes of all chunks of all kinds; saturates.
    pub fn bytes(&self) -> u64 {
        self.kinds.iter().fold(0, |sum, k| sum.saturating_add(k.bytes()))
    }

    /// Whether `graph` can run with this plan: same structure, no tensor larger than its room.
    ///
    /// A few nanoseconds a node; sizes may shrink, offsets of views into external memory may move.
    ///
    /// # Errors
    /// How the graph differs.
    pub fn check(&self, graph: &Graph) -> Result<(), GraphChange> {
        if graph.tensors.len() != self.places.len() || graph.nodes.len() != self.nodes {
            return Err(GraphChange::Count {
                tensors: graph.tensors.len(),
                nodes: graph.nodes.len(),
                planned_tensors: self.places.len(),
                planned_nodes: self.nodes,
            });
        }
        if StructureKey::of(graph) != self.key {
            return Err(GraphChange::Structure);
        }
        let grown = |(t, room): (&super::graph::Tensor, &u64)| *room != 0 && t.bytes > *room;
        match graph.tensors.iter().zip(&self.room).position(grown) {
            None => Ok(()),
            Some(idx) => Err(GraphChange::Grown {
                tensor: graph.name(TensorId(idx as u32)).to_owned(),
                bytes: graph.tensors[idx].bytes,
                planned: self.room[idx],
            }),
        }
    }
}

/// A 128-bit digest of all that decides who may overlap whom, sizes aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StructureKey([u64; 2]);

impl StructureKey {
    pub(crate) fn of(graph: &Graph) -> Self {
        let mut key = Self([0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03]);
        key.mix(graph.tensors.len() as u64);
        for t in &graph.tensors {
            // External memory is none of the plan's business, and views into it move at every decode step.
            let ours = !t.flags.has(Flags::EXTERNAL);
            let shifted = ours && t.view_offset != 0;
            let bits = u64::from(t.flags.bits()) | u64::from(t.kind) << 8;
            let bools = u64::from(t.leaf) << 16 | u64::from(shifted) << 17 | u64::from(ours && t.bytes == 0) << 18;
            key.mix(u64::from(t.root) << 32 | bits | bools);
        }
        for node in &graph.nodes {
            let operands = graph.operands_of(node);
            let head = (operands.len() as u64) << 48 | u64::from(node.in_place.0) << 32;
            key.mix(head | u64::from(node.dst));
            for pair in operands.chunks(2) {
                key.mix(pair.iter().fold(0, |word, o| word << 32 | u64::from(o.0)));
            }
        }
        key
    }

    fn mix(&mut self, word: u64) {
        let [a, b] = &mut self.0;
        *a = (*a ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
        *b = (*b ^ word).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(31);
    }
}
