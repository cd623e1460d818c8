//! Prepared graphs: planned, fused and encoded once, sent again as the same bytes each run.
//!
//! A prepared graph owns one queue slot for each of its batches as long as it lives, so nothing is written on the hot
//! path: [`PreparedGraph::start`] sends one small request per batch. How many fit: the session's `n_slots`, one per batch,
//! and a batch holds up to 16 buffers, `batch_ops` ops and `batch_tensors` tensors; beyond that
//! [`crate::SubmitError::NoSlot`] says who owns them.
//!
//! While a run is in flight, [`InFlight`] borrows the graph, so its slots cannot be patched and its outputs cannot be
//! read: the type system keeps host and DSP out of each other's bytes.

use std::sync::Arc;

use hexloom_abi::descriptor::TENSOR_WEIGHT;
use hexloom_abi::message::NO_OP;
use hexloom_abi::op::Shape;
use hexloom_abi::{BatchProgress, BatchReply, OpProfile, Opcode, Status};

use crate::batch::{Batch, BatchLimits, Encoded, OpRecord, TensorRef};
use crate::error::{Fault, GraphError, LostError, MapError, RunError, SubmitError, WaitError, refusal_text};
use crate::graph::{Graph, Role, Storage, TensorId};
use crate::memory::{Buffer, compute};
use crate::session::{Link, Session, Slot, Ticket};
use crate::transport::BlockRef;

/// A graph that is ready to be run, again and again.
pub struct PreparedGraph {
    session: Session,
    name: String,
    graph: Graph,
    places: Vec<TensorRef>,
    batches: Vec<PreparedBatch>,
    epoch: u64,
    /// Batches of the run in flight, with room for all of them, and the connection that they were sent on.
    tickets: Vec<Ticket>,
    sent_on: Option<Arc<Link>>,
    compute_bytes: u64,
    profile: bool,
    costs: Vec<OpCost>,
}

struct PreparedBatch {
    slot: Slot,
    encoded: Encoded,
}

/// A run in flight. Dropping it waits for the DSP.
#[must_use = "a run that is not waited for hides its error"]
pub struct InFlight<'a> {
    graph: &'a mut PreparedGraph,
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
    /// Cycles of the DSP's counter.
    pub cycles: u64,
    /// Instruction packets, 0 where they cannot be counted.
    pub packets: u32,
}

impl PreparedGraph {
    pub(crate) fn new(session: &Session, name: &str, mut graph: Graph) -> Result<Self, SubmitError> {
        let link = session.link()?;
        graph.fuse();
        let layout = compute::plan(&graph, session.options().buffer_bytes_max)?;
        let chunks = layout
            .chunk_bytes
            .iter()
            .chain(layout.chunk_bytes.is_empty().then_some(&0))
            .enumerate();
        let chunks: Vec<Buffer> = chunks
            .map(|(idx, &bytes)| session.alloc(&format!("{name} compute {idx}"), bytes))
            .collect::<Result<_, _>>()?;
        let places = places(&graph, &layout, &chunks);
        let mut prepared = Self {
            session: session.clone(),
            name: name.to_owned(),
            places,
            batches: Vec::new(),
            epoch: link.epoch(),
            tickets: Vec::new(),
            sent_on: None,
            compute_bytes: layout.chunk_bytes.iter().sum(),
            profile: false,
            costs: Vec::new(),
            graph,
        };
        let encoded = prepared.encode(&link)?;
        let slots = link.take_slots(encoded.len())?;
        let batches = slots.into_iter().zip(encoded);
        prepared.batches = batches.map(|(slot, encoded)| PreparedBatch { slot, encoded }).collect();
        prepared.tickets.reserve_exact(prepared.batches.len());
        prepared.bind(&link)?;
        Ok(prepared)
    }

    /// Runs the graph and waits for it.
    pub fn run(&mut self) -> Result<(), RunError> {
        self.start()?.wait()
    }

