//! Copies into tensors, out of them and between them, in one piece or in many at a distance.

use std::slice;

use super::{Memory, memory_of};
use crate::abi::Tensor;
use crate::device::DeviceState;
use crate::error::BackendError;
use crate::ggml;
use crate::graph::Read;

/// Bytes that are held at a time between two tensors.
const PIECE: usize = 1 << 20;

/// `n` pieces of `size` bytes, at distances in the tensor and in the caller's memory.
pub(crate) struct Pieces {
    offset: usize,
    size: usize,
    n: usize,
    tensor_stride: usize,
    data_stride: usize,
}

impl Pieces {
    pub(crate) fn new(offset: usize, size: usize, n: usize, tensor_stride: usize, data_stride: usize) -> Self {
        Self {
            offset,
            size,
            n,
            tensor_stride,
            data_stride,
        }
    }

    /// Offsets in the tensor and in the caller's memory.
    fn offsets(&self) -> impl Iterator<Item = (u64, usize)> {
        let n = if self.size == 0 { 0 } else { self.n };
        (0..n).map(|idx| {
            let at = self.offset.saturating_add(idx.saturating_mul(self.tensor_stride));
            (at as u64, idx.wrapping_mul(self.data_stride))
        })
    }
}

/// Copies into a tensor, behind everything that its device has on its way.
///
/// # Safety
/// `tensor` is null or a tensor; `data` has `pieces`.
pub(crate) unsafe fn set(tensor: *const Tensor, data: *const u8, pieces: &Pieces) -> Result<(), BackendError> {
    // SAFETY: the caller's.
    let (memory, start) = place(unsafe { tensor.as_ref() })?;
    memory.device.settle();
    for (at, from) in pieces.offsets() {
        // SAFETY: the caller's.
        let piece = unsafe { slice::from_raw_parts(data.wrapping_byte_add(from), pieces.size) };
        memory.write_settled(start.saturating_add(at), piece)?;
    }
    Ok(())
}

/// Copies out of a tensor, behind everything that its device has on its way.
///
/// # Safety
/// `tensor` is null or a tensor; `data` has room for `pieces` that nobody else uses.
pub(crate) unsafe fn get(tensor: *const Tensor, data: *mut u8, pieces: &Pieces) -> Result<(), BackendError> {
    // SAFETY: the caller's.
    let (memory, start) = place(unsafe { tensor.as_ref() })?;
    for (at, to) in pieces.offsets() {
        // SAFETY: the caller's.
        let piece = unsafe { slice::from_raw_parts_mut(data.wrapping_byte_add(to), pieces.size) };
        memory.read(start.saturating_add(at), piece)?;
    }
    Ok(())
}

/// The same, made when `device` has done what is on its way.
///
/// # Safety
/// `tensor` is null or a tensor; `data` has room for `pieces` that nobody else uses until the device was waited for.
pub(crate) unsafe fn get_later(
    device: &DeviceState,
    tensor: *const Tensor,
    data: *mut u8,
    pieces: &Pieces,
) -> Result<(), BackendError> {
    // SAFETY: the caller's.
    let (memory, start) = place(unsafe { tensor.as_ref() })?;
    if !std::ptr::eq(memory.device, device) {
        // SAFETY: the caller's; whoever waits for the stream does not wait for that device.
        return unsafe { get(tensor, data, pieces) };
    }
    let mut graphs = device.graphs();
    for (at, to) in pieces.offsets() {
        let offset = start.saturating_add(at);
        // SAFETY: the caller's.
        let read = unsafe { Read::new(memory.clone(), offset, data.wrapping_byte_add(to), pieces.size) };
        graphs.read_later(read)?;
    }
    Ok(())
}

/// Copies one tensor over another, behind everything that both devices have on their way. False if they are not laid out
/// alike.
pub(crate) fn copy((from, src): (&Memory, &Tensor), (to, dst): (&Memory, &Tensor)) -> Result<bool, BackendError> {
    let alike = (src.dtype, src.ne, src.nb) == (dst.dtype, dst.ne, dst.nb);
    let bytes = ggml::bytes_of(src);
    if !alike {
        return Ok(false);
    }
    let (start, end) = (from.offset(src)?, to.offset(dst)?);
    let mut piece = vec![0; bytes.min(PIECE)];
    for at in (0..bytes).step_by(PIECE) {
        let piece = &mut piece[..PIECE.min(bytes - at)];
        from.read(start + at as u64, piece)?;
        to.write(end + at as u64, piece)?;
    }
    Ok(true)
}

/// The memory of a tensor and where in it the tensor starts.
fn place(tensor: Option<&Tensor>) -> Result<(std::sync::Arc<Memory>, u64), BackendError> {
    let tensor = tensor.ok_or(BackendError::Null("tensor"))?;
    let memory = memory_of(tensor)?;
    let start = memory.offset(tensor)?;
    Ok((memory, start))
}
