//! A stream: what ggml runs graphs on. Graphs and copies follow each other in the order of the calls; streams of one device
//! are one queue.

use std::ffi::{c_char, c_void};
use std::ptr;

use crate::abi::{Backend, BackendFns, Device, Event, Graph, STATUS_FAILED, STATUS_SUCCESS, Status, Tensor};
use crate::buffer::{self, Pieces, memory_of};
use crate::device::DeviceState;
use crate::error::BackendError;
use crate::{event, graph, guard};

/// Tells this kind of back end from others: fixed, of no meaning.
static GUID: [u8; 16] = *b"hexloom/ggml/001";

/// A new stream on a device, which ggml frees.
pub(crate) fn new(device: *mut Device) -> *mut Backend {
    Box::into_raw(Box::new(Backend {
        guid: ptr::from_ref(&GUID).cast_mut(),
        fns: BackendFns {
            name,
            free,
            set_tensor_async: Some(set_tensor),
            get_tensor_async: Some(get_tensor),
            set_tensor_2d_async: Some(set_tensor_2d),
            get_tensor_2d_async: Some(get_tensor_2d),
            cpy_tensor_async: Some(cpy_tensor),
            synchronize: Some(synchronize),
            graph_plan_create: None,
            graph_plan_free: None,
            graph_plan_update: None,
            graph_plan_compute: None,
            graph_compute,
            event_record: Some(event_record),
            event_wait: Some(event_wait),
            graph_optimize: Some(graph_optimize),
        },
        device,
        context: ptr::null_mut(),
    }))
}

/// The device of a stream, if it is one of ours.
///
/// # Safety
/// `backend` is null or a stream.
pub(crate) unsafe fn ours(backend: *mut Backend) -> Option<&'static DeviceState> {
    // SAFETY: the caller's.
    let stream = unsafe { backend.as_ref() }?;
    // SAFETY: what has our number was made by `new`.
    ptr::eq(stream.guid, &GUID).then(|| unsafe { device(backend) })
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
    // SAFETY: ggml frees what `new` made once; whoever reads results afterwards must find them.
    unsafe { synchronize(backend) };
    // SAFETY: `new` has turned the box into this address.
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

unsafe extern "C" fn graph_optimize(_: *mut Backend, graph: *mut Graph) {
    guard::entry("ordering a graph", || {
        // SAFETY: ggml passes a graph that is the back end's alone meanwhile.
        let graph = unsafe { graph.as_mut() }.ok_or(BackendError::Null("graph"))?;
        graph::optimize(graph);
        Ok(())
    });
}

unsafe extern "C" fn synchronize(backend: *mut Backend) {
    guard::entry("waiting for a stream", || {
        // SAFETY: ggml passes what `new` made.
        unsafe { device(backend) }.settle();
        Ok(())
    });
}

unsafe extern "C" fn set_tensor(
    backend: *mut Backend,
    tensor: *mut Tensor,
    data: *const c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: the caller's; one piece has no strides.
    unsafe { set_tensor_2d(backend, tensor, data, offset, size, 1, 0, 0) };
}

unsafe extern "C" fn get_tensor(
    backend: *mut Backend,
    tensor: *const Tensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: the caller's; one piece has no strides.
    unsafe { get_tensor_2d(backend, tensor, data, offset, size, 1, 0, 0) };
}

/// Copies in at once, behind everything that is on its way: the bytes are the caller's again on return.
unsafe extern "C" fn set_tensor_2d(
    _: *mut Backend,
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
        // SAFETY: ggml passes a tensor and data for all pieces.
        unsafe { buffer::set(tensor, data.cast(), &pieces) }
    });
}

/// Copies out when everything before has ended.
unsafe extern "C" fn get_tensor_2d(
    backend: *mut Backend,
    tensor: *const Tensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
    n: usize,
    tensor_stride: usize,
    data_stride: usize,
) {
    guard::entry("reading a tensor", || {
        // SAFETY: ggml passes what `new` made.
        let device = unsafe { device(backend) };
        let pieces = Pieces::new(offset, size, n, tensor_stride, data_stride);
        // SAFETY: ggml passes a tensor, and leaves room for all pieces alone until the stream is synchronised.
        unsafe { buffer::get_later(device, tensor, data.cast(), &pieces) }
    });
}

/// Copies between tensors of ours behind what both devices have on their way; false leaves it to ggml.
unsafe extern "C" fn cpy_tensor(from: *mut Backend, to: *mut Backend, src: *const Tensor, dst: *mut Tensor) -> bool {
    let done = guard::entry("copying a tensor", || {
        // SAFETY: ggml passes streams.
        let streams = unsafe { ours(from) }.zip(unsafe { ours(to) });
        // SAFETY: ggml passes tensors.
        let tensors = unsafe { src.as_ref() }.zip(unsafe { dst.as_ref() });
        let (Some(_), Some((src, dst))) = (streams, tensors) else {
            return Ok(false);
        };
        match (memory_of(src), memory_of(dst)) {
            (Ok(from), Ok(to)) => buffer::copy((&from, src), (&to, dst)),
            _ => Ok(false),
        }
    });
    done.unwrap_or(false)
}

unsafe extern "C" fn event_record(backend: *mut Backend, event: *mut Event) {
    guard::entry("recording an event", || {
        // SAFETY: ggml passes an event that a device of ours made.
        let event = unsafe { event::state(event) }?;
        // SAFETY: ggml passes what `new` made.
        event.record(unsafe { device(backend) });
        Ok(())
    });
}

/// The host waits, so that what this stream begins later comes behind what the event stands for; its own graphs go on.
unsafe extern "C" fn event_wait(_: *mut Backend, event: *mut Event) {
    guard::entry("waiting for an event", || {
        // SAFETY: as in `event_record`.
        unsafe { event::state(event) }?.wait();
        Ok(())
    });
}
