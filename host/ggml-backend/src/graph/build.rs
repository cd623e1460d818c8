//! From ggml's nodes to a graph of hexloom's over the memory that ggml has planned.

use std::collections::{HashMap, HashSet};
use std::ptr;
use std::sync::Arc;

use hexloom::abi::inplace::can_inplace;
use hexloom::abi::op::Shape;
use hexloom::{Buffer, Graph, Session, TensorId};

use super::{extent, needed_later};
use crate::abi::{self, Tensor, USAGE_WEIGHTS};
use crate::buffer::{Memory, Weight, memory_of, weight_of};
use crate::convert::{self, Node, Why};
use crate::error::BackendError;

/// A graph and the layouts that it reads quantised tensors in.
pub(super) struct Built {
    pub(super) graph: Graph,
    pub(super) wanted: Vec<Wanted>,
}

/// A place of quantised values, and the layout that they must have there while the graph runs.
pub(super) struct Wanted {
    memory: Arc<Memory>,
    offset: u64,
    layout: Layout,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A whole weight as tiles.
    Tiles(Weight),
    /// So many bytes as ggml wrote them.
    Rows(u64),
}

impl Wanted {
    /// Gives the place its layout.
    pub(super) fn settle(&self) -> Result<(), BackendError> {
        match &self.layout {
            Layout::Tiles(weight) => self.memory.tile(self.offset, weight),
            Layout::Rows(bytes) => self.memory.untile(self.offset, *bytes),
        }
    }

    /// Whether the place still has it.
    pub(super) fn holds(&self) -> bool {
        matches!(self.layout, Layout::Rows(_)) || self.memory.is_tiled(self.offset)
    }

    pub(super) fn is_in(&self, buffer: &Buffer) -> bool {
        self.memory.buffer.fd() == buffer.fd()
    }
}

/// Translates the nodes.
pub(super) fn graph(session: &Session, nodes: &[&Tensor], whole: &abi::Graph) -> Result<Built, BackendError> {
    let converted = nodes
        .iter()
        .map(|&node| Node::of(node).map_err(|why| refused(node, why)));
    let converted: Vec<Node<'_>> = converted.collect::<Result<_, _>>()?;
    let mut build = Build {
        session,
        graph: Graph::new(),
        ids: HashMap::new(),
        tiled: tiled_addresses(&converted),
        wanted: HashMap::new(),
    };
    for node in &converted {
        build.node(node, needed_later(node.dst, whole))?;
    }
    Ok(Built {
        graph: build.graph,
        wanted: build.wanted.into_values().collect(),
    })
}

struct Build<'s> {
    session: &'s Session,
    graph: Graph,
    ids: HashMap<(*const Tensor, bool), TensorId>,
    /// Addresses of the weights that some product of the graph wants as tiles.
    tiled: HashSet<usize>,
    wanted: HashMap<(*const Tensor, bool), Wanted>,
}

