//! Binding a graph to the connections of its session: encoded, mapped, written into slots.
//!
//! Done when the graph is prepared, and again when a session that it depends on was opened anew: its own, because slots
//! lie in the pinned buffer of a connection, or that of an event, because fences do.

use hexloom_abi::descriptor::TENSOR_FENCE;
use hexloom_abi::fence::{AllreduceParams, FENCE_WAIT, FenceRef, GroupParams, MAX_TIMEOUT_US};
use hexloom_abi::limits::{MAX_BUFFERS, MAX_PARAMS};
use hexloom_abi::support::Unsupported;
use hexloom_abi::{Opcode, scratch, support};

use super::residency::{self, FreshCut};
use super::{PreparedBatch, PreparedGraph};
use crate::batch::{Batch, BatchLimits, Encoded, Full, OpRecord, TensorRef};
use crate::error::{GraphError, SubmitError, refusal_text};
use crate::graph::{Node, Storage, Sync, TensorId, slots_shape};
use crate::session::{Event, Links};

/// Graphs whose batches share the queue slots where buffers take turns: one for single tokens and a few for prompts.
const GRAPHS: usize = 4;

/// An op whose numbers are written before every run.
pub(super) struct SyncOp {
    pub(super) batch_idx: usize,
    pub(super) op_idx: usize,
    pub(super) sync: Sync,
    /// Which connections of their sessions the slots belong to.
    epochs: Vec<u64>,
}

impl PreparedGraph {
    /// Binds again if a session that the graph depends on was opened anew.
    pub(super) fn rebind(&mut self, links: &Links) -> Result<(), SubmitError> {
        let moved = |op: &SyncOp| op.sync.events().map(Event::epoch).ne(op.epochs.iter().copied());
        let lost = |op: &SyncOp| op.sync.events().any(|event| event.session().epoch() != event.epoch());
        if links.epoch() == self.epoch && !self.syncs.iter().any(|op| moved(op) || lost(op)) {
            return Ok(());
        }
        for idx in 0..self.places.len() {
            if let Storage::Fence(event) = &self.graph.tensors[idx].storage {
                (self.places[idx].buffer, self.places[idx].offset) = event.place()?;
            }
        }
        self.bind(links)
    }

    /// Encodes, takes slots, makes the buffers known and writes the blocks.
    pub(super) fn bind(&mut self, links: &Links) -> Result<(), SubmitError> {
        let (encoded, syncs) = self.encode(links)?;
        let kept = self.batches.len() == encoded.len() && self.batches.iter().all(|batch| links.own(&batch.slots));
        let slots = match kept {
            true => self.batches.drain(..).map(|batch| batch.slots).collect(),
            false => links.take_slots(encoded.len())?,
        };
        let batches = slots.into_iter().zip(encoded);
        self.batches = batches
            .map(|(slots, encoded)| PreparedBatch { slots, encoded })
            .collect();
        let buffers = self.batches.iter().flat_map(|batch| &batch.encoded.buffers);
        links.map(&self.session.downgrade(), buffers)?;
        for PreparedBatch { slots, encoded } in &mut self.batches {
            for (member, slot) in (0u32..).zip(slots) {
                if links.is_group() {
                    encoded.set_param(0, GroupParams::MEMBER_PARAM, member);
                }
                encoded.write_to(slot);
            }
        }
        self.syncs = syncs;
        self.sent.reserve_exact(self.batches.len() * links.all().len());
        self.epoch = links.epoch();
        Ok(())
    }

    /// Cuts the graph into batches at the limits of the wire.
    fn encode(&self, links: &Links) -> Result<(Vec<Encoded>, Vec<SyncOp>), SubmitError> {
        let options = self.session.options();
        let limits = BatchLimits {
            n_ops: options.batch_ops as usize,
            n_tensors: options.batch_tensors as usize,
            mapped_bytes: links.window_bytes(),
            pinned_fd: (!links.is_group()).then(|| links.lead().pinned().fd()),
        };
        let records: Vec<OpRecord> = self.graph.nodes.iter().map(|node| self.record(node)).collect();
        let n_batches = (options.n_slots as usize / GRAPHS).max(1);
        let fresh_max = residency::fresh_max(&records, &limits, n_batches);
        let mut cutter = Cutter {
            limits,
            fresh_max,
            cut: FreshCut::default(),
            first: links.group_place().map(|place| self.group_op(links, place)),
            batch: Batch::default(),
            done: Vec::new(),
        };
        let mut syncs = Vec::new();
        for (node, record) in self.graph.nodes.iter().zip(&records) {
            self.check(record).map_err(|refusal| GraphError::Unsupported {
                op: node.opcode,
                name: node.name.clone(),
                what: format!("{}; {}", refusal_text(&refusal), self.graph.operand_text(node)),
            })?;
            let (batch_idx, op_idx) = cutter.push(record)?;
            if let Some(sync) = &node.sync {
                syncs.push(SyncOp {
                    batch_idx,
                    op_idx,
                    epochs: sync.events().map(Event::epoch).collect(),
                    sync: sync.clone(),
                });
            }
        }
        let mut batches = cutter.finish();
        if fresh_max < MAX_BUFFERS as usize {
            residency::tell_next_uses(&mut batches);
        }
        Ok((batches, syncs))
    }

