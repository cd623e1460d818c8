//! Prepared graphs: planned, fused and encoded once, sent again as the same bytes each run.
//!
//! A prepared graph owns one queue slot for each of its batches as long as it lives, so nothing is written on the hot
//! path: [`PreparedGraph::start`] sends one small request per batch. How many fit: the session's `n_slots`, one per batch,
//! and a batch holds up to 16 buffers, `batch_ops` ops and `batch_tensors` tensors; beyond that
//! [`crate::SubmitError::NoSlot`] says who owns them.
//!
//! `bind.rs` encodes for a connection, `run.rs` sends and waits, `patch.rs` changes what a run sees. While a run is in flight, [`InFlight`] borrows the
//! graph, so its slots cannot be patched and its outputs cannot be read: the type system keeps host and DSP out of each
//! other's bytes.

mod bind;
mod patch;
mod residency;
mod run;
mod trace;

use std::sync::Arc;
use std::time::Instant;

use hexloom_abi::Opcode;
use hexloom_abi::descriptor::{TENSOR_FENCE, TENSOR_WEIGHT};
use hexloom_abi::limits::PMU_COUNTERS;
use hexloom_abi::op::Shape;

use crate::batch::{Encoded, TensorRef};
use crate::error::{GraphError, MapError, SubmitError};
use crate::graph::{Graph, Role, Storage, TensorId};
use crate::memory::{Buffer, compute};
use crate::session::{Links, Session, Slot, Ticket};

use bind::SyncOp;

pub use run::{InFlight, Launched};
pub use trace::{Activity, BatchTrace, Interval, ThreadTrace};

/// A graph that is ready to be run, again and again.
pub struct PreparedGraph {
    session: Session,
    name: String,
    graph: Graph,
    places: Vec<TensorRef>,
    batches: Vec<PreparedBatch>,
    epoch: u64,
    syncs: Vec<SyncOp>,
    /// What is in flight, with room for every batch on every connection, and the connections that it was sent on.
    sent: Vec<Sent>,
    sent_on: Option<Arc<Links>>,
    compute_bytes: u64,
    n_maps: u32,
    profile: bool,
    costs: Vec<OpCost>,
    /// When each batch of a traced run was handed over.
    pushes: Vec<(Instant, Instant)>,
    trace: Vec<BatchTrace>,
}

struct PreparedBatch {
    /// One on each connection, the leader's first.
    slots: Vec<Slot>,
    encoded: Encoded,
}

/// A batch on its way to one connection.
#[derive(Clone, Copy)]
struct Sent {
    batch_idx: usize,
    link_idx: usize,
    ticket: Ticket,
}

/// What one op cost in the last profiled run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpCost {
    /// The node's name.
    pub name: String,
    /// The op; `None` if the DSP wrote a code that does not exist.
    pub opcode: Option<Opcode>,
    /// Nanoseconds.
    pub elapsed_ns: u32,
    /// The DSP's cycle counter when the op began.
    pub cycles_start: u64,
    /// Cycles of the DSP's counter.
    pub cycles: u64,
    /// Instruction packets, 0 where they cannot be counted.
    pub packets: u32,
    /// Deltas of the performance counters, 0 where there are none.
    pub pmu: [u32; PMU_COUNTERS],
}

impl PreparedGraph {
    pub(crate) fn new(session: &Session, name: &str, mut graph: Graph) -> Result<Self, SubmitError> {
        let links = session.links()?;
        graph.fuse();
        let layout = compute::plan(&graph, session.options().buffer_bytes_max)?;
        let chunks = layout
            .chunk_bytes
            .iter()
            .chain((layout.chunk_bytes.is_empty() && graph.computes()).then_some(&0))
            .enumerate();
        let chunks: Vec<Buffer> = chunks
            .map(|(idx, &bytes)| session.alloc(&format!("{name} compute {idx}"), bytes))
            .collect::<Result<_, _>>()?;
        let mut prepared = Self {
            session: session.clone(),
            name: name.to_owned(),
            places: places(&graph, &layout, &chunks)?,
            batches: Vec::new(),
            epoch: links.epoch(),
            syncs: Vec::new(),
            sent: Vec::new(),
            sent_on: None,
            compute_bytes: layout.chunk_bytes.iter().sum(),
            n_maps: 0,
            profile: false,
            costs: Vec::new(),
            pushes: Vec::new(),
            trace: Vec::new(),
            graph,
        };
        prepared.bind(&links)?;
        Ok(prepared)
    }

    /// Copies bytes into a tensor, usually an input.
    pub fn write(&self, id: TensorId, offset: u64, data: &[u8]) -> Result<(), MapError> {
        let place = self.place(id);
        self.check_range(place, id, offset, data.len())?;
        place.buffer.write(place.offset + offset, data)
    }

    /// Copies bytes out of a tensor, usually an output.
    pub fn read(&self, id: TensorId, offset: u64, data: &mut [u8]) -> Result<(), MapError> {
        let place = self.place(id);
        self.check_range(place, id, offset, data.len())?;
        place.buffer.read(place.offset + offset, data)
    }

