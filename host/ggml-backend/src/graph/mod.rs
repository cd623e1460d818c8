//! Running ggml's graphs: an unchanged graph is neither built nor encoded again.
//!
//! ggml rebuilds its graph for every token, mostly to the same nodes at the same addresses. A graph is known again by its
//! number if ggml gives one, otherwise by its *signature*: every word of it that decides what is encoded.

mod build;

use hexloom::abi::op::Shape;
use hexloom::{Buffer, PreparedGraph, SubmitError};

use crate::abi::{self, FLAG_COMPUTE, FLAG_OUTPUT, Tensor};
use crate::buffer::layout_version;
use crate::device::DeviceState;
use crate::error::BackendError;
use build::{Built, Wanted};

/// Graphs kept; a model's prompt and decode graphs at a few context lengths.
const KEPT: usize = 12;

/// Graphs that are ready to be run again, least recently run first.
#[derive(Default)]
pub(crate) struct PreparedGraphs {
    entries: Vec<Entry>,
}

struct Entry {
    uid: u64,
    signature: Vec<u64>,
    prepared: PreparedGraph,
    /// Quantised tensors with the layout that the graph reads them in, and when all had it.
    wanted: Vec<Wanted>,
    layout_version: u64,
}

/// Computes a graph and waits for it.
pub(crate) fn compute(device: &'static DeviceState, graph: &abi::Graph) -> Result<(), BackendError> {
    let mut graphs = device.graphs();
    let Some(mut entry) = graphs.take(device, graph)? else {
        return Ok(());
    };
    entry.settle()?;
    let result = entry.prepared.run();
    match result {
        Ok(()) => graphs.entries.push(entry),
        Err(error) => {
            if error.is_lost() {
                log::warn!("the session is lost and is opened again");
                device.session()?.reopen()?;
            }
            return Err(error.into());
        }
    }
    Ok(())
}

impl PreparedGraphs {
    /// Drops the graphs that use a buffer.
    pub(crate) fn forget_with(&mut self, buffer: &Buffer) {
        self.entries
            .retain(|entry| !entry.wanted.iter().any(|wanted| wanted.is_in(buffer)) && !entry.uses(buffer));
    }

    /// The graph, ready to run and out of the list; `None` if it computes nothing.
    fn take(&mut self, device: &'static DeviceState, graph: &abi::Graph) -> Result<Option<Entry>, BackendError> {
        if let Some(idx) = self
            .entries
            .iter()
            .position(|entry| graph.uid != 0 && entry.uid == graph.uid)
        {
            return Ok(Some(self.entries.remove(idx)));
        }
        let nodes = real_nodes(graph);
        if nodes.is_empty() {
            return Ok(None);
        }
        let signature = signature(&nodes, graph);
        if let Some(idx) = self.entries.iter().position(|entry| entry.signature == signature) {
            let entry = self.entries.remove(idx);
            return Ok(Some(Entry {
                uid: graph.uid,
                ..entry
            }));
        }
        while self.entries.len() >= KEPT {
            self.entries.remove(0);
        }
        let session = device.session()?;
        let name = format!("ggml graph of {} nodes", nodes.len());
        loop {
            let Built { graph: built, wanted } = build::graph(&session, &nodes, graph)?;
            match session.prepare(&name, built) {
                Ok(prepared) => {
                    return Ok(Some(Entry {
                        uid: graph.uid,
                        signature,
                        prepared,
                        wanted,
                        layout_version: u64::MAX,
                    }));
                }
                // Kept graphs own slots: the one that was not run for longest makes room.
                Err(SubmitError::NoSlot { .. }) if !self.entries.is_empty() => {
                    self.entries.remove(0);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Entry {
    /// Gives the weights the layout that the graph reads them in.
    fn settle(&mut self) -> Result<(), BackendError> {
        let version = layout_version();
        if version != self.layout_version {
            for wanted in &self.wanted {
                wanted.settle()?;
            }
            if !self.wanted.iter().all(Wanted::holds) {
                return Err(BackendError::TwoLayouts);
            }
            // Settling may have raised it once more; what this graph wants is as it wants it.
            self.layout_version = layout_version();
        }
        Ok(())
    }

    fn uses(&self, buffer: &Buffer) -> bool {
        self.prepared.buffers().any(|used| used.fd() == buffer.fd())
    }
}

/// The nodes that compute something.
fn real_nodes(graph: &abi::Graph) -> Vec<&Tensor> {
    // SAFETY: ggml keeps the nodes alive as long as the graph.
    let nodes = graph.nodes().iter().filter_map(|&node| unsafe { node.as_ref() });
    let real = |node: &&Tensor| node.flags & FLAG_COMPUTE != 0 && !node.is_view_only() && !node.is_empty();
    nodes.filter(real).collect()
}

/// Everything that decides what is encoded.
fn signature(nodes: &[&Tensor], graph: &abi::Graph) -> Vec<u64> {
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

fn push_tensor(words: &mut Vec<u64>, tensor: &Tensor) {
    words.extend([u64::from(tensor.dtype), tensor.data as u64]);
    words.extend(tensor.ne.map(i64::cast_unsigned));
    words.extend(tensor.nb.map(|stride| stride as u64));
}

/// Whether somebody else than the next node may read a node's result, so that its bytes must be written.
fn needed_later(node: &Tensor, graph: &abi::Graph) -> bool {
    node.flags & FLAG_OUTPUT != 0 || graph.uses(node) != Some(1)
}

/// The bytes that a shape covers; 0 if that cannot be said.
fn extent(shape: &Shape) -> u64 {
    shape.extent_bytes().unwrap_or(0)
}