    /// Whether the DSP takes an op with its operands where they are.
    fn check(&self, record: &OpRecord) -> Result<(), Unsupported> {
        let op = record.op();
        self.session.supports(&op)?;
        let bit = |(idx, tensor): (usize, &TensorRef)| u16::from(tensor.buffer.is_extended()) << idx;
        let srcs = record.srcs.iter().enumerate();
        let srcs: u16 = srcs.filter_map(|(idx, src)| Some(bit((idx, src.as_ref()?)))).sum();
        let dsts: u16 = record.dsts.iter().enumerate().map(bit).sum();
        if srcs | dsts == 0 {
            return Ok(());
        }
        support::check_extended(&op, srcs, dsts)?;
        scratch::check_extended(&op, srcs, self.session.n_threads(), self.session.scratch_bytes())
    }

    /// A node with the places of its operands and, where it waits, the session's own time-out.
    fn record(&self, node: &Node) -> OpRecord {
        let mut params = node.params;
        match node.opcode {
            Opcode::Fence if FenceRef::of(&params).mode == FENCE_WAIT => {
                let fence = FenceRef::of(&params);
                params = FenceRef::wait(fence.seq, self.timeout_us()).params();
            }
            Opcode::Allreduce | Opcode::AllreduceAdd => {
                let timeout_us = self.timeout_us();
                let reduce = AllreduceParams::of(&params);
                params = AllreduceParams { timeout_us, ..reduce }.params();
            }
            _ => {}
        }
        let place = |id: TensorId| self.place(id).clone();
        OpRecord {
            name: node.name.clone(),
            opcode: node.opcode,
            params,
            srcs: node.srcs.iter().map(|src| src.map(place)).collect(),
            dsts: node.dsts.iter().map(|&id| place(id)).collect(),
        }
    }

    /// The op that begins every batch of a group.
    fn group_op(&self, links: &Links, (buffer, offset): (crate::Buffer, u64)) -> OpRecord {
        let n_members = links.all().len() as u32;
        let params: [u32; MAX_PARAMS] = GroupParams {
            member: 0,
            n_members,
            base_seq: 0,
            timeout_us: self.timeout_us(),
        }
        .params();
        OpRecord {
            name: "group".to_owned(),
            opcode: Opcode::MdevGroup,
            params,
            srcs: vec![Some(TensorRef {
                buffer,
                offset,
                shape: slots_shape(n_members),
                flags: TENSOR_FENCE,
                patchable: None,
            })],
            dsts: Vec::new(),
        }
    }

    /// Longest wait for a peer: half the time that the host waits for the reply, which then names the peer.
    fn timeout_us(&self) -> u32 {
        let half = self.session.options().deadline.as_micros() / 2;
        half.clamp(1, u128::from(MAX_TIMEOUT_US)) as u32
    }
}

/// Fills batches one after the other.
struct Cutter {
    limits: BatchLimits,
    fresh_max: usize,
    cut: FreshCut,
    first: Option<OpRecord>,
    batch: Batch,
    done: Vec<Encoded>,
}

impl Cutter {
    /// Records an op in the current batch, or in a fresh one; gives the numbers of the batch and of the op in it.
    fn push(&mut self, record: &OpRecord) -> Result<(usize, usize), SubmitError> {
        self.begin(record)?;
        let ends = self.cut.is_before(record, self.fresh_max);
        if ends || self.batch.push(record, &self.limits).is_err() {
            self.done.push(Encoded::new(std::mem::take(&mut self.batch)));
            self.cut = FreshCut::default();
            self.begin(record)?;
            let pushed = self.batch.push(record, &self.limits);
            pushed.map_err(|full| too_large(record, full))?;
        }
        self.cut.add(record);
        Ok((self.done.len(), self.batch.n_ops() - 1))
    }

    fn begin(&mut self, record: &OpRecord) -> Result<(), SubmitError> {
        let Some(first) = self.first.as_ref().filter(|_| self.batch.is_empty()) else {
            return Ok(());
        };
        let pushed = self.batch.push(first, &self.limits);
        pushed.map_err(|full| too_large(record, full))
    }

    fn finish(mut self) -> Vec<Encoded> {
        if !self.batch.is_empty() {
            self.done.push(Encoded::new(self.batch));
        }
        self.done
    }
}

/// An empty batch has no room for the op.
fn too_large(record: &OpRecord, full: Full) -> SubmitError {
    SubmitError::OpTooLarge {
        op: record.name.clone(),
        what: full.what,
        needed: full.needed,
        limit: full.limit,
    }
}
