//! Recording ops into the descriptors of one batch: deduplicated, within every limit of the wire.
//!
//! A [`Batch`] is plain host memory. It becomes a block when it is written into a queue slot, with its buffers sorted
//! largest first, the order in which both sides map them.

mod encode;

use std::collections::HashMap;

use hexloom_abi::limits::{MAX_BUFFERS, MAX_DSTS, MAX_PARAMS, MAX_SRCS};
use hexloom_abi::op::{Op, Shape};
use hexloom_abi::{NO_TENSOR, OpDesc, Opcode, TensorDesc};

use crate::memory::Buffer;

pub(crate) use encode::{Encoded, TraceSize};

/// A tensor with the place of its bytes.
#[derive(Clone, Debug)]
pub struct TensorRef {
    /// The buffer it lies in.
    pub buffer: Buffer,
    /// Byte offset in the buffer.
    pub offset: u64,
    /// Type, dimensions, strides.
    pub shape: Shape,
    /// `TENSOR_WEIGHT`, `TENSOR_FENCE`; the tiled flag comes from the shape.
    pub flags: u32,
    /// Identity of a tensor whose descriptor may be patched later, and so is not shared with an equal one.
    pub patchable: Option<u32>,
}

/// One op with resolved operands.
#[derive(Clone, Debug)]
pub struct OpRecord {
    /// Name in errors and profiles.
    pub name: String,
    /// What to do.
    pub opcode: Opcode,
    /// Parameters, floats as bits.
    pub params: [u32; MAX_PARAMS],
    /// Operands read.
    pub srcs: Vec<Option<TensorRef>>,
    /// Operands written.
    pub dsts: Vec<TensorRef>,
}

/// What a batch may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchLimits {
    /// Ops.
    pub n_ops: usize,
    /// Tensor descriptors.
    pub n_tensors: usize,
    /// Bytes of buffers mapped together.
    pub mapped_bytes: u64,
    /// fd of the session's own pinned buffer, which takes nothing of that.
    pub pinned_fd: Option<u32>,
}

/// What a batch has no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    /// What there is too much of.
    pub what: &'static str,
    /// How much the batch would then have.
    pub needed: u64,
    /// How much it may have.
    pub limit: u64,
}

/// Descriptors of one batch in the making.
#[derive(Debug, Default)]
pub struct Batch {
    buffers: Vec<Buffer>,
    tensors: Vec<TensorDesc>,
    ops: Vec<OpDesc>,
    names: Vec<String>,
    by_place: HashMap<(TensorKey, Option<u32>), u16>,
    /// Descriptor of each patchable tensor.
    patchable: HashMap<u32, u16>,
    mapped_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct TensorKey {
    buffer_idx: u16,
    flags: u32,
    offset: u64,
    dtype: u32,
    ne: [u32; 4],
    nb: [u32; 4],
}

impl Batch {
    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Ops recorded.
    pub fn n_ops(&self) -> usize {
        self.ops.len()
    }

    /// Tensor descriptors, after deduplication.
    pub fn n_tensors(&self) -> usize {
        self.tensors.len()
    }

    /// Distinct buffers.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Records an op, or says what the batch has no room for and stays as it was.
    pub fn push(&mut self, op: &OpRecord, limits: &BatchLimits) -> Result<(), Full> {
        self.fits(op, limits)?;
        let mut desc = OpDesc::new(op.opcode.into());
        desc.params = op.params;
        for tensor in op.operands() {
            self.add_buffer(&tensor.buffer, limits);
        }
        for (to, from) in desc.srcs.iter_mut().zip(&op.srcs) {
            *to = from.as_ref().map_or(NO_TENSOR, |tensor| self.tensor_idx(tensor));
        }
        for (to, from) in desc.dsts.iter_mut().zip(&op.dsts) {
            *to = self.tensor_idx(from);
        }
        self.ops.push(desc);
        self.names.push(op.name.clone());
        Ok(())
    }

