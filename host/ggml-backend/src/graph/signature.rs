//! What decides how a graph is encoded, as words that can be compared.

use crate::abi::{FLAG_COMPUTE, FLAG_OUTPUT, Graph, Tensor};

/// The nodes that compute something.
pub(super) fn real_nodes(graph: &Graph) -> Vec<&Tensor> {
    // SAFETY: ggml keeps the nodes alive as long as the graph.
    let nodes = graph.nodes().iter().filter_map(|&node| unsafe { node.as_ref() });
    let real = |node: &&Tensor| node.flags & FLAG_COMPUTE != 0 && !node.is_view_only() && !node.is_empty();
    nodes.filter(real).collect()
}

/// Everything that decides what is encoded.
pub(super) fn of(nodes: &[&Tensor], graph: &Graph) -> Vec<u64> {
    let mut words = Vec::with_capacity(nodes.len() * 48);
    for node in nodes {
        words.push(u64::from(node.op) << 32 | u64::from(needed_later(node, graph)));
        let params = node.op_params.map(i32::cast_unsigned);
        words.extend(
            params
                .chunks_exact(2)
                .map(|pair| u64::from(pair[0]) << 32 | u64::from(pair[1])),
        );
        push_tensor(&mut words, node);
        for src in node.src.iter().take_while(|src| !src.is_null()) {
            // SAFETY: ggml keeps operands alive as long as their reader.
            push_tensor(&mut words, unsafe { &**src });
        }
    }
    words
}

/// Type, place and shape.
pub(crate) fn push_tensor(words: &mut Vec<u64>, tensor: &Tensor) {
    words.extend([u64::from(tensor.dtype), tensor.data as u64]);
    words.extend(tensor.ne.map(i64::cast_unsigned));
    words.extend(tensor.nb.map(|stride| stride as u64));
}

/// Whether somebody else than the next node may read a node's result, so that its bytes must be written.
pub(super) fn needed_later(node: &Tensor, graph: &Graph) -> bool {
    node.flags & FLAG_OUTPUT != 0 || graph.uses(node) != Some(1)
}
