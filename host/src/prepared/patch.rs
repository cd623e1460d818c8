//! Patches: other dimensions for a view between two runs, checked before a byte of a slot changes.

use hexloom_abi::op::Shape;

use super::PreparedGraph;
use crate::error::{GraphError, refusal_text};
use crate::graph::TensorId;

impl PreparedGraph {
    /// Changes the outermost dimensions of a patchable view, for instance to a longer part of a KV cache.
    ///
    /// `ne` must keep the view inside its buffer, and every op that uses it must still have a kernel; otherwise nothing
    /// changes and the error says why.
    pub fn patch(&mut self, changes: &[(TensorId, [u32; 4])]) -> Result<(), GraphError> {
        self.settle();
        let old: Vec<(TensorId, Shape)> = changes.iter().map(|&(id, _)| (id, self.place(id).shape)).collect();
        for &(id, ne) in changes {
            self.set_shape(
                id,
                Shape {
                    ne,
                    ..self.place(id).shape
                },
            );
        }
        let checked = changes.iter().try_for_each(|&(id, _)| self.check_view(id));
        let checked = checked.and_then(|()| self.check_users(changes));
        if let Err(error) = checked {
            for (id, shape) in old {
                self.set_shape(id, shape);
            }
            return Err(error);
        }
        for &(id, _) in changes {
            let place = &self.places[id.0 as usize];
            for batch in &mut self.batches {
                if let Some(idx) = batch.encoded.patchable(id.0) {
                    batch.encoded.patch(&mut batch.slots, idx, place);
                }
            }
        }
        Ok(())
    }

    fn set_shape(&mut self, id: TensorId, shape: Shape) {
        self.places[id.0 as usize].shape = shape;
        self.graph.tensors[id.0 as usize].shape = shape;
    }

    /// Whether a changed view still lies inside the tensor that owns its bytes.
    fn check_view(&self, id: TensorId) -> Result<(), GraphError> {
        let tensor = self.graph.tensor(id);
        let (root, start) = self.graph.root(id);
        let limit = self.graph.shape(root).extent_bytes().unwrap_or(0);
        let end = tensor.shape.extent_bytes().and_then(|bytes| bytes.checked_add(start));
        if tensor.patchable && end.is_some_and(|end| end <= limit) {
            return Ok(());
        }
        Err(GraphError::Tensor {
            name: tensor.name.clone(),
            what: format!(
                "cannot become {:?}: {limit} bytes from {start}, or not patchable",
                tensor.shape.ne
            ),
        })
    }

    /// Whether every op that uses a changed view still has a kernel.
    fn check_users(&self, changes: &[(TensorId, [u32; 4])]) -> Result<(), GraphError> {
        let mut changed = vec![false; self.graph.tensors.len()];
        for &(id, _) in changes {
            changed[id.0 as usize] = true;
        }
        for node in &self.graph.nodes {
            let mut operands = node.srcs.iter().flatten().chain(&node.dsts);
            if operands.any(|id| changed[id.0 as usize]) {
                let supported = self.session.supports(&self.graph.node_op(node));
                supported.map_err(|refusal| GraphError::Unsupported {
                    op: node.opcode,
                    name: node.name.clone(),
                    what: format!("{}; {}", refusal_text(&refusal), self.graph.operand_text(node)),
                })?;
            }
        }
        Ok(())
    }
}