    /// The elements of a dense F32 tensor that the graph computes, without a copy.
    ///
    /// The borrow keeps the graph from being run meanwhile. Refused while a run is in flight whose [`InFlight`] was
    /// leaked.
    pub fn floats(&self, id: TensorId) -> Result<&[f32], GraphError> {
        let tensor = self.graph.tensor(id);
        let (root, _) = self.graph.root(id);
        let own = matches!(self.graph.tensor(root).storage, Storage::Computed);
        let shape = &tensor.shape;
        if !self.sent.is_empty() {
            return Err(GraphError::Tensor {
                name: tensor.name.clone(),
                what: "cannot be read in place while a run of the graph is in flight".to_owned(),
            });
        }
        if !own || shape.dtype != hexloom_abi::DType::F32 || !shape.dense_everywhere() {
            return Err(GraphError::Tensor {
                name: tensor.name.clone(),
                what: "only a dense F32 tensor that the graph computes can be read in place".to_owned(),
            });
        }
        let place = self.place(id);
        let len = shape.elems() as usize;
        let range = place.buffer.range(place.offset, len * size_of::<f32>());
        let ptr = range.map_err(|error| GraphError::Tensor {
            name: tensor.name.clone(),
            what: error.to_string(),
        })?;
        // SAFETY: `range` has found the bytes inside the buffer; every bit pattern is an f32; offsets of computed tensors
        // are multiples of 128 in page-aligned memory. The compute buffer belongs to this graph alone, and the DSP writes
        // it only during a run: none is in flight, as `sent` is empty, and starting one borrows `self` mutably.
        Ok(unsafe { std::slice::from_raw_parts(ptr.cast::<f32>(), len) })
    }

    /// Whether later runs record what each op costs, and, if the session has room for trace records, what each thread does.
    pub fn set_profile(&mut self, profile: bool) {
        self.profile = profile;
    }

    /// Costs of the last profiled run, in order of execution.
    pub fn costs(&self) -> &[OpCost] {
        &self.costs
    }

    /// The batches of the last traced run, in order.
    pub fn trace(&self) -> &[BatchTrace] {
        &self.trace
    }

    /// A tensor's type, dimensions and strides, as last patched.
    pub fn shape(&self, id: TensorId) -> &Shape {
        self.graph.shape(id)
    }

    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The buffers that a run uses; one that several batches use comes several times.
    pub fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.batches.iter().flat_map(|batch| &batch.encoded.buffers)
    }

    /// Batches that one run sends.
    pub fn n_batches(&self) -> usize {
        self.batches.len()
    }

    /// Mappings that the DSPs made for the last run: 0 once everything that fits is mapped.
    pub fn n_maps(&self) -> u32 {
        self.n_maps
    }

    /// Ops that one run executes, after fusion.
    pub fn n_ops(&self) -> usize {
        self.graph.nodes.len()
    }

    /// What the computed tensors need, by chunk, with the tensors that are alive at each chunk's fullest moment.
    ///
    /// # Errors
    /// None that preparing the graph would not have met: it is planned once more.
    pub fn compute_report(&self) -> Result<compute::ComputeReport, crate::PlanError> {
        compute::report(&self.graph, self.session.options().buffer_bytes_max)
    }

    /// Bytes of the buffers for computed tensors.
    pub fn compute_bytes(&self) -> u64 {
        self.compute_bytes
    }

    fn place(&self, id: TensorId) -> &TensorRef {
        &self.places[id.0 as usize]
    }

    fn check_range(&self, place: &TensorRef, id: TensorId, offset: u64, len: usize) -> Result<(), MapError> {
        let bytes = place.shape.extent_bytes().unwrap_or(0);
        let end = offset.saturating_add(len as u64);
        if end <= bytes {
            return Ok(());
        }
        Err(MapError::Range {
            name: format!("tensor \"{}\"", self.graph.name(id)),
            offset,
            end,
            bytes,
        })
    }
}

/// Where each tensor's bytes are.
fn places(graph: &Graph, layout: &compute::ComputeLayout, chunks: &[Buffer]) -> Result<Vec<TensorRef>, SubmitError> {
    let place = |id: u32| {
        let tensor = graph.tensor(TensorId(id));
        let (root, start) = graph.root(TensorId(id));
        let mut flags = 0;
        let (buffer, offset) = match &graph.tensor(root).storage {
            Storage::Placed { buffer, offset } => (buffer.clone(), *offset),
            Storage::Fence(event) => {
                flags = TENSOR_FENCE;
                event.place()?
            }
            Storage::Computed | Storage::View { .. } => {
                // A tensor without bytes has no place; any address will do.
                let (chunk, offset) = layout.places[root.0 as usize].unwrap_or((0, 0));
                (chunks[chunk].clone(), offset)
            }
        };
        if graph.tensor(root).role == Role::Weight {
            flags = TENSOR_WEIGHT;
        }
        Ok(TensorRef {
            buffer,
            offset: offset + start,
            shape: tensor.shape,
            flags,
            patchable: tensor.patchable.then_some(id),
        })
    };
    (0..graph.tensors.len() as u32).map(place).collect()
}
