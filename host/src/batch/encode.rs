//! From a recorded batch to the bytes of a block, and patches of those bytes.

use std::cmp::Reverse;
use std::collections::HashMap;

use hexloom_abi::descriptor::{TENSOR_TILED, TENSOR_WEIGHT};
use hexloom_abi::layout::{BlockCounts, BlockLayout};
use hexloom_abi::message::{REQUEST_PROFILE, REQUEST_TRACE};
use hexloom_abi::{BatchRequest, BufferDesc, OpDesc, TensorDesc};
use zerocopy::IntoBytes;

use super::{Batch, TensorRef};
use crate::memory::Buffer;
use crate::session::Slot;

/// A batch in its final form: the bytes of its block and what they refer to.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) names: Vec<String>,
    pub(crate) ops: Vec<OpDesc>,
    /// Batches to the next that uses each buffer; empty = unknown.
    pub(crate) next_uses: Vec<u32>,
    tensors: Vec<TensorDesc>,
    patchable: HashMap<u32, u16>,
    counts: BlockCounts,
    layout: BlockLayout,
}

/// Rows that a traced batch has: records of each, and how many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TraceSize {
    pub(crate) n_records: u32,
    pub(crate) n_threads: u32,
}

impl Encoded {
    /// Sorts the buffers, largest first, and renumbers the tensors. Patchable tensors keep their indices.
    pub(crate) fn new(batch: Batch) -> Self {
        let mut order: Vec<usize> = (0..batch.buffers.len()).collect();
        order.sort_by_key(|&idx| Reverse(batch.buffers[idx].memory().bytes()));
        let mut tensors = batch.tensors;
        for tensor in &mut tensors {
            let place = order.iter().position(|&old| old == usize::from(tensor.buffer_idx));
            tensor.buffer_idx = place.unwrap_or(0) as u16;
        }
        let counts = BlockCounts {
            n_buffers: order.len() as u32,
            n_tensors: tensors.len() as u32,
            n_ops: batch.ops.len() as u32,
            profiled: true,
            ..BlockCounts::default()
        };
        let layout = BlockLayout::new(&counts).expect("counts within the wire's limits do not overflow");
        Self {
            buffers: order.iter().map(|&idx| batch.buffers[idx].clone()).collect(),
            names: batch.names,
            ops: batch.ops,
            next_uses: Vec::new(),
            tensors,
            patchable: batch.patchable,
            counts,
            layout,
        }
    }

    /// Writes the host's part of the block.
    pub(crate) fn write_to(&self, slot: &mut Slot) {
        let next_uses = self.next_uses.iter().copied().chain(std::iter::repeat(0));
        let descs = self.buffers.iter().zip(next_uses).map(|(buffer, next_use)| BufferDesc {
            next_use,
            ..buffer.desc()
        });
        let descs: Vec<BufferDesc> = descs.collect();
        slot.write(0, descs.as_bytes());
        slot.write(self.layout.tensors_offset, self.tensors.as_bytes());
        slot.write(self.layout.ops_offset, self.ops.as_bytes());
    }

    /// The request for the block in `slot`; its sequence number is filled in when it is sent.
    pub(crate) fn request(&self, slot: &Slot, profile: bool, trace: TraceSize) -> BatchRequest {
        let mut request = BatchRequest::new(
            0,
            self.buffers.len() as u32,
            self.tensors.len() as u32,
            self.ops.len() as u32,
        );
        request.flags = if profile { REQUEST_PROFILE } else { 0 };
        request.block_offset = slot.offset();
        request.block_bytes = self.layout.bytes as u32;
        if profile && trace.n_records > 0 {
            request.flags |= REQUEST_TRACE;
            request.n_traces = trace.n_records;
            request.n_threads = trace.n_threads;
            request.block_bytes = self.traced_layout(trace).bytes as u32;
        }
        request
    }

    pub(crate) fn layout(&self) -> &BlockLayout {
        &self.layout
    }

    /// The layout with trace rows behind the rest, which stays where it is.
    pub(crate) fn traced_layout(&self, trace: TraceSize) -> BlockLayout {
        let counts = BlockCounts {
            n_traces: trace.n_records,
            n_threads: trace.n_threads,
            ..self.counts
        };
        BlockLayout::new(&counts).unwrap_or(self.layout)
    }

    /// Index of a patchable tensor's descriptor, if this batch uses the tensor.
    pub(crate) fn patchable(&self, id: u32) -> Option<usize> {
        self.patchable.get(&id).copied().map(usize::from)
    }

    /// Whether weights lie in a buffer.
    pub(crate) fn has_weights(&self, buffer_idx: u16) -> bool {
        let mut inside = self.tensors.iter().filter(|tensor| tensor.buffer_idx == buffer_idx);
        inside.any(|tensor| tensor.flags & TENSOR_WEIGHT != 0)
    }

    /// Replaces one parameter of an op, here alone.
    pub(crate) fn set_param(&mut self, op_idx: usize, param: usize, value: u32) {
        self.ops[op_idx].params[param] = value;
    }

    /// Writes one parameter of an op into the slot alone: one that is new on every run.
    pub(crate) fn write_param(&self, slot: &mut Slot, op_idx: usize, param: usize, value: u32) {
        let op = self.layout.ops_offset + (op_idx * size_of::<OpDesc>()) as u64;
        let at = std::mem::offset_of!(OpDesc, params) + param * size_of::<u32>();
        slot.write(op + at as u64, &value.to_le_bytes());
    }

    /// Replaces one tensor descriptor, here and in the slots.
    pub(crate) fn patch(&mut self, slots: &mut [Slot], idx: usize, tensor: &TensorRef) {
        let buffer_idx = self.tensors[idx].buffer_idx;
        let desc = TensorDesc {
            buffer_idx,
            ..tensor_desc(tensor)
        };
        self.tensors[idx] = desc;
        let offset = self.layout.tensors_offset + (idx * size_of::<TensorDesc>()) as u64;
        for slot in slots {
            slot.write(offset, desc.as_bytes());
        }
    }
}

/// The descriptor of a tensor, its buffer index left at 0.
pub(super) fn tensor_desc(tensor: &TensorRef) -> TensorDesc {
    let tiled = if tensor.shape.tiled { TENSOR_TILED } else { 0 };
    TensorDesc {
        offset: tensor.offset,
        bytes: tensor.shape.extent_bytes().unwrap_or(u64::MAX),
        dtype: tensor.shape.dtype.into(),
        flags: tensor.flags | tiled,
        ne: tensor.shape.ne,
        nb: tensor.shape.nb,
        ..TensorDesc::default()
    }
}
