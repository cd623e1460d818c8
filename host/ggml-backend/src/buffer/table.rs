//! The tables of functions of buffers and of their type, each a few lines around [`Memory`].

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use super::copy::{self, Pieces, get, set};
use super::{ALIGNMENT, Memory, Weight, alloc};
use crate::abi::{self, BufferFns, BufferType, BufferTypeFns, STATUS_FAILED, STATUS_SUCCESS, Status, Tensor};
use crate::convert;
use crate::device::DeviceState;
use crate::error::BackendError;
use crate::{ggml, guard};

/// The functions of a buffer type.
pub(crate) fn type_fns() -> BufferTypeFns {
    BufferTypeFns {
        name,
        alloc_buffer,
        alloc_buffer_n: Some(alloc::alloc_buffer_n),
        alignment,
        max_size,
        alloc_size,
        alloc_size_n: Some(alloc::alloc_size_n),
        is_host,
    }
}

/// The functions of a buffer.
pub(crate) fn fns() -> BufferFns {
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

unsafe extern "C" fn name(buffer_type: *mut BufferType) -> *const c_char {
    // SAFETY: ggml passes what `DeviceState` made.
    unsafe { device(buffer_type) }.name.as_ptr()
}

unsafe extern "C" fn alloc_buffer(buffer_type: *mut BufferType, bytes: usize) -> *mut abi::Buffer {
    let allocated = guard::entry("allocating a buffer", || {
        // SAFETY: as in `name`.
        let device = unsafe { device(buffer_type) };
        new_buffer(buffer_type, device, bytes)
    });
    allocated.unwrap_or(ptr::null_mut())
}

/// A buffer of so many bytes, which ggml owns.
pub(super) fn new_buffer(
    buffer_type: *mut BufferType,
    device: &'static DeviceState,
    bytes: usize,
) -> Result<*mut abi::Buffer, BackendError> {
    let memory = Memory::new(device, bytes)?;
    let context = Arc::into_raw(memory).cast_mut().cast::<c_void>();
    let buffer = ggml::new_buffer(buffer_type, fns(), context, bytes);
    if buffer.is_null() {
        // SAFETY: nobody else has got the address.
        drop(unsafe { Arc::from_raw(context.cast::<Memory>()) });
        return Err(BackendError::Null("buffer"));
    }
    Ok(buffer)
}

unsafe extern "C" fn alignment(_: *mut BufferType) -> usize {
    ALIGNMENT
}

unsafe extern "C" fn max_size(buffer_type: *mut BufferType) -> usize {
    let size = guard::entry("asking for the largest buffer", || {
        // SAFETY: as in `name`.
        let device = unsafe { device(buffer_type) };
        Ok(usize::try_from(device.session()?.options().buffer_bytes_max).unwrap_or(usize::MAX))
    });
    size.unwrap_or(0)
}

unsafe extern "C" fn alloc_size(_: *mut BufferType, tensor: *const Tensor) -> usize {
    let size = guard::entry("sizing a tensor", || {
        // SAFETY: ggml passes a tensor.
        let tensor = unsafe { tensor.as_ref() }.ok_or(BackendError::Null("tensor"))?;
        Ok(usize::try_from(bytes(tensor)).unwrap_or(usize::MAX))
    });
    size.unwrap_or(usize::MAX)
}

/// Bytes of a tensor in whichever of its layouts is larger.
pub(crate) fn bytes(tensor: &Tensor) -> u64 {
    let tiles = convert::tile_bytes(tensor).unwrap_or(0);
    tiles.max(ggml::bytes_of(tensor) as u64)
}

unsafe extern "C" fn is_host(_: *mut BufferType) -> bool {
    false
}

/// The device of a buffer type of ours.
///
/// # Safety
/// `buffer_type` is a device's.
pub(super) unsafe fn device(buffer_type: *mut BufferType) -> &'static DeviceState {
    // SAFETY: the caller's.
    let device = unsafe { (*buffer_type).device };
    // SAFETY: the type's device is ours.
    unsafe { DeviceState::of(device) }
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

/// The memory that a tensor lies in, if it is ours.
pub(crate) fn memory_of(tensor: &Tensor) -> Result<Arc<Memory>, BackendError> {
    let buffer = if tensor.buffer.is_null() {
        tensor.owner().buffer
    } else {
        tensor.buffer
    };
    let foreign = || BackendError::Tensor {
        name: tensor.name(),
        what: "is in no buffer of hexloom's".to_owned(),
    };
    // SAFETY: ggml keeps the buffers of a graph's tensors alive while the graph runs.
    let buffer = unsafe { buffer.as_ref() }.ok_or_else(foreign)?;
    if !DeviceState::owns_type(buffer.buffer_type) {
        return Err(foreign());
    }
    let context = buffer.context.cast::<Memory>().cast_const();
    // SAFETY: it is the address of an `Arc` of ours, as the type is ours, and the buffer holds one count.
    unsafe { Arc::increment_strong_count(context) };
    // SAFETY: the count that was just added.
    Ok(unsafe { Arc::from_raw(context) })
}

/// The weight that a tensor is, if it can be tiled.
pub(crate) fn weight_of(tensor: &Tensor) -> Option<Weight> {
    let shape = convert::shape(tensor, false).ok()?;
    Weight::new(shape.dtype, shape.ne).filter(|_| convert::can_tile(tensor))
}
