//! Memory for what a graph computes: the graph as the planner sees it, and the planner's answer per tensor.

use hexloom_abi::inplace::can_inplace;
use hexloom_abi::limits::LINE_BYTES;

use crate::graph::{Graph, Node, Role, Storage, TensorId};
use crate::plan::{self, Flags, InPlace, Limits, Placement, PlanError, TensorSpec};

/// Chunks and places of computed tensors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ComputeLayout {
    /// Bytes of each chunk.
    pub chunk_bytes: Vec<u64>,
    /// Chunk and offset per tensor of the graph; `None` for placed tensors and for those without bytes.
    pub places: Vec<Option<(usize, u64)>>,
    /// No layout can need fewer bytes.
    pub lower_bound: u64,
}

/// What a graph's computed tensors need, and who needs it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ComputeReport {
    /// Chunks, each one buffer.
    pub chunks: Vec<ChunkReport>,
    /// No layout can need fewer bytes.
    pub lower_bound: u64,
}

/// One chunk of computed tensors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkReport {
    /// Bytes of the chunk.
    pub bytes: u64,
    /// Tensors alive at its fullest moment with their bytes, largest first.
    pub alive: Vec<(String, u64)>,
}

/// Plans `graph` once more and tells who fills the chunks; planning is deterministic, so this is the layout in force.
pub(crate) fn report(graph: &Graph, chunk_bytes: u64) -> Result<ComputeReport, PlanError> {
    let view = planning_graph(graph)?;
    let plan = plan::plan_compute(&view, &[Limits::chunked(LINE_BYTES, chunk_bytes)])?;
    let kind = &plan.kinds[0];
    let chunks = (0u32..).zip(&kind.chunks).map(|(chunk, &bytes)| {
        let alive = plan.peak(&view, 0, chunk).map_or_else(Vec::new, |peak| peak.tensors);
        let named = |(id, bytes): (plan::TensorId, u64)| (view.name(id).to_owned(), bytes);
        ChunkReport {
            bytes,
            alive: alive.into_iter().map(named).collect(),
        }
    });
    Ok(ComputeReport {
        chunks: chunks.collect(),
        lower_bound: kind.lower_bound,
    })
}

/// Plans the computed tensors of `graph` into chunks of at most `chunk_bytes`.
pub(crate) fn plan(graph: &Graph, chunk_bytes: u64) -> Result<ComputeLayout, PlanError> {
    let view = planning_graph(graph)?;
    let plan = plan::plan_compute(&view, &[Limits::chunked(LINE_BYTES, chunk_bytes)])?;
    debug_assert_eq!(
        plan::validate(&view, &[Limits::chunked(LINE_BYTES, chunk_bytes)], &plan),
        Ok(())
    );
    let places = (0..graph.tensors.len() as u32).map(|id| match plan.placement(&view, plan::TensorId(id)) {
        Placement::At(at) => Some((at.chunk as usize, at.offset)),
        Placement::External | Placement::Empty => None,
    });
    Ok(ComputeLayout {
        places: places.collect(),
        chunk_bytes: plan.kinds[0].chunks.clone(),
        lower_bound: plan.kinds[0].lower_bound,
    })
}

/// The graph as the planner sees it: same tensor numbers, one planning node per destination.
pub(crate) fn planning_graph(graph: &Graph) -> Result<plan::Graph, PlanError> {
    let mut view = plan::Graph::new();
    let used = used(graph);
    for (tensor, used) in graph.tensors.iter().zip(used) {
        let view_of = match tensor.storage {
            Storage::View { of, offset } => Some((plan::TensorId(of.0), offset)),
            Storage::Computed | Storage::Placed { .. } | Storage::Fence(_) => None,
        };
        view.add_tensor(TensorSpec {
            name: &tensor.name,
            bytes: match used {
                true => tensor.shape.extent_bytes().unwrap_or(u64::MAX),
                false => 0,
            },
            view: view_of,
            flags: flags(&tensor.storage, tensor.role),
            kind: 0,
        })?;
    }
    for node in &graph.nodes {
        // A node with several destinations becomes one planning node each; the later ones read the earlier ones and all
        // operands, so that everything lives at the same time.
        for (idx, dst) in node.dsts.iter().enumerate() {
            let operands = node.srcs.iter().flatten().chain(&node.dsts[..idx]);
            let operands: Vec<plan::TensorId> = operands.map(|id| plan::TensorId(id.0)).collect();
            view.add_node(plan::TensorId(dst.0), &operands, in_place(graph, node))?;
        }
    }
    Ok(view)
}

