//! Running ggml's graphs: an unchanged graph is neither built nor encoded again, and several may be on their way.
//!
//! ggml rebuilds its graph for every token, mostly to the same nodes at the same addresses. A graph is known again by its
//! number if ggml gives one, otherwise by its *signature*: every word of it that decides what is encoded. Graphs are
//! launched in the order of the calls, and whoever touches a device's memory waits for them first ([`flight`]).

mod build;
mod flight;
mod order;
mod signature;

use hexloom::{Buffer, PreparedGraph, Session, SubmitError};

use crate::abi;
use crate::buffer::layout_version;
use crate::device::DeviceState;
use crate::error::BackendError;
use build::Wanted;
use flight::{Flight, Step};

pub(crate) use build::Built;
pub(crate) use flight::{Mark, Read};
pub(crate) use order::optimize;
pub(crate) use signature::push_tensor;

/// The graphs of a device.
#[derive(Default)]
pub(crate) struct Graphs {
    /// Ready to be run again, least recently run first.
    idle: Vec<Entry>,
    flight: Flight,
}

/// A prepared graph and how it is known again.
pub(crate) struct Entry {
    known: Known,
    prepared: PreparedGraph,
}

struct Known {
    uid: u64,
    signature: Vec<u64>,
    /// Quantised tensors with the layout that the graph reads them in, and when all had it.
    wanted: Vec<Wanted>,
    layout_version: u64,
}

/// Starts a graph; waits for it too where nothing could go on meanwhile.
pub(crate) fn compute(device: &'static DeviceState, graph: &abi::Graph) -> Result<(), BackendError> {
    if device.does_nothing() {
        return Ok(());
    }
    let mut graphs = device.graphs();
    graphs.flight.check()?;
    let Some(entry) = graphs.ready(device, graph)? else {
        return Ok(());
    };
    graphs.launch(device, entry)?;
    match device.is_alone() {
        true => graphs.finish(device),
        false => Ok(()),
    }
}

impl Graphs {
    /// Drops the graphs that use a buffer.
    pub(crate) fn forget_with(&mut self, buffer: &Buffer) {
        self.idle
            .retain(|entry| !entry.known.wanted.iter().any(|wanted| wanted.is_in(buffer)) && !entry.uses(buffer));
    }

    /// The graph, ready to run and out of the list; `None` if it computes nothing.
    fn ready(&mut self, device: &'static DeviceState, graph: &abi::Graph) -> Result<Option<Entry>, BackendError> {
        let same = |known: &Known| graph.uid != 0 && known.uid == graph.uid;
        if let Some(entry) = self.find(device, same)? {
            return Ok(Some(entry));
        }
        let nodes = signature::real_nodes(graph);
        if nodes.is_empty() {
            return Ok(None);
        }
        let name = format!("ggml graph of {} nodes", nodes.len());
        let signature = signature::of(&nodes, graph);
        let build = |session: &Session| build::graph(session, &nodes, graph);
        let mut entry = self.known_or(device, &name, signature, build)?;
        entry.known.uid = graph.uid;
        Ok(Some(entry))
    }

    /// The graph with a signature, out of the list; built if it is not known.
    pub(crate) fn known_or(
        &mut self,
        device: &'static DeviceState,
        name: &str,
        signature: Vec<u64>,
        build: impl Fn(&Session) -> Result<Built, BackendError>,
    ) -> Result<Entry, BackendError> {
        if let Some(entry) = self.find(device, |known| known.signature == signature)? {
            return Ok(entry);
        }
        // What is built here may want weights in another layout than what is on its way.
        self.finish(device)?;
        while self.idle.len() >= device.graphs_kept() {
            self.idle.remove(0);
        }
        let session = device.session()?;
        loop {
            let Built { graph, wanted } = build(&session)?;
            match session.prepare(name, graph) {
                Ok(prepared) => {
                    let known = Known {
                        uid: 0,
                        signature,
                        wanted,
                        layout_version: u64::MAX,
                    };
                    return Ok(Entry { known, prepared });
                }
                // Kept graphs own slots: the one that was not run for longest makes room.
                Err(SubmitError::NoSlot { .. }) if !self.idle.is_empty() => {
                    self.idle.remove(0);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes a graph out of the list, after the end of its run if it is on its way.
    fn find(&mut self, device: &DeviceState, is: impl Fn(&Known) -> bool) -> Result<Option<Entry>, BackendError> {
        if self.flight.has(&is) {
            self.finish(device)?;
        }
        let found = self.idle.iter().position(|entry| is(&entry.known));
        Ok(found.map(|idx| self.idle.remove(idx)))
    }

    /// Puts a graph that was taken out back.
    pub(crate) fn keep(&mut self, entry: Entry) {
        self.idle.push(entry);
    }

    /// Sends a graph behind those that are on their way.
    pub(crate) fn launch(&mut self, device: &DeviceState, mut entry: Entry) -> Result<(), BackendError> {
        if layout_version() != entry.known.layout_version {
            self.finish(device)?;
            entry.settle()?;
        }
        match entry.prepared.launch() {
            Ok(launched) => {
                self.flight.push(Step::Graph(entry.known, launched));
                Ok(())
            }
            Err((_, error)) => {
                device.reopen_after(&error)?;
                Err(error.into())
            }
        }
    }
}

impl Entry {
    /// Gives the weights the layout that the graph reads them in.
    fn settle(&mut self) -> Result<(), BackendError> {
        let known = &mut self.known;
        for wanted in &known.wanted {
            wanted.settle()?;
        }
        if !known.wanted.iter().all(Wanted::holds) {
            return Err(BackendError::TwoLayouts);
        }
        // Settling may have raised it; what this graph wants is as it wants it.
        known.layout_version = layout_version();
        Ok(())
    }

    fn uses(&self, buffer: &Buffer) -> bool {
        self.prepared.buffers().any(|used| used.fd() == buffer.fd())
    }
}