impl Build<'_> {
    fn node(&mut self, node: &Node<'_>, needed_later: bool) -> Result<(), BackendError> {
        let tiled = self.layouts(node)?;
        let mut srcs = Vec::new();
        for (src, &tiled) in node.srcs.iter().zip(&tiled) {
            srcs.push(match src {
                Some(src) => Some(self.tensor(src, tiled)?),
                None => None,
            });
        }
        let dst = self.tensor(node.dst, false)?;
        for (idx, src) in srcs.iter_mut().enumerate() {
            let Some((id, tensor)) = src.as_mut().zip(node.srcs[idx]) else {
                continue;
            };
            if self.clashes(node, idx, tensor, tiled[idx])? {
                *id = self.graph.cont(&format!("{} (moved)", tensor.name()), *id)?;
            }
        }
        if needed_later {
            self.graph.output(dst);
        }
        self.graph
            .node(&node.dst.name(), node.opcode, node.params, srcs, vec![dst])?;
        Ok(())
    }

    /// Which operands are read as tiles.
    fn layouts(&mut self, node: &Node<'_>) -> Result<Vec<bool>, BackendError> {
        let mut tiled = vec![false; node.srcs.len()];
        for (idx, src) in node.srcs.iter().enumerate() {
            let Some(src) = src.filter(|src| convert::is_quantized(src)) else {
                continue;
            };
            let (memory, weight) = (memory_of(src)?, weight_of(src));
            let offset = memory.offset(src)?;
            let there = self.tiled.contains(&(src.data as usize)) || memory.is_tiled(offset);
            let with_tiles = node.op(|at, other| at == idx && ptr::eq(other, src));
            tiled[idx] = there && weight.is_some() && with_tiles.is_ok_and(|op| self.session.supports(&op).is_ok());
            let layout = match weight.filter(|_| tiled[idx]) {
                Some(weight) => Layout::Tiles(weight),
                None => self.rows(src)?,
            };
            self.want(src, memory, layout)?;
        }
        if convert::is_quantized(node.dst) {
            let layout = self.rows(node.dst)?;
            self.want(node.dst, memory_of(node.dst)?, layout)?;
        }
        Ok(tiled)
    }

    fn rows(&self, tensor: &Tensor) -> Result<Layout, BackendError> {
        let shape = convert::shape(tensor, false).map_err(|why| refused(tensor, why))?;
        Ok(Layout::Rows(extent(&shape)))
    }

    fn want(&mut self, tensor: &Tensor, memory: Arc<Memory>, layout: Layout) -> Result<(), BackendError> {
        let offset = memory.offset(tensor)?;
        let wanted = Wanted { memory, offset, layout };
        self.wanted
            .insert((ptr::from_ref(tensor), matches!(layout, Layout::Tiles(_))), wanted);
        Ok(())
    }

    fn tensor(&mut self, tensor: &Tensor, tiled: bool) -> Result<TensorId, BackendError> {
        let key = (ptr::from_ref(tensor), tiled);
        if let Some(&id) = self.ids.get(&key) {
            return Ok(id);
        }
        let memory = memory_of(tensor)?;
        let shape = convert::shape(tensor, tiled).map_err(|why| refused(tensor, why))?;
        let offset = memory.offset(tensor)?;
        // SAFETY: ggml keeps the buffers of a graph's tensors alive while the graph runs.
        let usage = unsafe { tensor.owner().buffer.as_ref() }.map_or(0, |buffer| buffer.usage);
        let constant = usage == USAGE_WEIGHTS;
        let id = self
            .graph
            .tensor_at(&tensor.name(), shape, &memory.buffer, offset, constant)?;
        self.ids.insert(key, id);
        Ok(id)
    }

    /// Whether the result would overwrite an operand that the kernel still needs.
    fn clashes(&self, node: &Node<'_>, idx: usize, src: &Tensor, tiled: bool) -> Result<bool, BackendError> {
        let shape = |tensor, tiled| convert::shape(tensor, tiled).map_err(|why| refused(node.dst, why));
        let (from, to) = (shape(src, tiled)?, shape(node.dst, false)?);
        let range = |tensor: &Tensor, shape: &Shape| {
            let start = tensor.data as u64;
            start..start.saturating_add(extent(shape))
        };
        let (read, written) = (range(src, &from), range(node.dst, &to));
        let touch = read.start < written.end && written.start < read.end;
        let exact = from == to && read == written;
        Ok(touch && !(exact && can_inplace(node.opcode, idx)))
    }
}

/// Addresses of the weights that some product multiplies by.
fn tiled_addresses(nodes: &[Node<'_>]) -> HashSet<usize> {
    let products = nodes.iter().filter(|node| node.wants_tiles(0));
    let weights = products
        .filter_map(|node| node.srcs[0])
        .filter(|&src| convert::can_tile(src));
    weights.map(|src| src.data as usize).collect()
}

fn refused(node: &Tensor, why: Why) -> BackendError {
    BackendError::Unsupported {
        op: node
            .op()
            .map_or_else(|| format!("op {}", node.op), |op| op.name().to_owned()),
        name: node.name(),
        what: why.to_owned(),
    }
}