    fn fits(&self, op: &OpRecord, limits: &BatchLimits) -> Result<(), Full> {
        within("ops", self.ops.len() as u64 + 1, limits.n_ops as u64)?;
        within("operands", op.srcs.len() as u64, MAX_SRCS as u64)?;
        within("destinations", op.dsts.len() as u64, MAX_DSTS as u64)?;
        // An upper bound: tensors of this op that are known already are counted again.
        let n_tensors = self.tensors.len() + op.operands().count();
        within("tensors", n_tensors as u64, limits.n_tensors as u64)?;
        let mut fresh: Vec<&Buffer> = op
            .operands()
            .map(|tensor| &tensor.buffer)
            .filter(|buffer| !self.buffers.iter().any(|known| known.fd() == buffer.fd()))
            .collect();
        fresh.sort_by_key(|buffer| buffer.fd());
        fresh.dedup_by_key(|buffer| buffer.fd());
        within("buffers", (self.buffers.len() + fresh.len()) as u64, MAX_BUFFERS.into())?;
        let bytes: u64 = fresh.iter().map(|buffer| limits.bytes_of(buffer)).sum();
        within(
            "mapped bytes",
            self.mapped_bytes.saturating_add(bytes),
            limits.mapped_bytes,
        )
    }

    fn tensor_idx(&mut self, tensor: &TensorRef) -> u16 {
        let buffer_idx = self.buffer_idx(&tensor.buffer);
        let mut desc = encode::tensor_desc(tensor);
        desc.buffer_idx = buffer_idx;
        let key = TensorKey {
            buffer_idx,
            flags: desc.flags,
            offset: desc.offset,
            dtype: desc.dtype.0,
            ne: desc.ne,
            nb: desc.nb,
        };
        let idx = *self.by_place.entry((key, tensor.patchable)).or_insert_with(|| {
            self.tensors.push(desc);
            // `fits` keeps the count below the wire's limit of 8,192.
            (self.tensors.len() - 1) as u16
        });
        if let Some(id) = tensor.patchable {
            self.patchable.insert(id, idx);
        }
        idx
    }

    fn add_buffer(&mut self, buffer: &Buffer, limits: &BatchLimits) {
        if !self.buffers.iter().any(|known| known.fd() == buffer.fd()) {
            self.mapped_bytes += limits.bytes_of(buffer);
            self.buffers.push(buffer.clone());
        }
    }

    /// Number of a buffer that was added before.
    fn buffer_idx(&self, buffer: &Buffer) -> u16 {
        let known = self.buffers.iter().position(|known| known.fd() == buffer.fd());
        known.unwrap_or(0) as u16
    }
}

impl BatchLimits {
    /// Bytes that a buffer takes of those that can be mapped together.
    pub(crate) fn bytes_of(&self, buffer: &Buffer) -> u64 {
        match self.pinned_fd == Some(buffer.fd()) {
            true => 0,
            false => buffer.window_bytes(),
        }
    }
}

impl OpRecord {
    /// Everything that it reads or writes.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &TensorRef> {
        self.srcs.iter().flatten().chain(&self.dsts)
    }

    /// The op as the support rules see it.
    pub fn op(&self) -> Op {
        let mut op = Op {
            opcode: self.opcode,
            params: self.params,
            srcs: [None; MAX_SRCS],
            dsts: [None; MAX_DSTS],
        };
        for (to, from) in op.srcs.iter_mut().zip(&self.srcs) {
            *to = from.as_ref().map(|tensor| tensor.shape);
        }
        for (to, from) in op.dsts.iter_mut().zip(&self.dsts) {
            *to = Some(from.shape);
        }
        op
    }
}

fn within(what: &'static str, needed: u64, limit: u64) -> Result<(), Full> {
    if needed <= limit {
        Ok(())
    } else {
        Err(Full { what, needed, limit })
    }
}
