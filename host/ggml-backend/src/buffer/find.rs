//! From a tensor to the memory that it lies in, and to what it is there.

use std::sync::Arc;

use super::{Memory, Weight};
use crate::abi::{Tensor, USAGE_WEIGHTS};
use crate::convert;
use crate::device::DeviceState;
use crate::error::BackendError;

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

/// Whether a tensor lies where the CPU reads and writes it, too.
pub(crate) fn is_host_tensor(tensor: &Tensor) -> bool {
    // SAFETY: as in `memory_of`.
    let buffer = unsafe { tensor.owner().buffer.as_ref() };
    buffer.is_some_and(|buffer| DeviceState::is_host_type(buffer.buffer_type))
}

/// Whether a tensor is a weight that the program has left to the CPU.
pub(crate) fn is_host_weight(tensor: &Tensor) -> bool {
    // SAFETY: as in `memory_of`.
    let buffer = unsafe { tensor.owner().buffer.as_ref() };
    is_host_tensor(tensor) && buffer.is_some_and(|buffer| buffer.usage == USAGE_WEIGHTS)
}

/// The weight that a tensor is, if it can be tiled.
pub(crate) fn weight_of(tensor: &Tensor) -> Option<Weight> {
    let shape = convert::shape(tensor, false).ok()?;
    Weight::new(shape.dtype, shape.ne).filter(|_| convert::can_tile(tensor))
}
