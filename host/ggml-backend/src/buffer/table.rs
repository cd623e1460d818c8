//! The table of functions of buffers, each a few lines around [`Memory`].

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::copy::{self, Pieces, get, set};
use super::types::bytes;
use super::{Memory, memory_of};
use crate::abi::{self, BufferFns, STATUS_FAILED, STATUS_SUCCESS, Status, Tensor};
use crate::error::BackendError;
use crate::guard;

/// The functions of a buffer.
pub(super) fn fns() -> BufferFns {
    BufferFns {
        free,
        base,
        init_tensor,
        memset_tensor,
        set_tensor,
        get_tensor,
        set_tensor_2d,
        get_tensor_2d,
        cpy_tensor,
        clear,
        reset: None,
    }
}

/// The memory behind a buffer of ours.
///
/// # Safety
/// `buffer` was made by `alloc_buffer` and is not freed.
unsafe fn memory<'a>(buffer: *const abi::Buffer) -> Result<&'a Memory, BackendError> {
    // SAFETY: the caller's.
    let buffer = unsafe { buffer.as_ref() }.ok_or(BackendError::Null("buffer"))?;
    // SAFETY: the context of our buffers is an `Arc`'s address.
    unsafe { buffer.context.cast::<Memory>().as_ref() }.ok_or(BackendError::Null("buffer context"))
}

unsafe extern "C" fn free(buffer: *mut abi::Buffer) {
    guard::entry("freeing a buffer", || {
        // SAFETY: ggml frees a buffer once.
        let context = unsafe { (*buffer).context }.cast::<Memory>();
        // SAFETY: `alloc_buffer` has turned the `Arc` into this address.
        let memory = unsafe { Arc::from_raw(context) };
        memory.device.settle();
        memory.device.forget_graphs_with(&memory.buffer);
        Ok(())
    });
}

unsafe extern "C" fn base(buffer: *mut abi::Buffer) -> *mut c_void {
    let base = guard::entry("asking for an address", || {
        // SAFETY: ggml passes a buffer of ours.
        let memory = unsafe { memory(buffer) }?;
        Ok(memory.buffer.as_ptr())
    });
    base.unwrap_or(ptr::null_mut()).cast()
}

unsafe extern "C" fn init_tensor(buffer: *mut abi::Buffer, tensor: *mut Tensor) -> Status {
    let done = guard::entry("placing a tensor", || {
        // SAFETY: ggml passes a buffer of ours and a tensor in it.
        let (memory, start) = unsafe { place(buffer, tensor, 0) }?;
        // SAFETY: `place` has found it not null.
        let tensor = unsafe { &*tensor };
        if tensor.view_src.is_null() {
            memory.device.settle();
            memory.forget(start, bytes(tensor));
        }
        Ok(())
    });
    if done.is_some() { STATUS_SUCCESS } else { STATUS_FAILED }
}

unsafe extern "C" fn memset_tensor(
    buffer: *mut abi::Buffer,
    tensor: *mut Tensor,
    value: u8,
    offset: usize,
    size: usize,
) {
    guard::entry("filling a tensor", || {
        // SAFETY: as in `init_tensor`.
        let (memory, start) = unsafe { place(buffer, tensor, offset) }?;
        memory.fill(start, size as u64, value)
    });
}

unsafe extern "C" fn set_tensor(
    buffer: *mut abi::Buffer,
    tensor: *mut Tensor,
    data: *const c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: as in `init_tensor`; `data` has `size` bytes.
    unsafe { set_tensor_2d(buffer, tensor, data, offset, size, 1, 0, 0) };
}

unsafe extern "C" fn get_tensor(
    buffer: *mut abi::Buffer,
    tensor: *const Tensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: as in `set_tensor`.
    unsafe { get_tensor_2d(buffer, tensor, data, offset, size, 1, 0, 0) };
}

unsafe extern "C" fn set_tensor_2d(
    _: *mut abi::Buffer,
    tensor: *mut Tensor,
    data: *const c_void,
    offset: usize,
    size: usize,
    n: usize,
    tensor_stride: usize,
    data_stride: usize,
) {
    guard::entry("writing a tensor", || {
        let pieces = Pieces::new(offset, size, n, tensor_stride, data_stride);
        // SAFETY: ggml passes a tensor of the buffer, and data for all pieces.
        unsafe { set(tensor, data.cast(), &pieces) }
    });
}

unsafe extern "C" fn get_tensor_2d(
    _: *mut abi::Buffer,
    tensor: *const Tensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
    n: usize,
    tensor_stride: usize,
    data_stride: usize,
) {
    guard::entry("reading a tensor", || {
        let pieces = Pieces::new(offset, size, n, tensor_stride, data_stride);
        // SAFETY: ggml passes a tensor of the buffer, and room for all pieces.
        unsafe { get(tensor, data.cast(), &pieces) }
    });
}

/// From any buffer of ours; what lies elsewhere, ggml copies through the host.
unsafe extern "C" fn cpy_tensor(_: *mut abi::Buffer, src: *const Tensor, dst: *mut Tensor) -> bool {
    let done = guard::entry("copying a tensor", || {
        // SAFETY: ggml passes tensors.
        let tensors = unsafe { src.as_ref() }.zip(unsafe { dst.as_ref() });
        let (src, dst) = tensors.ok_or(BackendError::Null("tensor"))?;
        match (memory_of(src), memory_of(dst)) {
            (Ok(from), Ok(to)) => copy::copy((&from, src), (&to, dst)),
            _ => Ok(false),
        }
    });
    done.unwrap_or(false)
}

unsafe extern "C" fn clear(buffer: *mut abi::Buffer, value: u8) {
    guard::entry("clearing a buffer", || {
        // SAFETY: as in `base`.
        let memory = unsafe { memory(buffer) }?;
        memory.device.settle();
        memory.forget(0, memory.buffer.bytes());
        memory.fill(0, memory.buffer.bytes(), value)
    });
}

/// The memory of a tensor and where in it a byte of the tensor is.
///
/// # Safety
/// `buffer` is one of ours, `tensor` a tensor.
unsafe fn place<'a>(
    buffer: *mut abi::Buffer,
    tensor: *const Tensor,
    offset: usize,
) -> Result<(&'a Memory, u64), BackendError> {
    // SAFETY: the caller's.
    let memory = unsafe { memory(buffer) }?;
    // SAFETY: the caller's.
    let tensor = unsafe { tensor.as_ref() }.ok_or(BackendError::Null("tensor"))?;
    Ok((memory, memory.offset(tensor)? + offset as u64))
}
