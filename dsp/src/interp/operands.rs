//! An op's operands as checked descriptors, how they become tensors, and the rule on which of them may share bytes.

use hexloom_abi::descriptor::TENSOR_TILED;
use hexloom_abi::inplace::can_inplace;
use hexloom_abi::op::{Op, Shape};
use hexloom_abi::{BatchView, OpDesc, Opcode, Status, TensorDesc};

use crate::kernels::OpArgs;
use crate::mapping::Bases;
use crate::platform::{Base, DeviceAddress};
use crate::tensor::{Span, Tensor};

/// An op and descriptors of what it reads and writes: those of a block, or parts of them ([`cut`]).
#[derive(Clone)]
pub(super) struct Operands<'a> {
    pub(super) opcode: Opcode,
    pub(super) params: [u32; 16],
    pub(super) srcs: [Option<TensorDesc>; 10],
    pub(super) dsts: [Option<TensorDesc>; 4],
    /// Sources that were brought to scratch: they lie there and not in their buffer.
    pub(super) staged: [Option<Span<'a, u8>>; 10],
}

impl<'a> Operands<'a> {
    /// The operands of an op of the block.
    pub(super) fn new(view: &BatchView<'_>, desc: &OpDesc) -> Result<Self, Status> {
        Ok(Self {
            opcode: Opcode::try_from(desc.opcode).map_err(|_| Status::BadOpcode)?,
            params: desc.params,
            srcs: desc.srcs.map(|idx| view.operand(idx).copied()),
            dsts: desc.dsts.map(|idx| view.operand(idx).copied()),
            staged: [None; 10],
        })
    }

    /// Code, parameters and shapes.
    pub(super) fn op(&self) -> Op {
        let shape = |tensor: &Option<TensorDesc>| tensor.as_ref().and_then(|tensor| Shape::try_from(tensor).ok());
        Op {
            opcode: self.opcode,
            params: self.params,
            srcs: core::array::from_fn(|idx| shape(&self.srcs[idx])),
            dsts: core::array::from_fn(|idx| shape(&self.dsts[idx])),
        }
    }

    /// Source `idx`.
    pub(super) fn src(&self, idx: usize) -> Result<&TensorDesc, Status> {
        self.srcs.get(idx).and_then(Option::as_ref).ok_or(Status::Invalid)
    }

    /// Destination `idx`.
    pub(super) fn dst(&self, idx: usize) -> Result<&TensorDesc, Status> {
        self.dsts.get(idx).and_then(Option::as_ref).ok_or(Status::Invalid)
    }

    /// Sources that lie in their buffers.
    pub(super) fn srcs_in_buffers(&self) -> impl Iterator<Item = &TensorDesc> {
        let srcs = self.srcs.iter().zip(&self.staged);
        srcs.filter(|(_, staged)| staged.is_none())
            .filter_map(|(src, _)| src.as_ref())
    }

    /// Sources and destinations that lie in extended buffers, as bits.
    pub(super) fn extended(&self, bases: &Bases) -> (u16, u16) {
        let bits = |tensors: &[Option<TensorDesc>]| {
            let extended = |tensor: &Option<TensorDesc>| {
                let base = tensor.as_ref().map(|tensor| base_of(tensor, bases));
                matches!(base, Some(Base::Extended(_)))
            };
            let bits = tensors.iter().enumerate();
            bits.fold(0, |all, (idx, tensor)| all | u16::from(extended(tensor)) << idx)
        };
        (bits(&self.srcs), bits(&self.dsts))
    }

