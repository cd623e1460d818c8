//! SET_ROWS stores a few rows of a large table: caches are kept for those alone.

use hexloom_abi::op::Shape;
use hexloom_abi::{DType, Opcode, TensorDesc};

use super::operands::{Operands, address_of, cut};
use crate::mapping::Bases;
use crate::tensor::Tensor;

/// The part of the table from the first to the last row that the indices name; `None` for other ops, and for indices
/// that name no row of the table, with which the op will fail. Sources must be fresh.
///
/// # Safety
/// As for [`Operands::resolve`].
pub(super) unsafe fn rows(operands: &Operands<'_>, bases: &Bases) -> Option<TensorDesc> {
    if operands.opcode != Opcode::SetRows {
        return None;
    }
    let (indices, table) = (operands.src(1).ok()?, operands.dst(0).ok()?);
    let address = address_of(indices, bases)?;
    let shape = Shape::try_from(indices).ok()?;
    // SAFETY: the caller vouches for view and places, as in `Operands::resolve`.
    let indices = unsafe { Tensor::new(address as usize as *mut u8, shape) };
    let [n0, n1, n2, _] = indices.ne();
    let (mut first, mut last) = (u32::MAX, 0);
    for index in 0..n1 * n2 {
        for i0 in 0..n0 {
            let index = [index % n1, index / n1, 0];
            let row = match indices.dtype() {
                DType::I64 => indices.element::<i64>(i0, index).get(0),
                _ => i64::from(indices.element::<i32>(i0, index).get(0)),
            };
            let row = u32::try_from(row).ok().filter(|&row| row < table.ne[1])?;
            (first, last) = (first.min(row), last.max(row));
        }
    }
    (first <= last).then(|| cut(table, 1, first, last - first + 1))
}
