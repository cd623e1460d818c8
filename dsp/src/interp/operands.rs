//! From operand indices to tensors, and the rule on which of them may share bytes.

use hexloom_abi::inplace::can_inplace;
use hexloom_abi::op::Op;
use hexloom_abi::op::Shape;
use hexloom_abi::{BatchView, OpDesc, TensorDesc};

use crate::kernels::OpArgs;
use crate::mapping::Addresses;
use crate::tensor::Tensor;

/// Refuses destinations that overlap each other, or a source other than exactly in place where the op allows it.
///
/// Fails with the detail number of the operand at fault.
pub(super) fn check_overlap(view: &BatchView<'_>, desc: &OpDesc, op: &Op) -> Result<(), u32> {
    for (dst_idx, dst) in operands(view, &desc.dsts) {
        for (src_idx, src) in operands(view, &desc.srcs) {
            if overlaps(dst, src) && !(dst_idx == 0 && same_view(dst, src) && can_inplace(op.opcode, src_idx)) {
                return Err(0x100 | src_idx as u32);
            }
        }
        let later = operands(view, &desc.dsts).filter(|&(idx, _)| idx > dst_idx);
        for (other_idx, other) in later {
            if overlaps(dst, other) {
                return Err(0x200 | other_idx as u32);
            }
        }
    }
    Ok(())
}

/// The op with its operands' addresses.
///
/// # Safety
/// - `view` is the result of `BatchView::parse`;
/// - for every buffer of the view, as many bytes as its descriptor says are accessible at its entry of `addresses`, for
///   as long as the result is used.
pub(super) unsafe fn resolve<'a>(view: &BatchView<'_>, desc: &OpDesc, op: Op, addresses: &'a Addresses) -> OpArgs<'a> {
    let tensor = |idx: u16| {
        let desc = view.operand(idx)?;
        let shape = Shape::try_from(desc).ok()?;
        let base = addresses.get(usize::from(desc.buffer_idx))?.wrapping_add(desc.offset);
        // SAFETY: `parse` has found the tensor's extent inside its buffer and its offset aligned to its type; the caller
        // vouches for the buffer.
        Some(unsafe { Tensor::new(base as usize as *mut u8, shape) })
    };
    OpArgs {
        op,
        srcs: desc.srcs.map(tensor),
        dsts: desc.dsts.map(tensor),
    }
}

fn operands<'v>(view: &'v BatchView<'_>, indices: &'v [u16]) -> impl Iterator<Item = (usize, &'v TensorDesc)> {
    let present = |(idx, &tensor_idx)| Some((idx, view.operand(tensor_idx)?));
    indices.iter().enumerate().filter_map(present)
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