    /// The op on its operands' memory; fails when one is in an extended buffer and not staged.
    ///
    /// # Safety
    /// - the descriptors are those of a checked view, or parts of them;
    /// - for every buffer of the view in the window, as many bytes as its descriptor says are accessible at its place of
    ///   `bases`, for as long as the result is used.
    pub(super) unsafe fn resolve(&self, bases: &'a Bases) -> Result<OpArgs<'a>, Status> {
        // SAFETY: the caller's promise.
        let tensor = |from: &TensorDesc, staged| unsafe { tensor(from, staged, bases) };
        let mut args = OpArgs {
            op: self.op(),
            srcs: [None; 10],
            dsts: [None; 4],
        };
        for ((to, from), staged) in args.srcs.iter_mut().zip(&self.srcs).zip(self.staged) {
            *to = from.as_ref().map(|from| tensor(from, staged)).transpose()?;
        }
        for (to, from) in args.dsts.iter_mut().zip(&self.dsts) {
            *to = from.as_ref().map(|from| tensor(from, None)).transpose()?;
        }
        Ok(args)
    }

    /// Refuses destinations that overlap each other, or a source other than exactly in place where the op allows it.
    ///
    /// Fails with the detail number of the operand at fault.
    pub(super) fn check_overlap(&self) -> Result<(), u32> {
        let n_dsts = present(&self.dsts).count();
        // A rank reads its share of every tensor before it stores that share into all of them; alone it stores what others
        // still read.
        let shared = matches!(self.opcode, Opcode::Allreduce | Opcode::AllreduceAdd);
        let shared_in_place = shared && n_dsts == (self.params[1] as usize);
        for (dst_idx, dst) in present(&self.dsts) {
            for (src_idx, src) in present(&self.srcs) {
                let in_place = shared_in_place || dst_idx == 0 && can_inplace(self.opcode, src_idx);
                if overlaps(dst, src) && !(in_place && same_view(dst, src)) {
                    return Err(0x100 | src_idx as u32);
                }
            }
            let later = present(&self.dsts).filter(|&(idx, _)| idx > dst_idx);
            for (other_idx, other) in later {
                if overlaps(dst, other) {
                    return Err(0x200 | other_idx as u32);
                }
            }
        }
        Ok(())
    }
}

/// Elements `start .. start + len` of dimension `dim`. Tiles are cut along rows, in whole groups but for the last.
pub(super) fn cut(tensor: &TensorDesc, dim: usize, start: u32, len: u32) -> TensorDesc {
    let tiled = tensor.flags & TENSOR_TILED != 0;
    let unit = match (tiled, dim) {
        (true, 1) => hexloom_abi::tile::TILE_ROWS,
        _ => 1,
    };
    let mut part = *tensor;
    // Along the blocks of a row a stride counts whole blocks.
    let block = match (dim, Shape::try_from(tensor)) {
        (0, Ok(shape)) => shape.dtype.block_elems(),
        _ => 1,
    };
    let steps = u64::from(start / unit) / block;
    part.offset = tensor.offset + steps * u64::from(tensor.nb[dim]);
    part.ne[dim] = len;
    let extent = Shape::try_from(&part).ok().and_then(|shape| match shape.tiled {
        // The strides stay those of the whole, so the extent is counted from the last matrix.
        true => tiled_extent(&shape),
        false => shape.extent_bytes(),
    });
    part.bytes = extent.unwrap_or(0);
    part
}

fn tiled_extent(shape: &Shape) -> Option<u64> {
    if shape.elems() == 0 {
        return Some(0);
    }
    let [_, n1, n2, n3] = shape.ne.map(u64::from);
    let [_, group, b2, b3] = shape.nb.map(u64::from);
    let last = (n2 - 1).checked_mul(b2)?.checked_add((n3 - 1).checked_mul(b3)?)?;
    last.checked_add(n1.div_ceil(hexloom_abi::tile::TILE_ROWS.into()).checked_mul(group)?)
}

/// A tensor on its memory: a copy in scratch or its place in its buffer.
///
/// # Safety
/// As for [`Operands::resolve`].
pub(super) unsafe fn tensor<'a>(
    desc: &TensorDesc,
    staged: Option<Span<'a, u8>>,
    bases: &'a Bases,
) -> Result<Tensor<'a>, Status> {
    let shape = Shape::try_from(desc).map_err(|_| Status::BadDType)?;
    let start = match staged {
        // A copy that is shorter than its tensor would be a mistake of this side's.
        Some(staged) if desc.bytes <= staged.len() as u64 => staged.as_ptr(),
        Some(_) => return Err(Status::Internal),
        None => address_of(desc, bases).ok_or(Status::Unsupported)? as usize as *mut u8,
    };
    // SAFETY: the view's check has found the tensor's extent inside its buffer and its offset aligned to its type, and the
    // caller vouches for the buffer; a copy was found long enough, on a boundary at least as large.
    Ok(unsafe { Tensor::new(start, shape) })
}

/// Where a tensor's buffer begins.
pub(super) fn base_of(tensor: &TensorDesc, bases: &Bases) -> Base {
    // The view has checked the index against the batch's buffers, of which there are no more than places.
    bases[usize::from(tensor.buffer_idx) % bases.len()]
}

/// The address of a tensor's first byte, if code can go there.
pub(super) fn address_of(tensor: &TensorDesc, bases: &Bases) -> Option<u64> {
    base_of(tensor, bases).address()?.checked_add(tensor.offset)
}

/// The DMA engine's address of a tensor's first byte, if it lies in an extended buffer.
pub(super) fn device_address_of(tensor: &TensorDesc, bases: &Bases) -> Option<DeviceAddress> {
    match base_of(tensor, bases) {
        Base::Extended(base) => base.plus(tensor.offset),
        Base::Window(_) => None,
    }
}

fn present(tensors: &[Option<TensorDesc>]) -> impl Iterator<Item = (usize, &TensorDesc)> {
    let numbered = tensors.iter().enumerate();
    numbered.filter_map(|(idx, tensor)| tensor.as_ref().map(|tensor| (idx, tensor)))
}

/// Whether two tensors' byte ranges touch. Ranges, not element sets: interleaved views count as overlapping.
pub(super) fn overlaps(a: &TensorDesc, b: &TensorDesc) -> bool {
    a.buffer_idx == b.buffer_idx
        && a.bytes != 0
        && b.bytes != 0
        && a.offset < b.offset.saturating_add(b.bytes)
        && b.offset < a.offset.saturating_add(a.bytes)
}

fn same_view(a: &TensorDesc, b: &TensorDesc) -> bool {
    a.offset == b.offset && a.dtype == b.dtype && a.ne == b.ne && a.nb == b.nb
}
