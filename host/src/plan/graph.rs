//! The planner's view of a graph: sizes, views, flags, and who reads what in which order.
//!
//! Everything is an index; names are kept aside for messages only. What an op computes is not
//! known here: the caller says, per node, which operands its kernel can bear to see overwritten.

use super::error::PlanError;

/// Most operands a node may have: one bit each in [`InPlace`].
pub const MAX_OPERANDS: usize = 16;

/// A tensor of a [`Graph`], by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub u32);

/// What the planner must know about a tensor beyond its size. Combine with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// Nothing special: made by a node, gone after its last reader.
    pub const NONE: Self = Self(0);
    /// Filled before the graph runs: has its place from the start until its last reader is done.
    pub const INPUT: Self = Self(1);
    /// Read after the graph ran: never reused. On a view it protects the tensor looked into.
    pub const OUTPUT: Self = Self(2);
    /// Has memory already (a weight, the KV cache): never planned, nor are views of it.
    pub const EXTERNAL: Self = Self(4);

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Which operands of a node may be overwritten by its result: bit `i` stands for operand `i`.
///
/// The caller sets a bit when the kernel tolerates that the result aliases this operand byte for
/// byte and the layouts are equal. Whether the operand is dead by then is for the planner to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InPlace(pub u16);

impl InPlace {
    /// No operand may be overwritten.
    pub const NONE: Self = Self(0);

    /// Whether operand `idx` may be overwritten.
    pub const fn allows(self, idx: usize) -> bool {
        idx < MAX_OPERANDS && self.0 >> idx & 1 == 1
    }
}

/// What a tensor is, as the caller describes it.
#[derive(Debug, Clone, Copy)]
pub struct TensorSpec<'a> {
    /// Name for messages.
    pub name: &'a str,
    /// Bytes it needs; 0 is fine.
    pub bytes: u64,
    /// The tensor it looks into and the offset in bytes; views of views are flattened.
    pub view: Option<(TensorId, u64)>,
    /// Input, output or external.
    pub flags: Flags,
    /// Buffer kind: index into the limits given to the planner.
    pub kind: u8,
}

/// Tensors and nodes in evaluation order.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) operands: Vec<TensorId>,
    names: String,
    name_ends: Vec<u32>,
}

/// One tensor. `root` is itself unless it is a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) bytes: u64,
    pub(crate) view_offset: u64,
    pub(crate) root: u32,
    pub(crate) flags: Flags,
    pub(crate) kind: u8,
    /// No node makes it.
    pub(crate) leaf: bool,
}

/// One node. Its operands are `operands[first..first + count]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) dst: u32,
    first: u32,
    count: u16,
    pub(crate) in_place: InPlace,
}

impl Graph {
    /// A graph without tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor and returns its index.
    ///
    /// # Errors
    /// [`PlanError::UnknownTensor`] when it views a tensor not added yet, [`PlanError::ViewOutside`]
    /// when a view of planned memory passes its end.
    pub fn add_tensor(&mut self, spec: TensorSpec<'_>) -> Result<TensorId, PlanError> {
        let idx = self.tensors.len();
        if idx >= u32::MAX as usize / 2 || self.names.len() + spec.name.len() > u32::MAX as usize {
            return Err(PlanError::GraphTooLarge {
                what: "tensors",
                max: u32::MAX as usize / 2,
            });
        }
        let (root, view_offset, flags) = match spec.view {
            None => (idx as u32, 0, spec.flags),
            Some((of, offset)) => self.resolve_view(&spec, of, offset)?,
        };
        if root != idx as u32 && flags.has(Flags::OUTPUT) {
            let root = &mut self.tensors[root as usize];
            root.flags = root.flags | Flags::OUTPUT;
        }
        let kind = if root == idx as u32 {
            spec.kind
        } else {
            self.tensors[root as usize].kind
        };
        self.tensors.push(Tensor {
            bytes: spec.bytes,
            view_offset,
            root,
            flags,
            kind,
            leaf: true,
        });
        self.names.push_str(spec.name);
        self.name_ends.push(self.names.len() as u32);
        Ok(TensorId(idx as u32))
    }

