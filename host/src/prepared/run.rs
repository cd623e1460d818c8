//! A run: requests out, replies in, and what went wrong in words.

use std::sync::Arc;
use std::time::Instant;

use hexloom_abi::fence::GroupParams;
use hexloom_abi::message::NO_OP;
use hexloom_abi::{BatchProgress, BatchReply, OpProfile, Opcode, Status};

use super::trace::{BatchTrace, read_threads};
use super::{OpCost, PreparedBatch, PreparedGraph, Sent};
use crate::batch::TraceSize;
use crate::error::{Fault, LostError, RunError, WaitError};
use crate::session::Links;
use crate::transport::BlockRef;

/// A run in flight. Dropping it waits for the DSP.
#[must_use = "a run that is not waited for hides its error"]
pub struct InFlight<'a> {
    graph: &'a mut PreparedGraph,
}

/// A run in flight that has taken its graph along, for whoever keeps several in flight. Dropping it waits for the DSP.
#[must_use = "a run that is not waited for hides its error"]
pub struct Launched {
    graph: PreparedGraph,
}

impl PreparedGraph {
    /// Runs the graph and waits for it.
    pub fn run(&mut self) -> Result<(), RunError> {
        self.start()?.wait()
    }

    /// Sends the graph's batches. Allocates nothing once the graph is bound to the session's connection.
    pub fn start(&mut self) -> Result<InFlight<'_>, RunError> {
        self.send_all()?;
        Ok(InFlight { graph: self })
    }

    /// The same; the graph comes back when the run is waited for, or at once with the error.
    pub fn launch(mut self) -> Result<Launched, (Box<Self>, RunError)> {
        match self.send_all() {
            Ok(()) => Ok(Launched { graph: self }),
            Err(error) => Err((Box::new(self), error)),
        }
    }

    fn send_all(&mut self) -> Result<(), RunError> {
        self.settle();
        let links = self.session.links()?;
        self.rebind(&links)?;
        self.write_numbers();
        self.sent_on = Some(Arc::clone(&links));
        self.pushes.clear();
        for batch_idx in 0..self.batches.len() {
            let start = self.is_traced().then(Instant::now);
            if let Err(fault) = self.send(&links, batch_idx) {
                // An earlier batch of this run may be the one that ended the session: it is asked first.
                self.finish()?;
                return Err(self.lost(&links, batch_idx, 0, fault).into());
            }
            self.pushes.extend(start.map(|start| (start, Instant::now())));
        }
        Ok(())
    }

    /// Writes the sequence numbers of this run.
    fn write_numbers(&mut self) {
        for op in &self.syncs {
            let PreparedBatch { slots, encoded } = &mut self.batches[op.batch_idx];
            for (param, value) in op.sync.next().into_iter().flatten() {
                slots
                    .iter_mut()
                    .for_each(|slot| encoded.write_param(slot, op.op_idx, param, value));
            }
        }
    }

    /// Sends one batch to every connection, to the leader last. Members take the batches of a group in the same order.
    fn send(&mut self, links: &Links, batch_idx: usize) -> Result<(), Fault> {
        let trace = self.trace_size();
        let deadline = self.session.options().deadline;
        let PreparedBatch { slots, encoded } = &mut self.batches[batch_idx];
        let group = links.next_in_group(encoded.names.len());
        if let Some(group) = &group {
            let base = GroupParams::BASE_SEQ_PARAM;
            slots
                .iter_mut()
                .for_each(|slot| encoded.write_param(slot, 0, base, group.base_seq()));
        }
        for (link_idx, (link, slot)) in links.all().iter().zip(slots).enumerate().rev() {
            let mut request = encoded.request(slot, self.profile, trace);
            let before = self.sent.iter().rev().find(|sent| sent.link_idx == link_idx);
            request.after = before.map_or(0, |sent| sent.ticket.seq as u32);
            let block = BlockRef {
                fd: link.pinned().fd(),
                offset: slot.offset(),
                bytes: request.block_bytes.into(),
            };
            let ticket = link.queue().submit(request, block, deadline)?;
            self.sent.push(Sent {
                batch_idx,
                link_idx,
                ticket,
            });
        }
        Ok(())
    }

    /// Makes the session lost, naming the batch and, if the DSP told, the op.
    fn lost(&self, links: &Links, batch_idx: usize, seq: u64, fault: Fault) -> LostError {
        let batch = &self.batches[batch_idx];
        let mut bytes = [0; size_of::<BatchProgress>()];
        batch.slots[0].read(batch.encoded.layout().progress_offset, &mut bytes);
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
        self.session.lose(links, lost)
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
                Some(buffer) if matches!(status, Status::MapFailed | Status::WindowFull | Status::NoExtended) => {
                    format!("{buffer:?}")
                }
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
        let Some(links) = self.sent_on.take() else {
            return Ok(());
        };
        let deadline = self.session.options().deadline;
        let mut failure: Option<(usize, BatchReply, Status)> = None;
        self.costs.clear();
        self.trace.clear();
        self.n_maps = 0;
        for idx in 0..self.sent.len() {
            let Sent {
                batch_idx,
                link_idx,
                ticket,
            } = self.sent[idx];
            let start = self.is_traced().then(Instant::now);
            let reply = match links.all()[link_idx].queue().wait(ticket, deadline) {
                Ok(reply) => reply,
                Err(fault) => {
                    let lost = self.lost(&links, batch_idx, ticket.seq, fault);
                    self.sent.clear();
                    return Err(lost.into());
                }
            };
            self.n_maps = self.n_maps.saturating_add(reply.n_maps);
            let status = Status::try_from(reply.status).unwrap_or(Status::Invalid);
            // The member that failed tells more than those that it took along.
            let replaces = |&(of, _, old): &(usize, BatchReply, Status)| of == batch_idx && old == Status::PeerFailed;
            if status != Status::Ok && failure.as_ref().is_none_or(replaces) {
                failure = Some((batch_idx, reply, status));
            }
            if link_idx == 0 {
                if let Some(start) = start {
                    self.read_trace(batch_idx, (start, Instant::now()), &reply);
                }
                if self.profile {
                    self.read_costs(batch_idx);
                }
            }
        }
        self.sent.clear();
        match failure {
            None => Ok(()),
            Some((batch_idx, reply, status)) => Err(self.failed(batch_idx, &reply, status).into()),
        }
    }

    /// Waits for a run that nobody waits for any more: its [`InFlight`] was dropped or leaked.
    pub(super) fn settle(&mut self) {
        if let Err(error) = self.finish() {
            log::warn!("a run that nobody waited for failed: {error}");
        }
    }

    fn is_traced(&self) -> bool {
        self.profile && self.session.options().trace_records > 0
    }

    fn trace_size(&self) -> TraceSize {
        TraceSize {
            n_records: self.session.options().trace_records,
            n_threads: self.session.n_threads(),
        }
    }

    /// Adds a batch to the trace; its costs are read next.
    fn read_trace(&mut self, batch_idx: usize, wait: (Instant, Instant), reply: &BatchReply) {
        let PreparedBatch { slots, encoded } = &self.batches[batch_idx];
        let Some(&push) = self.pushes.get(batch_idx) else {
            return;
        };
        let size = self.trace_size();
        let first_op = self.costs.len();
        self.trace.push(BatchTrace {
            push,
            wait,
            cycles_start: reply.cycles_start,
            cycles: reply.cycles_stop.saturating_sub(reply.cycles_start),
            elapsed_us: reply.elapsed_us,
            ops: first_op..first_op + encoded.names.len(),
            threads: read_threads(&slots[0], &encoded.traced_layout(size), reply, size),
        });
    }

    fn read_costs(&mut self, batch_idx: usize) {
        let PreparedBatch { slots, encoded } = &self.batches[batch_idx];
        let mut offset = encoded.layout().profiles_offset;
        for name in &encoded.names {
            let mut bytes = [0; size_of::<OpProfile>()];
            slots[0].read(offset, &mut bytes);
            offset += bytes.len() as u64;
            if let Some(profile) = crate::session::record::<OpProfile>(&bytes) {
                self.costs.push(OpCost {
                    name: name.clone(),
                    opcode: Opcode::try_from(profile.opcode).ok(),
                    elapsed_ns: profile.elapsed_ns,
                    cycles_start: profile.cycles_start,
                    cycles: profile.cycles,
                    packets: profile.packets,
                    pmu: profile.pmu,
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

impl Launched {
    /// Waits for every batch, and gives the graph back.
    pub fn wait(mut self) -> (PreparedGraph, Result<(), RunError>) {
        let result = self.graph.finish();
        (self.graph, result)
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
