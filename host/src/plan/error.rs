//! Why a plan could not be made: one value per cause, naming the tensor, the numbers and a way out.
//!
//! Planning never panics and never aborts; whatever a graph or a file says ends here or in a plan.

/// What can go wrong between a graph and a plan in force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The alignment is not a power of two.
    #[error("alignment {alignment} of buffer kind {kind} is not a power of two")]
    Alignment {
        /// Buffer kind the limits were given for.
        kind: usize,
        /// The alignment as given, in bytes.
        alignment: u64,
    },
    /// More chunks would be needed than the limits allow.
    #[error(
        "tensor `{tensor}` of {bytes} bytes needs one more chunk, but all {max_chunks} chunks of {chunk_bytes} bytes are in use; raise the chunk size or plan a smaller batch"
    )]
    OutOfChunks {
        /// Tensor that found no place.
        tensor: String,
        /// Its size, rounded up to the alignment.
        bytes: u64,
        /// Chunk limit in bytes.
        chunk_bytes: u64,
        /// Number of chunks allowed.
        max_chunks: usize,
    },
    /// A single tensor is larger than any buffer can be.
    #[error(
        "tensor `{tensor}` needs {bytes} bytes, but one buffer holds at most {max_bytes}; split the tensor or plan a smaller batch"
    )]
    TensorTooLarge {
        /// Tensor that is too large.
        tensor: String,
        /// Its size in bytes.
        bytes: u64,
        /// Largest buffer in bytes.
        max_bytes: u64,
    },
    /// An offset or a total left the range of addresses.
    #[error("tensor `{tensor}` of {bytes} bytes at offset {offset} passes the last address")]
    OffsetOverflow {
        /// Tensor that passed the end.
        tensor: String,
        /// Its size in bytes.
        bytes: u64,
        /// Where it would have started.
        offset: u64,
    },
    /// A tensor was named that the graph does not have.
    #[error("{user} names tensor {tensor}, but the graph has only {tensors} tensors")]
    UnknownTensor {
        /// Who names it: a tensor (as a view) or a node (by its result).
        user: String,
        /// The index named.
        tensor: u32,
        /// Number of tensors in the graph.
        tensors: usize,
    },
    /// A tensor names a buffer kind for which no limits were given.
    #[error("tensor `{tensor}` lives in buffer kind {kind}, but limits were given for {kinds} kinds")]
    UnknownKind {
        /// The tensor.
        tensor: String,
        /// The kind it names.
        kind: u8,
        /// Number of kinds with limits.
        kinds: usize,
    },
    /// A view reaches past the end of the tensor it looks into.
    #[error("view `{tensor}` covers bytes {offset}..{offset}+{bytes} of `{root}`, which has only {root_bytes}")]
    ViewOutside {
        /// The view.
        tensor: String,
        /// Offset of the view in its root, bytes.
        offset: u64,
        /// Size of the view, bytes.
        bytes: u64,
        /// The tensor looked into.
        root: String,
        /// Its size, bytes.
        root_bytes: u64,
    },
    /// A node has more operands than an in-place mask has bits.
    #[error("node `{node}` has {operands} operands; at most {max} are supported")]
    TooManyOperands {
        /// Result of the node.
        node: String,
        /// Operands given.
        operands: usize,
        /// Largest number possible.
        max: usize,
    },
    /// The graph has more tensors or operands than indices can tell apart.
    #[error("a graph holds at most {max} {what}")]
    GraphTooLarge {
        /// Tensors, nodes or operands.
        what: &'static str,
        /// Largest number possible.
        max: usize,
    },
    /// The graph is not the one that was reserved for: reserve again.
    #[error("the graph changed since it was reserved: {0}; reserve again")]
    GraphChanged(GraphChange),
    /// A graph was bound before any was reserved.
    #[error("no graph has been reserved yet; reserve one first")]
    NotReserved,
    /// A chunk could not be made; the plan that was in force still is.
    #[error("chunk {chunk} of buffer kind {kind} with {bytes} bytes could not be made: {reason}")]
    Buffer {
        /// Buffer kind.
        kind: usize,
        /// Chunk within the kind.
        chunk: usize,
        /// Bytes asked for.
        bytes: u64,
        /// What the maker of buffers said.
        reason: String,
    },
}

/// How a graph differs from the one a plan was made for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphChange {
    /// Another number of tensors or nodes.
    #[error("it has {tensors} tensors and {nodes} nodes, the plan {planned_tensors} and {planned_nodes}")]
    Count {
        /// Tensors now.
        tensors: usize,
        /// Nodes now.
        nodes: usize,
        /// Tensors in the plan.
        planned_tensors: usize,
        /// Nodes in the plan.
        planned_nodes: usize,
    },
    /// Equal counts, but other operands, views, flags, buffer kinds or in-place permissions.
    #[error("its operands, views, flags, buffer kinds or in-place permissions differ")]
    Structure,
    /// A tensor outgrew its place.
    #[error("tensor `{tensor}` needs {bytes} bytes, its place has {planned}")]
    Grown {
        /// The tensor.
        tensor: String,
        /// Bytes needed now.
        bytes: u64,
        /// Bytes it was planned with.
        planned: u64,
    },
}