    /// Sends the graph's batches. Allocates nothing once the graph is bound to the session's connection.
    pub fn start(&mut self) -> Result<InFlight<'_>, RunError> {
        self.settle();
        let link = self.session.link()?;
        if link.epoch() != self.epoch {
            self.rebind(&link)?;
        }
        self.sent_on = Some(Arc::clone(&link));
        let deadline = self.session.options().deadline;
        for idx in 0..self.batches.len() {
            let batch = &self.batches[idx];
            let block = BlockRef {
                fd: link.pinned_fd(),
                offset: batch.slot.offset(),
                bytes: batch.encoded.layout().bytes,
            };
            let request = batch.encoded.request(&batch.slot, self.profile);
            match link.queue().submit(request, block, deadline) {
                Ok(ticket) => self.tickets.push(ticket),
                Err(fault) => {
                    // An earlier batch of this run may be the one that ended the session: it is asked first.
                    self.finish()?;
                    return Err(self.lost(&link, idx, 0, fault).into());
                }
            }
        }
        Ok(InFlight { graph: self })
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
        if !self.tickets.is_empty() {
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
        // it only during a run: none is in flight, as `tickets` is empty, and starting one borrows `self` mutably.
        Ok(unsafe { std::slice::from_raw_parts(ptr.cast::<f32>(), len) })
    }

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
                    batch.encoded.patch(&mut batch.slot, idx, place);
                }
            }
        }
        Ok(())
    }

    /// Whether later runs record what each op costs.
    pub fn set_profile(&mut self, profile: bool) {
        self.profile = profile;
    }

    /// Costs of the last profiled run, in order of execution.
    pub fn costs(&self) -> &[OpCost] {
        &self.costs
    }

    /// A tensor's type, dimensions and strides, as last patched.
    pub fn shape(&self, id: TensorId) -> &Shape {
        self.graph.shape(id)
    }

    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Batches that one run sends.
    pub fn n_batches(&self) -> usize {
        self.batches.len()
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

    fn set_shape(&mut self, id: TensorId, shape: Shape) {
        self.places[id.0 as usize].shape = shape;
        self.graph.tensors[id.0 as usize].shape = shape;
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

    /// Cuts the graph into batches at the limits of the wire.
    fn encode(&self, link: &Link) -> Result<Vec<Encoded>, SubmitError> {
        let options = self.session.options();
        let limits = BatchLimits {
            n_ops: options.batch_ops as usize,
            n_tensors: options.batch_tensors as usize,
            mapped_bytes: link.window_bytes(),
        };
        let mut done = Vec::new();
        let mut batch = Batch::default();
        for node in &self.graph.nodes {
            let record = OpRecord {
                name: node.name.clone(),
                opcode: node.opcode,
                params: node.params,
                srcs: node
                    .srcs
                    .iter()
                    .map(|src| src.map(|id| self.place(id).clone()))
                    .collect(),
                dsts: node.dsts.iter().map(|&id| self.place(id).clone()).collect(),
            };
            self.session
                .supports(&record.op())
                .map_err(|refusal| GraphError::Unsupported {
                    op: node.opcode,
                    name: node.name.clone(),
                    what: format!("{}; {}", refusal_text(&refusal), self.graph.operand_text(node)),
                })?;
            if batch.push(&record, &limits).is_err() {
                done.push(Encoded::new(std::mem::take(&mut batch)));
                batch.push(&record, &limits).map_err(|full| SubmitError::OpTooLarge {
                    op: node.name.clone(),
                    what: full.what,
                    needed: full.needed,
                    limit: full.limit,
                })?;
            }
        }
        done.push(Encoded::new(batch));
        done.retain(|encoded| !encoded.ops.is_empty());
        Ok(done)
    }

    /// Maps the buffers and writes the blocks.
    fn bind(&mut self, link: &Link) -> Result<(), SubmitError> {
        for batch in &mut self.batches {
            link.map(&batch.encoded.buffers)?;
            batch.encoded.write_to(&mut batch.slot);
        }
        self.epoch = link.epoch();
        Ok(())
    }

    /// Moves to the slots of a re-opened session.
    fn rebind(&mut self, link: &Link) -> Result<(), SubmitError> {
        // They are this connection's already when an earlier attempt failed later on.
        if !self.batches.iter().all(|batch| link.owns(&batch.slot)) {
            let slots = link.take_slots(self.batches.len())?;
            for (batch, slot) in self.batches.iter_mut().zip(slots) {
                batch.slot = slot;
            }
        }
        self.bind(link)
    }

    /// Makes the session lost, naming the batch and, if the DSP told, the op.
    fn lost(&self, link: &Link, batch_idx: usize, seq: u64, fault: Fault) -> LostError {
        let batch = &self.batches[batch_idx];
        let mut bytes = [0; size_of::<BatchProgress>()];
        batch.slot.read(batch.encoded.layout().progress_offset, &mut bytes);
        let progress = crate::session::record::<BatchProgress>(&bytes).filter(|progress| progress.seq == seq);
        let op = progress.and_then(|progress| {
            let name = batch.encoded.names.get(progress.op_idx as usize)?;
            let opcode = batch.encoded.ops.get(progress.op_idx as usize)?.opcode;
            let opcode = Opcode::try_from(opcode).ok()?;
            Some(format!(
                "{} of {}, {opcode} \"{name}\"",
                progress.op_idx + 1,
                batch.encoded.names.len()
            ))
        });
        let lost = LostError {
            seq,
            batch: self.name.clone(),
            op,
            fault,
        };
        self.session.lose(link, lost)
    }

    fn failed(&self, batch_idx: usize, reply: &BatchReply, status: Status) -> WaitError {
        let encoded = &self.batches[batch_idx].encoded;
        let what = match encoded.names.get(reply.failed_op as usize) {
            Some(name) if reply.failed_op != NO_OP => {
                let opcode = Opcode::try_from(encoded.ops[reply.failed_op as usize].opcode);
                let opcode = opcode.map_or("unknown op", Opcode::name);
                format!(
                    "op {} {opcode} \"{name}\" (detail {:#x})",
                    reply.failed_op, reply.detail
                )
            }
            _ => match encoded.buffers.get(reply.detail as usize) {
                Some(buffer) if matches!(status, Status::MapFailed | Status::WindowFull) => format!("{buffer:?}"),
                _ => format!("the message (detail {:#x})", reply.detail),
            },
        };
        WaitError::Failed {
            seq: reply.seq,
            batch: self.name.clone(),
            what,
            status,
        }
    }

    /// Waits for every batch of the run in flight, if there is one.
    fn finish(&mut self) -> Result<(), RunError> {
        let Some(link) = self.sent_on.take() else {
            return Ok(());
        };
        let deadline = self.session.options().deadline;
        let mut result = Ok(());
        self.costs.clear();
        for idx in 0..self.tickets.len() {
            let ticket = self.tickets[idx];
            match link.queue().wait(ticket, deadline) {
                Ok(reply) => {
                    let status = Status::try_from(reply.status).unwrap_or(Status::Invalid);
                    if status != Status::Ok && result.is_ok() {
                        result = Err(self.failed(idx, &reply, status).into());
                    }
                    if self.profile {
                        self.read_costs(idx);
                    }
                }
                Err(fault) => {
                    result = Err(self.lost(&link, idx, ticket.seq, fault).into());
                    break;
                }
            }
        }
        self.tickets.clear();
        result
    }

    /// Waits for a run that nobody waits for any more: its [`InFlight`] was dropped or leaked.
    fn settle(&mut self) {
        if let Err(error) = self.finish() {
            log::warn!("a run that nobody waited for failed: {error}");
        }
    }

    fn read_costs(&mut self, batch_idx: usize) {
        let PreparedBatch { slot, encoded } = &self.batches[batch_idx];
        let mut offset = encoded.layout().profiles_offset;
        for name in &encoded.names {
            let mut bytes = [0; size_of::<OpProfile>()];
            slot.read(offset, &mut bytes);
            offset += bytes.len() as u64;
            if let Some(profile) = crate::session::record::<OpProfile>(&bytes) {
                self.costs.push(OpCost {
                    name: name.clone(),
                    opcode: Opcode::try_from(profile.opcode).ok(),
                    elapsed_ns: profile.elapsed_ns,
                    cycles: profile.cycles,
                    packets: profile.packets,
                });
            }
        }
    }
}

impl InFlight<'_> {
    /// Waits for every batch; the first failure is the run's.
    pub fn wait(self) -> Result<(), RunError> {
        self.graph.finish()
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.graph.settle();
    }
}

/// The DSP may read the slots until a run has ended, so they are not given back before.
impl Drop for PreparedGraph {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Where each tensor's bytes are.
fn places(graph: &Graph, layout: &compute::ComputeLayout, chunks: &[Buffer]) -> Vec<TensorRef> {
    let place = |id: u32| {
        let tensor = graph.tensor(TensorId(id));
        let (root, start) = graph.root(TensorId(id));
        let (buffer, offset) = match &graph.tensor(root).storage {
            Storage::Placed { buffer, offset } => (buffer.clone(), *offset),
            Storage::Computed | Storage::View { .. } => {
                // A tensor without bytes has no place; any address will do.
                let (chunk, offset) = layout.places[root.0 as usize].unwrap_or((0, 0));
                (chunks[chunk].clone(), offset)
            }
        };
        let constant = graph.tensor(root).role == Role::Weight;
        TensorRef {
            buffer,
            offset: offset + start,
            shape: tensor.shape,
            flags: if constant { TENSOR_WEIGHT } else { 0 },
            patchable: tensor.patchable.then_some(id),
        }
    };
    (0..graph.tensors.len() as u32).map(place).collect()
}
