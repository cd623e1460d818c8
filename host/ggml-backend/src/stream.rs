//! A stream: what ggml runs graphs on. Every call ends when its work is done.

use std::ffi::c_char;
use std::ptr;

use crate::abi::{Backend, BackendFns, Device, Graph, STATUS_FAILED, STATUS_SUCCESS, Status};
use crate::device::DeviceState;
use crate::error::BackendError;
use crate::{graph, guard};

/// Tells this kind of back end from others: fixed, of no meaning.
static GUID: [u8; 16] = *b"hexloom/ggml/001";

/// A new stream on a device, which ggml frees.
pub(crate) fn new(device: *mut Device) -> *mut Backend {
    Box::into_raw(Box::new(Backend {
        guid: ptr::from_ref(&GUID).cast_mut(),
        fns: BackendFns {
            name,
            free,
            set_tensor_async: None,
            get_tensor_async: None,
            set_tensor_2d_async: None,
            get_tensor_2d_async: None,
            cpy_tensor_async: None,
            synchronize: None,
            graph_plan_create: None,
            graph_plan_free: None,
            graph_plan_update: None,
            graph_plan_compute: None,
            graph_compute,
            event_record: None,
            event_wait: None,
            graph_optimize: None,
        },
        device,
        context: ptr::null_mut(),
    }))
}

/// The device of a stream of ours.
///
/// # Safety
/// `new` has made it.
unsafe fn device(backend: *mut Backend) -> &'static DeviceState {
    // SAFETY: the caller's.
    let device = unsafe { (*backend).device };
    // SAFETY: `new` got it from the device.
    unsafe { DeviceState::of(device) }
}

unsafe extern "C" fn name(backend: *mut Backend) -> *const c_char {
    // SAFETY: ggml passes what `new` made.
    unsafe { device(backend) }.name.as_ptr()
}

unsafe extern "C" fn free(backend: *mut Backend) {
    // SAFETY: `new` has turned the box into this address, and ggml frees it once.
    drop(unsafe { Box::from_raw(backend) });
}

unsafe extern "C" fn graph_compute(backend: *mut Backend, graph: *mut Graph) -> Status {
    let done = guard::entry("computing a graph", || {
        // SAFETY: ggml passes what `new` made.
        let device = unsafe { device(backend) };
        // SAFETY: ggml passes a graph that nobody changes meanwhile.
        let graph = unsafe { graph.as_ref() }.ok_or(BackendError::Null("graph"))?;
        graph::compute(device, graph)
    });
    if done.is_some() { STATUS_SUCCESS } else { STATUS_FAILED }
}
