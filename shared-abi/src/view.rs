//! A checked view of a block: the border behind which the DSP trusts indices, extents and strides.
//!
//! [`BatchView::parse`] looks at every descriptor once. The bytes must be private to the caller (the DSP copies them out
//! of shared memory first), so that nothing can change between check and use.

use zerocopy::FromBytes;

use crate::code::{DType, Opcode, Status};
use crate::descriptor::{
    BUFFER_EXTENDED, BufferDesc, NO_TENSOR, OpDesc, TENSOR_FENCE, TENSOR_TILED, TENSOR_WEIGHT, TensorDesc,
};
use crate::fence::SLOT_WORDS;
use crate::layout::BlockLayout;
use crate::message::BatchRequest;
use crate::op::{Op, Shape};
use crate::tile::TileLayout;

/// Descriptors of one batch, all checked.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    buffers: &'a [BufferDesc],
    tensors: &'a [TensorDesc],
    ops: &'a [OpDesc],
}

/// Why a block was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// What is wrong.
    pub status: Status,
    /// Index of the descriptor at fault, in its own section.
    pub idx: u32,
    /// The op at fault, or [`crate::message::NO_OP`].
    pub op_idx: u32,
}

impl<'a> BatchView<'a> {
    /// Checks `block`, the host-written part of a block (up to [`BlockLayout::progress_offset`]), against its request.
    ///
    /// Checked: counts, section bounds and alignment, flags and reserves, that every buffer is distinct, that every
    /// tensor lies inside its buffer with strides that do not reach outside, that tiled tensors have the strides of
    /// their layout and fence slots lie on whole lines, and that every operand index exists. Not checked here: whether a kernel takes the op
    /// ([`crate::support`]).
    pub fn parse(block: &'a [u8], request: &BatchRequest) -> Result<Self, ParseError> {
        request.check().map_err(whole)?;
        let layout = BlockLayout::of(request).ok_or(whole(Status::TooMany))?;
        let buffers = section(block, 0, request.n_buffers)?;
        let tensors = section(block, layout.tensors_offset, request.n_tensors)?;
        let ops = section(block, layout.ops_offset, request.n_ops)?;
        let view = Self { buffers, tensors, ops };
        for (idx, buffer) in (0u32..).zip(buffers) {
            check_buffer(buffer).map_err(|status| at(status, idx))?;
            let earlier = buffers.iter().take(idx as usize);
            if earlier.into_iter().any(|other| other.fd == buffer.fd) {
                return Err(at(Status::Invalid, idx));
            }
        }
        for (idx, tensor) in (0u32..).zip(tensors) {
            view.check_tensor(tensor).map_err(|status| at(status, idx))?;
        }
        for (op_idx, op) in (0u32..).zip(ops) {
            let in_op = |status, idx| ParseError { status, idx, op_idx };
            if op.flags != 0 || op.reserved != [0; 7] {
                return Err(in_op(Status::BadFlags, 0));
            }
            Opcode::try_from(op.opcode).map_err(|number| in_op(Status::BadOpcode, number))?;
            for (operand, &tensor_idx) in (0u32..).zip(op.srcs.iter().chain(&op.dsts)) {
                if tensor_idx != NO_TENSOR && u32::from(tensor_idx) >= request.n_tensors {
                    return Err(in_op(Status::Invalid, operand));
                }
            }
        }
        Ok(view)
    }

    /// Buffer descriptors.
    pub fn buffers(&self) -> &'a [BufferDesc] {
        self.buffers
    }

    /// Tensor descriptors.
    pub fn tensors(&self) -> &'a [TensorDesc] {
        self.tensors
    }

    /// Op descriptors.
    pub fn ops(&self) -> &'a [OpDesc] {
        self.ops
    }

    /// The tensor behind an operand index; `None` when absent.
    pub fn operand(&self, tensor_idx: u16) -> Option<&'a TensorDesc> {
        self.tensors.get(usize::from(tensor_idx))
    }

    /// An op with its operands' shapes.
    pub fn op(&self, desc: &OpDesc) -> Result<Op, Status> {
        let shape = |&idx: &u16| self.operand(idx).and_then(|tensor| Shape::try_from(tensor).ok());
        let mut op = Op {
            opcode: Opcode::try_from(desc.opcode).map_err(|_| Status::BadOpcode)?,
            params: desc.params,
            srcs: [None; 10],
            dsts: [None; 4],
        };
        for (to, from) in op.srcs.iter_mut().zip(&desc.srcs) {
            *to = shape(from);
        }
        for (to, from) in op.dsts.iter_mut().zip(&desc.dsts) {
            *to = shape(from);
        }
        Ok(op)
    }

    fn check_tensor(&self, tensor: &TensorDesc) -> Result<(), Status> {
        let known = TENSOR_WEIGHT | TENSOR_TILED | TENSOR_FENCE;
        if tensor.flags & !known != 0 || tensor.reserved != [0; 3] {
            return Err(Status::BadFlags);
        }
        let buffer = self
            .buffers
            .get(usize::from(tensor.buffer_idx))
            .ok_or(Status::Invalid)?;
        let shape = Shape::try_from(tensor).map_err(|_| Status::BadDType)?;
        let [k, ..] = shape.ne;
        if !u64::from(k).is_multiple_of(shape.dtype.block_elems()) {
            return Err(Status::Invalid);
        }
        if shape.tiled {
            let strides = TileLayout::new(shape.dtype, k).and_then(|tile| tile.strides(shape.dtype, shape.ne));
            if strides != Some(shape.nb) {
                return Err(Status::Invalid);
            }
            if !tensor.offset.is_multiple_of(crate::limits::LINE_BYTES) {
                return Err(Status::Invalid);
            }
        }
        let slots = shape.dtype == DType::I32 && shape.ne[0] == SLOT_WORDS && shape.dense_everywhere();
        if tensor.flags & TENSOR_FENCE != 0 && !(slots && tensor.offset.is_multiple_of(crate::limits::LINE_BYTES)) {
            return Err(Status::Invalid);
        }
        let extent = shape.extent_bytes().ok_or(Status::Invalid)?;
        let end = tensor.offset.checked_add(tensor.bytes).ok_or(Status::Invalid)?;
        let align = shape.dtype.align_bytes();
        let aligned = tensor.offset.is_multiple_of(align)
            && shape.nb.iter().all(|&stride| u64::from(stride).is_multiple_of(align));
        if extent > tensor.bytes || end > buffer.bytes || !aligned {
            return Err(Status::Invalid);
        }
        Ok(())
    }
}

fn check_buffer(buffer: &BufferDesc) -> Result<(), Status> {
    if buffer.flags & !BUFFER_EXTENDED != 0 || buffer.reserved != 0 {
        return Err(Status::BadFlags);
    }
    Ok(())
}

fn section<T: FromBytes + zerocopy::Immutable + zerocopy::KnownLayout>(
    block: &[u8],
    offset: u64,
    count: u32,
) -> Result<&[T], ParseError> {
    let truncated = whole(Status::Truncated);
    let start = usize::try_from(offset).map_err(|_| truncated)?;
    let count = usize::try_from(count).map_err(|_| truncated)?;
    let bytes = block.get(start..).ok_or(truncated)?;
    match <[T]>::ref_from_prefix_with_elems(bytes, count) {
        Ok((records, _)) => Ok(records),
        Err(_) => Err(truncated),
    }
}

fn whole(status: Status) -> ParseError {
    at(status, 0)
}

fn at(status: Status, idx: u32) -> ParseError {
    ParseError {
        status,
        idx,
        op_idx: crate::message::NO_OP,
    }
}
