//! The tables of functions of buffer types: a device's own memory, and memory that the CPU computes in and it reads.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use super::{ALIGNMENT, Memory, alloc, table};
use crate::abi::{self, BufferType, BufferTypeFns, Tensor};
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

/// The functions of the type for the CPU's own tensors: memory that a DSP may read, which nobody turns into tiles.
pub(crate) fn host_type_fns() -> BufferTypeFns {
    BufferTypeFns {
        name: host_name,
        alloc_buffer_n: None,
        alloc_size: host_alloc_size,
        alloc_size_n: None,
        is_host: is_host_memory,
        ..type_fns()
    }
}

unsafe extern "C" fn name(buffer_type: *mut BufferType) -> *const c_char {
    // SAFETY: ggml passes what `DeviceState` made.
    unsafe { device(buffer_type) }.name.as_ptr()
}

unsafe extern "C" fn host_name(buffer_type: *mut BufferType) -> *const c_char {
    // SAFETY: as in `name`.
    unsafe { device(buffer_type) }.host_name.as_ptr()
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
    let host = device.host_type() == buffer_type;
    let memory = Memory::new(device, bytes, host)?;
    let context = Arc::into_raw(memory).cast_mut().cast::<c_void>();
    let buffer = ggml::new_buffer(buffer_type, table::fns(), context, bytes);
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

unsafe extern "C" fn host_alloc_size(_: *mut BufferType, tensor: *const Tensor) -> usize {
    // SAFETY: ggml passes a tensor.
    unsafe { tensor.as_ref() }.map_or(usize::MAX, ggml::bytes_of)
}

/// Bytes of a tensor in whichever of its layouts is larger.
pub(crate) fn bytes(tensor: &Tensor) -> u64 {
    let tiles = convert::tile_bytes(tensor).unwrap_or(0);
    tiles.max(ggml::bytes_of(tensor) as u64)
}

unsafe extern "C" fn is_host(_: *mut BufferType) -> bool {
    false
}

unsafe extern "C" fn is_host_memory(_: *mut BufferType) -> bool {
    true
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