/// Which tensors need memory: those that a node names, those that such a view looks into, inputs and outputs. What
/// fusion has made superfluous is in the graph still, and would otherwise be kept from the start to the end.
fn used(graph: &Graph) -> Vec<bool> {
    let mut used: Vec<bool> = graph.tensors.iter().map(|tensor| tensor.role != Role::Inner).collect();
    for &id in graph
        .nodes
        .iter()
        .flat_map(|node| node.srcs.iter().flatten().chain(&node.dsts))
    {
        used[id.0 as usize] = true;
    }
    // Views come after what they look into, so one pass from the end reaches every owner.
    for idx in (0..used.len()).rev() {
        if let (true, Storage::View { of, .. }) = (used[idx], &graph.tensors[idx].storage) {
            used[of.0 as usize] = true;
        }
    }
    used
}

/// Inputs keep their contents between runs, so they are kept to the end like outputs.
fn flags(storage: &Storage, role: Role) -> Flags {
    match (storage, role) {
        (Storage::Placed { .. } | Storage::Fence(_), _) => Flags::EXTERNAL,
        (_, Role::Input) => Flags::INPUT | Flags::OUTPUT,
        (_, Role::Output) => Flags::OUTPUT,
        (_, Role::Inner | Role::Weight) => Flags::NONE,
    }
}

/// Which operands the node's kernel lets its result overwrite: those of the table with the result's exact shape, named
/// once unless the table allows both places.
fn in_place(graph: &Graph, node: &Node) -> InPlace {
    let [dst] = node.dsts[..] else {
        return InPlace::NONE;
    };
    let mut mask = 0;
    for (bit, (idx, src)) in node.srcs.iter().enumerate().filter_map(present).enumerate() {
        let named = |(other, id): (usize, TensorId)| id == src && !can_inplace(node.opcode, other);
        let forbidden = node.srcs.iter().enumerate().filter_map(present).any(named);
        if can_inplace(node.opcode, idx) && graph.shape(src) == graph.shape(dst) && !forbidden {
            mask |= 1 << bit;
        }
    }
    InPlace(mask)
}

fn present((idx, src): (usize, &Option<TensorId>)) -> Option<(usize, TensorId)> {
    src.map(|src| (idx, src))
}

#[cfg(test)]
mod tests {
    use hexloom_abi::DType;

    use super::*;

    /// A tensor that fusion has removed takes no memory.
    #[test]
    fn fused_away_tensors_take_no_memory() {
        let mut graph = Graph::new();
        let ne = [64, 8, 1, 1];
        let x = graph.input("x", DType::F32, ne).unwrap();
        let weight = graph.input("weight", DType::F32, [64, 1, 1, 1]).unwrap();
        let normed = graph.rms_norm("normed", x, 1e-5).unwrap();
        let scaled = graph.mul("scaled", normed, weight).unwrap();
        graph.output(scaled);
        let before = plan(&graph, 1 << 20).unwrap();
        graph.fuse();
        let after = plan(&graph, 1 << 20).unwrap();
        assert!(before.places[normed.0 as usize].is_some());
        assert_eq!(after.places[normed.0 as usize], None);
        assert_eq!(after.chunk_bytes, [2 * 64 * 8 * 4 + 64 * 4]);
    }
}
