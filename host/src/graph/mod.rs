//! Graphs of tensor operations: what to compute, before anything is planned or encoded.
//!
//! A [`Graph`] is a list of nodes in evaluation order over tensors that live in one of three places: *computed* tensors
//! get their memory from the planner, *placed* ones lie in a buffer already (weights, caches), *views* look into another
//! tensor. Each op checks its operands' shapes and the kernels' support as it is added, so that an error names the op.

mod build;
mod fuse;
mod sync;

use std::ops::Range;

use hexloom_abi::inplace::can_inplace;
use hexloom_abi::limits::{MAX_DSTS, MAX_PARAMS, MAX_SRCS};
use hexloom_abi::op::{Op, Shape};
use hexloom_abi::tile::TileLayout;
use hexloom_abi::{DType, Opcode, support};

use crate::error::{GraphError, refusal_text};
use crate::memory::Buffer;
use crate::session::Event;

pub use build::{AttentionParams, RopeParams};
pub use sync::Reduction;
pub(crate) use sync::{Sync, slots_shape};

/// A tensor of one graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct TensorId(pub(crate) u32);

/// Operations over tensors, in evaluation order.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) storage: Storage,
    pub(crate) role: Role,
    pub(crate) patchable: bool,
}

/// Where a tensor's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// Memory from the planner.
    Computed,
    /// A place in a buffer.
    Placed { buffer: Buffer, offset: u64 },
    /// Bytes of another tensor.
    View { of: TensorId, offset: u64 },
    /// The fence slot of an event.
    Fence(Event),
}