    /// Adds the node that makes `dst` from `operands`, to run after all nodes added before.
    ///
    /// # Errors
    /// [`PlanError::UnknownTensor`] and [`PlanError::TooManyOperands`].
    pub fn add_node(&mut self, dst: TensorId, operands: &[TensorId], in_place: InPlace) -> Result<(), PlanError> {
        let tensors = self.tensors.len();
        for &TensorId(tensor) in operands.iter().chain([&dst]) {
            if tensor as usize >= tensors {
                let user = match self.tensors.get(dst.0 as usize) {
                    Some(_) => format!("node `{}`", self.name(dst)),
                    None => format!("node {}", self.nodes.len()),
                };
                return Err(PlanError::UnknownTensor { user, tensor, tensors });
            }
        }
        if operands.len() > MAX_OPERANDS {
            return Err(PlanError::TooManyOperands {
                node: self.name(dst).to_owned(),
                operands: operands.len(),
                max: MAX_OPERANDS,
            });
        }
        // Steps are u32 with two values to spare: one for "before the first", one for "for ever".
        let max = u32::MAX as usize / 2;
        if self.operands.len() + operands.len() > max || self.nodes.len() >= max {
            return Err(PlanError::GraphTooLarge {
                what: "nodes or operands",
                max,
            });
        }
        self.tensors[dst.0 as usize].leaf = false;
        self.nodes.push(Node {
            dst: dst.0,
            first: self.operands.len() as u32,
            count: operands.len() as u16,
            in_place,
        });
        self.operands.extend_from_slice(operands);
        Ok(())
    }

    /// Number of tensors.
    pub fn tensors(&self) -> usize {
        self.tensors.len()
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Name of a tensor; `?` when the graph has no such tensor.
    pub fn name(&self, tensor: TensorId) -> &str {
        let idx = tensor.0 as usize;
        let Some(&end) = self.name_ends.get(idx) else {
            return "?";
        };
        let start = if idx == 0 { 0 } else { self.name_ends[idx - 1] };
        &self.names[start as usize..end as usize]
    }

    /// Bytes a tensor needs, before rounding.
    pub fn bytes(&self, tensor: TensorId) -> u64 {
        self.tensors[tensor.0 as usize].bytes
    }

    /// The tensor that holds the bytes of `tensor` and the offset in it.
    pub fn root(&self, tensor: TensorId) -> (TensorId, u64) {
        let t = &self.tensors[tensor.0 as usize];
        (TensorId(t.root), t.view_offset)
    }

    /// Whether the planner gives this tensor memory: not a view, not external, not empty.
    pub fn is_planned(&self, tensor: TensorId) -> bool {
        self.planned(tensor.0)
    }

    /// Planned, or would be if it had bytes.
    pub(crate) fn owned(&self, idx: u32) -> bool {
        let t = &self.tensors[idx as usize];
        t.root == idx && !t.flags.has(Flags::EXTERNAL)
    }

    pub(crate) fn planned(&self, idx: u32) -> bool {
        self.owned(idx) && self.tensors[idx as usize].bytes != 0
    }

    pub(crate) fn operands_of(&self, node: &Node) -> &[TensorId] {
        &self.operands[node.first as usize..node.first as usize + node.count as usize]
    }

    /// Root, absolute offset and flags of a view of `of` at `offset`.
    fn resolve_view(&self, spec: &TensorSpec<'_>, of: TensorId, offset: u64) -> Result<(u32, u64, Flags), PlanError> {
        let Some(source) = self.tensors.get(of.0 as usize) else {
            return Err(PlanError::UnknownTensor {
                user: format!("view `{}`", spec.name),
                tensor: of.0,
                tensors: self.tensors.len(),
            });
        };
        let root = &self.tensors[source.root as usize];
        let external = root.flags.has(Flags::EXTERNAL);
        let start = source.view_offset.checked_add(offset);
        let inside = start
            .and_then(|s| s.checked_add(spec.bytes))
            .is_some_and(|e| e <= root.bytes);
        if !inside && !external {
            return Err(PlanError::ViewOutside {
                tensor: spec.name.to_owned(),
                offset: start.unwrap_or(u64::MAX),
                bytes: spec.bytes,
                root: self.name(TensorId(source.root)).to_owned(),
                root_bytes: root.bytes,
            });
        }
        let flags = if external {
            spec.flags | Flags::EXTERNAL
        } else {
            spec.flags
        };
        Ok((source.root, start.unwrap_or(u64::MAX), flags))
    }
}
