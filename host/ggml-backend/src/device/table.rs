//! A device's table of functions, each a few lines around [`DeviceState`].

use std::ffi::c_char;
use std::ptr;

use super::DeviceState;
use crate::abi::{Backend, BufferType, Caps, DEVICE_TYPE_GPU, Device, DeviceFns, Props, Tensor};
use crate::error::BackendError;
use crate::{event, guard, stream};

/// The functions.
pub(super) fn fns() -> DeviceFns {
    DeviceFns {
        name,
        description,
        memory,
        device_type,
        props,
        init_backend,
        buffer_type,
        host_buffer_type: Some(host_buffer_type),
        buffer_from_host_ptr: None,
        supports_op,
        supports_buffer_type,
        offload_op: None,
        event_new: Some(event::new),
        event_free: Some(event::free),
        event_synchronize: Some(event::synchronize),
    }
}

unsafe extern "C" fn name(device: *mut Device) -> *const c_char {
    // SAFETY: ggml passes what the registry gave.
    unsafe { DeviceState::of(device) }.name.as_ptr()
}

unsafe extern "C" fn description(device: *mut Device) -> *const c_char {
    // SAFETY: as in `name`.
    unsafe { DeviceState::of(device) }.description().as_ptr()
}

unsafe extern "C" fn memory(device: *mut Device, free: *mut usize, total: *mut usize) {
    guard::entry("asking for memory", || {
        // SAFETY: as in `name`.
        let found = unsafe { DeviceState::of(device) }.memory();
        // SAFETY: ggml passes a place for the number.
        unsafe { free.write(found.0) };
        // SAFETY: as before.
        unsafe { total.write(found.1) };
        Ok(())
    });
}

unsafe extern "C" fn device_type(_: *mut Device) -> u32 {
    DEVICE_TYPE_GPU
}

unsafe extern "C" fn props(device: *mut Device, props: *mut Props) {
    guard::entry("asking for properties", || {
        // SAFETY: as in `name`.
        let state = unsafe { DeviceState::of(device) };
        let (memory_free, memory_total) = state.memory();
        let found = Props {
            name: state.name.as_ptr(),
            description: state.description().as_ptr(),
            memory_free,
            memory_total,
            device_type: DEVICE_TYPE_GPU,
            device_id: ptr::null(),
            caps: Caps {
                asynchronous: !state.is_alone(),
                events: !state.is_alone(),
                host_buffer: true,
                mmap_support: true,
                ..Caps::default()
            },
        };
        // SAFETY: ggml passes a place for them.
        unsafe { props.write(found) };
        Ok(())
    });
}

unsafe extern "C" fn init_backend(device: *mut Device, _: *const c_char) -> *mut Backend {
    let made = guard::entry("opening a device", || {
        // SAFETY: as in `name`.
        unsafe { DeviceState::of(device) }.session()?;
        Ok(stream::new(device))
    });
    made.unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn buffer_type(device: *mut Device) -> *mut BufferType {
    // SAFETY: as in `name`.
    unsafe { DeviceState::of(device) }.buffer_type()
}

unsafe extern "C" fn host_buffer_type(device: *mut Device) -> *mut BufferType {
    // SAFETY: as in `name`.
    unsafe { DeviceState::of(device) }.host_type()
}

unsafe extern "C" fn supports_op(device: *mut Device, tensor: *const Tensor) -> bool {
    let supported = guard::entry("asking for support", || {
        // SAFETY: as in `name`.
        let state = unsafe { DeviceState::of(device) };
        // SAFETY: ggml passes a node.
        let tensor = unsafe { tensor.as_ref() }.ok_or(BackendError::Null("node"))?;
        state.supports(tensor)
    });
    supported.unwrap_or(false)
}

unsafe extern "C" fn supports_buffer_type(device: *mut Device, buffer_type: *mut BufferType) -> bool {
    // SAFETY: as in `name`.
    let device = unsafe { DeviceState::of(device) };
    // The CPU waits for nobody before it writes; a device that is alone has nothing on its way then.
    let from_host = device.is_alone() && device.host_type() == buffer_type;
    device.buffer_type() == buffer_type || from_host
}
