//! Many tensors at once: packed by layer into few buffers, as [`BufferPlan`] does for every session.

use std::ffi::c_int;
use std::ptr;

use hexloom::plan::buffers::{BufferPlan, TensorNeed};
use hexloom::session::TensorUse;

use super::types;
use crate::abi::{Buffer, BufferType, Tensor};
use crate::device::DeviceState;
use crate::error::BackendError;
use crate::{ggml, guard};

/// One buffer, or one that stands for several; null if there is nothing to place or no room.
pub(super) unsafe extern "C" fn alloc_buffer_n(
    buffer_type: *mut BufferType,
    tensors: *mut *mut Tensor,
    n: c_int,
) -> *mut Buffer {
    let made = guard::entry("allocating tensors", || {
        // SAFETY: ggml passes what `DeviceState` made.
        let device = unsafe { types::device(buffer_type) };
        // SAFETY: ggml passes `n` tensors that are the caller's alone.
        let needs = unsafe { Needs::new(tensors, n) };
        if needs.tensors.is_empty() {
            return Ok(ptr::null_mut());
        }
        let plan = needs.plan(device)?;
        let mut made = Made::default();
        for planned in &plan.buffers {
            let bytes = usize::try_from(planned.bytes).unwrap_or(usize::MAX);
            made.buffers.push(types::new_buffer(buffer_type, device, bytes)?);
        }
        for (&tensor, place) in needs.tensors.iter().zip(&plan.places) {
            if let Some(place) = place {
                made.placed.push(tensor);
                ggml::place(made.buffers[place.buffer], tensor, place.offset)?;
            }
        }
        // A view may lie in any of them, so all are there before.
        for &view in &plan.views {
            made.placed.push(needs.tensors[view]);
            ggml::place_view(needs.tensors[view])?;
        }
        made.placed.clear();
        Ok(ggml::as_one(std::mem::take(&mut made.buffers)))
    });
    made.unwrap_or(ptr::null_mut())
}

/// Bytes of all the buffers that they would get.
pub(super) unsafe extern "C" fn alloc_size_n(
    buffer_type: *mut BufferType,
    tensors: *mut *mut Tensor,
    n: c_int,
) -> usize {
    let bytes = guard::entry("sizing tensors", || {
        // SAFETY: ggml passes what `DeviceState` made.
        let device = unsafe { types::device(buffer_type) };
        // SAFETY: ggml passes `n` tensors.
        let plan = unsafe { Needs::new(tensors, n) }.plan(device)?;
        Ok(plan.buffers.iter().map(|planned| planned.bytes).sum())
    });
    usize::try_from(bytes.unwrap_or(u64::MAX)).unwrap_or(usize::MAX)
}

/// Tensors without a place, and what each needs.
struct Needs {
    tensors: Vec<*mut Tensor>,
    names: Vec<String>,
    bytes: Vec<(u64, bool)>,
}

impl Needs {
    /// # Safety
    /// `tensors` is null or the first of `n` addresses of tensors.
    unsafe fn new(tensors: *mut *mut Tensor, n: c_int) -> Self {
        let len = usize::try_from(n).unwrap_or(0);
        let all = match tensors.is_null() {
            true => &[],
            // SAFETY: the caller's.
            false => unsafe { std::slice::from_raw_parts(tensors, len) },
        };
        let mut needs = Self {
            tensors: Vec::new(),
            names: Vec::new(),
            bytes: Vec::new(),
        };
        for &address in all {
            // SAFETY: the caller's.
            let Some(tensor) = (unsafe { address.as_ref() }) else {
                continue;
            };
            if tensor.data.is_null() && tensor.buffer.is_null() {
                needs.tensors.push(address);
                needs.names.push(tensor.name());
                needs.bytes.push((types::bytes(tensor), !tensor.view_src.is_null()));
            }
        }
        needs
    }

    fn plan(&self, device: &DeviceState) -> Result<BufferPlan, BackendError> {
        let needs = self.names.iter().zip(&self.bytes);
        let needs: Vec<TensorNeed<'_>> = needs
            .map(|(name, &(bytes, view))| TensorNeed { name, bytes, view })
            .collect();
        let limits = device.session()?.buffer_limits(TensorUse::State);
        Ok(BufferPlan::new(&needs, &limits)?)
    }
}

/// Buffers, and tensors in them, that are as before unless they are handed on.
#[derive(Default)]
struct Made {
    buffers: Vec<*mut Buffer>,
    placed: Vec<*mut Tensor>,
}

impl Drop for Made {
    fn drop(&mut self) {
        for tensor in self.placed.drain(..) {
            // SAFETY: `Needs` has found a tensor there, the caller's alone.
            let tensor = unsafe { &mut *tensor };
            (tensor.buffer, tensor.data) = (ptr::null_mut(), ptr::null_mut());
        }
        self.buffers.drain(..).for_each(ggml::free_buffer);
    }
}