/// What a tensor is to the graph's user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Nothing: its memory is free once its readers are done.
    Inner,
    /// Written by the host before runs; keeps its contents between them.
    Input,
    /// Read by the host after a run.
    Output,
    /// Constant while the session lives.
    Weight,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) opcode: Opcode,
    pub(crate) params: [u32; MAX_PARAMS],
    pub(crate) srcs: Vec<Option<TensorId>>,
    pub(crate) dsts: Vec<TensorId>,
    /// Where the numbers of each run come from, for ops that order sessions.
    pub(crate) sync: Option<Sync>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// A tensor that the host writes before a run; contents stay between runs.
    pub fn input(&mut self, name: &str, dtype: DType, ne: [u32; 4]) -> Result<TensorId, GraphError> {
        let shape = dense(name, dtype, ne)?;
        Ok(self.add_tensor(name, shape, Storage::Computed, Role::Input))
    }

    /// A constant that lies in a buffer: of types that have tiles as tiles ([`crate::repack`]), of others as rows.
    pub fn weight(
        &mut self,
        name: &str,
        dtype: DType,
        ne: [u32; 4],
        buffer: &Buffer,
        offset: u64,
    ) -> Result<TensorId, GraphError> {
        let shape = if dtype.is_tileable() {
            tiled(name, dtype, ne)?
        } else {
            dense(name, dtype, ne)?
        };
        self.place(name, shape, buffer, offset, Role::Weight)
    }

    /// A dense tensor that lies in a buffer and may be read and written, such as a KV cache.
    pub fn placed(
        &mut self,
        name: &str,
        dtype: DType,
        ne: [u32; 4],
        buffer: &Buffer,
        offset: u64,
    ) -> Result<TensorId, GraphError> {
        let shape = dense(name, dtype, ne)?;
        self.place(name, shape, buffer, offset, Role::Inner)
    }

    /// A dense tensor that a node will write, in memory that is planned with the graph's.
    pub fn computed(&mut self, name: &str, dtype: DType, ne: [u32; 4]) -> Result<TensorId, GraphError> {
        let shape = dense(name, dtype, ne)?;
        Ok(self.add_tensor(name, shape, Storage::Computed, Role::Inner))
    }

    /// A tensor of any strides in memory that somebody else has planned, such as another program's graph: no memory is
    /// planned for it, and it may share bytes with other tensors of that kind. `constant` says that nothing writes it
    /// while the session lives.
    pub fn tensor_at(
        &mut self,
        name: &str,
        shape: Shape,
        buffer: &Buffer,
        offset: u64,
        constant: bool,
    ) -> Result<TensorId, GraphError> {
        let role = if constant { Role::Weight } else { Role::Inner };
        self.place(name, shape, buffer, offset, role)
    }

    /// Whether an op may write `dst` while `src` is its operand `idx`: they have no bytes in common, or are one place that
    /// its kernel computes over. Tensors without a place yet get one that suits.
    pub fn may_write(&self, opcode: Opcode, idx: usize, src: TensorId, dst: TensorId) -> bool {
        let (Some(read), Some(written)) = (self.span(src), self.span(dst)) else {
            return true;
        };
        let exact = read == written && self.shape(src) == self.shape(dst);
        !self.shares(src, dst) || (exact && can_inplace(opcode, idx))
    }

    /// A view of `of` with its own dimensions and strides, starting `offset` bytes into it.
    pub fn view(
        &mut self,
        name: &str,
        of: TensorId,
        ne: [u32; 4],
        nb: [u32; 4],
        offset: u64,
    ) -> Result<TensorId, GraphError> {
        let parent = self.tensor(of);
        let shape = Shape { ne, nb, ..parent.shape };
        let extent = shape.extent_bytes();
        let end = extent.and_then(|bytes| offset.checked_add(bytes));
        let parent_bytes = parent.shape.extent_bytes().unwrap_or(0);
        if parent.shape.tiled || end.is_none_or(|end| end > parent_bytes) {
            return Err(GraphError::Tensor {
                name: name.to_owned(),
                what: format!(
                    "a view of {ne:?} with strides {nb:?} at {offset} does not fit the {parent_bytes} bytes of \"{}\"",
                    parent.name
                ),
            });
        }
        Ok(self.add_tensor(name, shape, Storage::View { of, offset }, Role::Inner))
    }

    /// The same elements with other dimensions; the tensor must be dense.
    pub fn reshape(&mut self, name: &str, of: TensorId, ne: [u32; 4]) -> Result<TensorId, GraphError> {
        let parent = self.tensor(of).shape;
        let shape = dense(name, parent.dtype, ne)?;
        if !parent.dense_everywhere() || parent.elems() != shape.elems() {
            return Err(GraphError::Tensor {
                name: name.to_owned(),
                what: format!("cannot reshape {:?} with strides {:?} to {ne:?}", parent.ne, parent.nb),
            });
        }
        Ok(self.add_tensor(name, shape, Storage::View { of, offset: 0 }, Role::Inner))
    }

    /// Marks a tensor as read by the host after a run, so that its memory is not used again within it.
    pub fn output(&mut self, id: TensorId) {
        self.tensors[id.0 as usize].role = Role::Output;
    }

    /// Lets a view's dimensions be changed between runs ([`crate::PreparedGraph::patch`]).
    pub fn patchable(&mut self, id: TensorId) {
        self.tensors[id.0 as usize].patchable = true;
    }

    /// A tensor's type, dimensions and strides.
    pub fn shape(&self, id: TensorId) -> &Shape {
        &self.tensor(id).shape
    }

    /// A tensor's name.
    pub fn name(&self, id: TensorId) -> &str {
        &self.tensor(id).name
    }

    /// Nodes recorded.
    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a node that writes `dsts`, after checking that a kernel takes it.
    pub fn node(
        &mut self,
        name: &str,
        opcode: Opcode,
        params: [u32; MAX_PARAMS],
        srcs: Vec<Option<TensorId>>,
        dsts: Vec<TensorId>,
    ) -> Result<(), GraphError> {
        self.checked_node(name, opcode, params, (srcs, dsts), None)
    }

    /// Adds a node that reads and writes `operands`, after checking that a kernel takes it.
    fn checked_node(
        &mut self,
        name: &str,
        opcode: Opcode,
        params: [u32; MAX_PARAMS],
        (srcs, dsts): (Vec<Option<TensorId>>, Vec<TensorId>),
        sync: Option<Sync>,
    ) -> Result<(), GraphError> {
        let node = Node {
            name: name.to_owned(),
            opcode,
            params,
            srcs,
            dsts,
            sync,
        };
        support::check(&self.node_op(&node)).map_err(|refusal| GraphError::Unsupported {
            op: node.opcode,
            name: node.name.clone(),
            what: format!("{}; {}", refusal_text(&refusal), self.operand_text(&node)),
        })?;
        self.nodes.push(node);
        Ok(())
    }

    pub(crate) fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    /// Whether any tensor waits for a place.
    pub(crate) fn computes(&self) -> bool {
        let mut storages = self.tensors.iter().map(|tensor| &tensor.storage);
        storages.any(|storage| matches!(storage, Storage::Computed))
    }

    /// The tensor that owns the bytes of `id`, and how far into it they start.
    pub(crate) fn root(&self, mut id: TensorId) -> (TensorId, u64) {
        let mut start = 0;
        while let Storage::View { of, offset } = self.tensor(id).storage {
            start += offset;
            id = of;
        }
        (id, start)
    }

    /// Whether two tensors may have bytes in common: one owner, or places that overlap.
    pub(crate) fn shares(&self, a: TensorId, b: TensorId) -> bool {
        if self.root(a).0 == self.root(b).0 {
            return true;
        }
        match (self.span(a), self.span(b)) {
            (Some((fd_a, a)), Some((fd_b, b))) => fd_a == fd_b && a.start < b.end && b.start < a.end,
            _ => false,
        }
    }

    /// Buffer and bytes of a tensor that has a place already.
    pub(crate) fn span(&self, id: TensorId) -> Option<(u32, Range<u64>)> {
        let (root, start) = self.root(id);
        let Storage::Placed { buffer, offset } = &self.tensor(root).storage else {
            return None;
        };
        let start = start.saturating_add(*offset);
        let bytes = self.shape(id).extent_bytes().unwrap_or(u64::MAX);
        Some((buffer.fd(), start..start.saturating_add(bytes)))
    }

    /// A node as the support rules see it.
    pub(crate) fn node_op(&self, node: &Node) -> Op {
        let mut op = Op {
            opcode: node.opcode,
            params: node.params,
            srcs: [None; MAX_SRCS],
            dsts: [None; MAX_DSTS],
        };
        for (to, from) in op.srcs.iter_mut().zip(&node.srcs) {
            *to = from.map(|id| self.tensor(id).shape);
        }
        for (to, from) in op.dsts.iter_mut().zip(&node.dsts) {
            *to = Some(self.tensor(*from).shape);
        }
        op
    }

    pub(crate) fn operand_text(&self, node: &Node) -> String {
        let text = |id: TensorId| {
            let tensor = self.tensor(id);
            let Shape { dtype, ne, .. } = tensor.shape;
            format!("\"{}\" {dtype} {ne:?}", tensor.name)
        };
        let srcs: Vec<String> = node.srcs.iter().flatten().map(|&id| text(id)).collect();
        let dsts: Vec<String> = node.dsts.iter().map(|&id| text(id)).collect();
        format!("operands {} -> {}", srcs.join(", "), dsts.join(", "))
    }

    fn place(
        &mut self,
        name: &str,
        shape: Shape,
        buffer: &Buffer,
        offset: u64,
        role: Role,
    ) -> Result<TensorId, GraphError> {
        let end = shape.extent_bytes().and_then(|bytes| offset.checked_add(bytes));
        if end.is_none_or(|end| end > buffer.bytes()) {
            return Err(GraphError::Tensor {
                name: name.to_owned(),
                what: format!(
                    "{} {:?} at {offset} does not fit the {} bytes of buffer \"{}\"",
                    shape.dtype,
                    shape.ne,
                    buffer.bytes(),
                    buffer.name()
                ),
            });
        }
        let storage = Storage::Placed {
            buffer: buffer.clone(),
            offset,
        };
        Ok(self.add_tensor(name, shape, storage, role))
    }

    fn add_tensor(&mut self, name: &str, shape: Shape, storage: Storage, role: Role) -> TensorId {
        self.tensors.push(Tensor {
            name: name.to_owned(),
            shape,
            storage,
            role,
            patchable: false,
        });
        TensorId((self.tensors.len() - 1) as u32)
    }
}

fn dense(name: &str, dtype: DType, ne: [u32; 4]) -> Result<Shape, GraphError> {
    Shape::dense(dtype, ne).ok_or_else(|| GraphError::Tensor {
        name: name.to_owned(),
        what: format!("{dtype} {ne:?} is not whole blocks or exceeds the 4 GiB that strides can name"),
    })
}

fn tiled(name: &str, dtype: DType, ne: [u32; 4]) -> Result<Shape, GraphError> {
    let layout = TileLayout::new(dtype, ne[0]);
    let nb = layout.and_then(|layout| layout.strides(dtype, ne));
    let nb = nb.ok_or_else(|| GraphError::Tensor {
        name: name.to_owned(),
        what: format!("{dtype} {ne:?} cannot be tiled: rows must be a multiple of 32 and the tensor below 4 GiB"),
    })?;
    Ok(Shape {
        dtype,
        tiled: true,
        ne,
        nb,
    })
}
