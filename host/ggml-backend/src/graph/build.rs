//! From ggml's nodes to a graph of hexloom's over the memory that ggml has planned.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hexloom::{Buffer, Graph, Session, TensorId};

use super::signature::needed_later;
use crate::abi::{self, Tensor, USAGE_WEIGHTS};
use crate::buffer::{Memory, Weight, memory_of, weight_of};
use crate::convert::{self, Node};
use crate::error::BackendError;
use crate::units;

/// A graph and the layouts that it reads quantised tensors in.
pub(crate) struct Built {
    pub(super) graph: Graph,
    pub(super) wanted: Vec<Wanted>,
}

impl Built {
    /// A graph without quantised tensors.
    pub(crate) fn of(graph: Graph) -> Self {
        let wanted = Vec::new();
        Self { graph, wanted }
    }
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
    let mut converted = Vec::new();
    for &node in nodes {
        let parts = Node::list(node).map_err(|why| BackendError::unsupported(node, why))?;
        // A result in parts is never what one kernel makes together with its reader.
        let later = needed_later(node, whole) || parts.len() > 1;
        converted.extend(parts.into_iter().map(|part| (part, later)));
    }
    let mut build = Build {
        session,
        graph: Graph::new(),
        ids: HashMap::new(),
        tiled: tiled_addresses(converted.iter().map(|(node, _)| node)),
        wanted: HashMap::new(),
    };
    for (node, needed_later) in &converted {
        build.node(node, *needed_later)?;
    }
    Ok(Built {
        graph: build.graph,
        wanted: build.wanted.into_values().collect(),
    })
}

/// What two operands must share to be one tensor of the graph.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    data: usize,
    dtype: u32,
    ne: [i64; 4],
    nb: [usize; 4],
    tiled: bool,
}

impl Key {
    fn new(tensor: &Tensor, tiled: bool) -> Self {
        Self {
            data: tensor.data as usize,
            dtype: tensor.dtype,
            ne: tensor.ne,
            nb: tensor.nb,
            tiled,
        }
    }
}

struct Build<'s> {
    session: &'s Session,
    graph: Graph,
    ids: HashMap<Key, TensorId>,
    /// Addresses of the weights that some product of the graph wants as tiles.
    tiled: HashSet<usize>,
    wanted: HashMap<Key, Wanted>,
}

impl Build<'_> {
    fn node(&mut self, node: &Node, needed_later: bool) -> Result<(), BackendError> {
        let tiled = self.layouts(node)?;
        if let Ok(op) = node.op(|idx, _| tiled[idx]) {
            units::note(&op);
        }
        let mut srcs = Vec::new();
        for (src, &tiled) in node.srcs.iter().zip(&tiled) {
            srcs.push(match src {
                Some(src) => Some(self.tensor(src, tiled)?),
                None => None,
            });
        }
        let dsts = std::iter::once(&node.dst).chain(&node.dst_2);
        let dsts: Vec<TensorId> = dsts.map(|dst| self.result(dst)).collect::<Result<_, _>>()?;
        for (idx, src) in srcs.iter_mut().enumerate() {
            let Some((id, tensor)) = src.as_mut().zip(node.srcs[idx].as_ref()) else {
                continue;
            };
            if !dsts.iter().all(|&dst| self.graph.may_write(node.opcode, idx, *id, dst)) {
                *id = self.graph.cont(&format!("{} (moved)", tensor.name()), *id)?;
            }
        }
        if needed_later && !convert::is_scratch(&node.dst) {
            dsts.iter().for_each(|&dst| self.graph.output(dst));
        }
        self.graph
            .node(&node.dst.name(), node.opcode, node.params, srcs, dsts)?;
        Ok(())
    }

    /// Which operands are read as tiles.
    fn layouts(&mut self, node: &Node) -> Result<Vec<bool>, BackendError> {
        let mut tiled = vec![false; node.srcs.len()];
        for (idx, src) in node.srcs.iter().enumerate() {
            let Some(src) = src.as_ref().filter(|src| convert::is_quantized(src)) else {
                continue;
            };
            let (memory, weight) = (memory_of(src)?, weight_of(src));
            let offset = memory.offset(src)?;
            let there = self.tiled.contains(&(src.data as usize)) || memory.is_tiled(offset);
            let with_tiles = node.op(|at, _| at == idx);
            tiled[idx] = there && weight.is_some() && with_tiles.is_ok_and(|op| self.session.supports(&op).is_ok());
            let layout = match weight.filter(|_| tiled[idx]) {
                Some(weight) => Layout::Tiles(weight),
                None => self.rows(src)?,
            };
            self.want(src, memory, layout)?;
        }
        if convert::is_quantized(&node.dst) {
            let layout = self.rows(&node.dst)?;
            self.want(&node.dst, memory_of(&node.dst)?, layout)?;
        }
        Ok(tiled)
    }

    fn rows(&self, tensor: &Tensor) -> Result<Layout, BackendError> {
        let shape = convert::shape(tensor, false).map_err(|why| BackendError::unsupported(tensor, why))?;
        Ok(Layout::Rows(shape.extent_bytes().unwrap_or(0)))
    }

    fn want(&mut self, tensor: &Tensor, memory: Arc<Memory>, layout: Layout) -> Result<(), BackendError> {
        let offset = memory.offset(tensor)?;
        let wanted = Wanted { memory, offset, layout };
        self.wanted
            .insert(Key::new(tensor, matches!(layout, Layout::Tiles(_))), wanted);
        Ok(())
    }

    /// The tensor that an operand names, as last written.
    fn tensor(&mut self, tensor: &Tensor, tiled: bool) -> Result<TensorId, BackendError> {
        match self.ids.get(&Key::new(tensor, tiled)) {
            Some(&id) => Ok(id),
            None => self.add(tensor, tiled),
        }
    }

    /// A tensor of its own for each result: ggml uses places again, and what is read later is what was written last.
    fn result(&mut self, tensor: &Tensor) -> Result<TensorId, BackendError> {
        self.add(tensor, false)
    }

    fn add(&mut self, tensor: &Tensor, tiled: bool) -> Result<TensorId, BackendError> {
        let shape = convert::shape(tensor, tiled).map_err(|why| BackendError::unsupported(tensor, why))?;
        if convert::is_scratch(tensor) {
            let id = self.graph.computed(&tensor.name(), shape.dtype, shape.ne)?;
            self.ids.insert(Key::new(tensor, tiled), id);
            return Ok(id);
        }
        let memory = memory_of(tensor)?;
        let offset = memory.offset(tensor)?;
        // SAFETY: ggml keeps the buffers of a graph's tensors alive while the graph runs.
        let usage = unsafe { tensor.owner().buffer.as_ref() }.map_or(0, |buffer| buffer.usage);
        let constant = usage == USAGE_WEIGHTS;
        let id = self
            .graph
            .tensor_at(&tensor.name(), shape, &memory.buffer, offset, constant)?;
        self.ids.insert(Key::new(tensor, tiled), id);
        Ok(id)
    }
}

/// Addresses of the weights that some product multiplies by.
fn tiled_addresses<'n>(nodes: impl Iterator<Item = &'n Node>) -> HashSet<usize> {
    let products = nodes.filter(|node| node.wants_tiles(0));
    let weights = products
        .filter_map(|node| node.srcs[0].as_ref())
        .filter(|src| convert::can_tile(src));
    weights.map(|src| src.data as usize).collect()
}
