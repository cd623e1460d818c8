//! Memory for what a graph computes: which chunk and offset each computed tensor gets.

use hexloom_abi::layout::align_up;
use hexloom_abi::limits::LINE_BYTES;

use crate::graph::{Graph, Storage};

/// No memory layout was found for a graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A tensor is larger than any buffer can be.
    #[error("tensor \"{name}\" needs {bytes} bytes, a buffer holds at most {limit}")]
    TensorTooLarge {
        /// The tensor.
        name: String,
        /// What it needs.
        bytes: u64,
        /// What a buffer holds.
        limit: u64,
    },
}

/// Chunks and places of computed tensors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ComputeLayout {
    /// Bytes of each chunk.
    pub chunk_bytes: Vec<u64>,
    /// Chunk and offset per tensor of the graph; `None` for views and placed tensors.
    pub places: Vec<Option<(usize, u64)>>,
}

/// Plans the computed tensors of `graph` into chunks of at most `chunk_bytes_max`.
pub(crate) fn plan(graph: &Graph, chunk_bytes_max: u64) -> Result<ComputeLayout, PlanError> {
    let mut layout = ComputeLayout {
        chunk_bytes: vec![0],
        places: Vec::new(),
    };
    for tensor in &graph.tensors {
        let Storage::Computed = tensor.storage else {
            layout.places.push(None);
            continue;
        };
        let bytes = tensor
            .shape
            .extent_bytes()
            .and_then(|bytes| align_up(bytes, LINE_BYTES));
        let bytes = bytes.unwrap_or(u64::MAX);
        if bytes > chunk_bytes_max {
            return Err(PlanError::TensorTooLarge {
                name: tensor.name.clone(),
                bytes,
                limit: chunk_bytes_max,
            });
        }
        let last = layout.chunk_bytes.len() - 1;
        let chunk = match layout.chunk_bytes[last] + bytes <= chunk_bytes_max {
            true => last,
            false => {
                layout.chunk_bytes.push(0);
                last + 1
            }
        };
        layout.places.push(Some((chunk, layout.chunk_bytes[chunk])));
        layout.chunk_bytes[chunk] += bytes;
    }
    Ok(layout)
}
