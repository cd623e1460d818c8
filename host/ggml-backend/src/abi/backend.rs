//! The objects of a back end and their tables of functions.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use super::{Graph, Status, Tensor};

/// A function that hexloom never provides.
pub type Unused = Option<unsafe extern "C" fn()>;

/// `ggml_backend_reg`.
#[repr(C)]
pub struct Registry {
    /// [`super::API_VERSION`].
    pub api_version: c_int,
    /// Functions.
    pub fns: RegistryFns,
    /// Ours.
    pub context: *mut c_void,
}

/// Functions of a registry.
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct RegistryFns {
    pub name: unsafe extern "C" fn(*mut Registry) -> *const c_char,
    pub device_count: unsafe extern "C" fn(*mut Registry) -> usize,
    pub device: unsafe extern "C" fn(*mut Registry, usize) -> *mut Device,
    /// Further functions by name.
    pub proc_address: unsafe extern "C" fn(*mut Registry, *const c_char) -> *mut c_void,
}

/// `ggml_backend_device`.
#[repr(C)]
pub struct Device {
    /// Functions.
    pub fns: DeviceFns,
    /// The registry it is listed in.
    pub registry: *mut Registry,
    /// Ours.
    pub context: *mut c_void,
}

/// Functions of a device.
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct DeviceFns {
    pub name: unsafe extern "C" fn(*mut Device) -> *const c_char,
    pub description: unsafe extern "C" fn(*mut Device) -> *const c_char,
    /// Free and total bytes.
    pub memory: unsafe extern "C" fn(*mut Device, *mut usize, *mut usize),
    pub device_type: unsafe extern "C" fn(*mut Device) -> u32,
    pub props: unsafe extern "C" fn(*mut Device, *mut Props),
    pub init_backend: unsafe extern "C" fn(*mut Device, *const c_char) -> *mut Backend,
    pub buffer_type: unsafe extern "C" fn(*mut Device) -> *mut BufferType,
    pub host_buffer_type: Option<unsafe extern "C" fn(*mut Device) -> *mut BufferType>,
    pub buffer_from_host_ptr: Unused,
    pub supports_op: unsafe extern "C" fn(*mut Device, *const Tensor) -> bool,
    pub supports_buffer_type: unsafe extern "C" fn(*mut Device, *mut BufferType) -> bool,
    pub offload_op: Unused,
    pub event_new: Option<unsafe extern "C" fn(*mut Device) -> *mut Event>,
    pub event_free: Option<unsafe extern "C" fn(*mut Device, *mut Event)>,
    pub event_synchronize: Option<unsafe extern "C" fn(*mut Device, *mut Event)>,
}

/// `ggml_backend_dev_caps`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Caps {
    pub asynchronous: bool,
    pub host_buffer: bool,
    pub buffer_from_host_ptr: bool,
    pub events: bool,
    pub mmap_support: bool,
}

/// `ggml_backend_dev_props`.
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Props {
    pub name: *const c_char,
    pub description: *const c_char,
    pub memory_free: usize,
    pub memory_total: usize,
    pub device_type: u32,
    /// Bus address, null if unknown.
    pub device_id: *const c_char,
    pub caps: Caps,
}

/// `ggml_backend_buffer_type`.
#[repr(C)]
pub struct BufferType {
    /// Functions.
    pub fns: BufferTypeFns,
    /// The device whose memory it is.
    pub device: *mut Device,
    /// Ours.
    pub context: *mut c_void,
}

/// Functions of a buffer type.
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct BufferTypeFns {
    pub name: unsafe extern "C" fn(*mut BufferType) -> *const c_char,
    pub alloc_buffer: unsafe extern "C" fn(*mut BufferType, usize) -> *mut Buffer,
    /// Many tensors at once.
    pub alloc_buffer_n: Option<unsafe extern "C" fn(*mut BufferType, *mut *mut Tensor, c_int) -> *mut Buffer>,
    pub alignment: unsafe extern "C" fn(*mut BufferType) -> usize,
    pub max_size: unsafe extern "C" fn(*mut BufferType) -> usize,
    pub alloc_size: unsafe extern "C" fn(*mut BufferType, *const Tensor) -> usize,
    /// Bytes that all of them would take.
    pub alloc_size_n: Option<unsafe extern "C" fn(*mut BufferType, *mut *mut Tensor, c_int) -> usize>,
    pub is_host: unsafe extern "C" fn(*mut BufferType) -> bool,
}

/// `ggml_backend_buffer`: made by ggml's own function, which also frees it.
#[repr(C)]
pub struct Buffer {
    /// Functions.
    pub fns: BufferFns,
    /// Its type.
    pub buffer_type: *mut BufferType,
    /// Ours.
    pub context: *mut c_void,
    /// Bytes.
    pub size: usize,
    /// `USAGE_*`.
    pub usage: u32,
}

/// Functions of a buffer.
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct BufferFns {
    pub free: unsafe extern "C" fn(*mut Buffer),
    pub base: unsafe extern "C" fn(*mut Buffer) -> *mut c_void,
    pub init_tensor: unsafe extern "C" fn(*mut Buffer, *mut Tensor) -> Status,
    /// Value, offset, size.
    pub memset_tensor: unsafe extern "C" fn(*mut Buffer, *mut Tensor, u8, usize, usize),
    /// Data, offset, size.
    pub set_tensor: unsafe extern "C" fn(*mut Buffer, *mut Tensor, *const c_void, usize, usize),
    pub get_tensor: unsafe extern "C" fn(*mut Buffer, *const Tensor, *mut c_void, usize, usize),
    /// Data, offset, size of a piece, pieces, stride in the tensor, stride in the data.
    pub set_tensor_2d: unsafe extern "C" fn(*mut Buffer, *mut Tensor, *const c_void, usize, usize, usize, usize, usize),
    pub get_tensor_2d: unsafe extern "C" fn(*mut Buffer, *const Tensor, *mut c_void, usize, usize, usize, usize, usize),
    /// False = not taken, ggml copies through the host.
    pub cpy_tensor: unsafe extern "C" fn(*mut Buffer, *const Tensor, *mut Tensor) -> bool,
    pub clear: unsafe extern "C" fn(*mut Buffer, u8),
    pub reset: Unused,
}

/// `ggml_backend`: a stream of graphs on a device.
#[repr(C)]
pub struct Backend {
    /// Address of 16 bytes that tell one kind of back end from another.
    pub guid: *mut [u8; 16],
    /// Functions.
    pub fns: BackendFns,
    /// Its device.
    pub device: *mut Device,
    /// Ours.
    pub context: *mut c_void,
}

/// Functions of a stream.
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct BackendFns {
    pub name: unsafe extern "C" fn(*mut Backend) -> *const c_char,
    pub free: unsafe extern "C" fn(*mut Backend),
    pub set_tensor_async: Option<unsafe extern "C" fn(*mut Backend, *mut Tensor, *const c_void, usize, usize)>,
    pub get_tensor_async: Option<unsafe extern "C" fn(*mut Backend, *const Tensor, *mut c_void, usize, usize)>,
    pub set_tensor_2d_async:
        Option<unsafe extern "C" fn(*mut Backend, *mut Tensor, *const c_void, usize, usize, usize, usize, usize)>,
    pub get_tensor_2d_async:
        Option<unsafe extern "C" fn(*mut Backend, *const Tensor, *mut c_void, usize, usize, usize, usize, usize)>,
    pub cpy_tensor_async: Option<unsafe extern "C" fn(*mut Backend, *mut Backend, *const Tensor, *mut Tensor) -> bool>,
    pub synchronize: Option<unsafe extern "C" fn(*mut Backend)>,
    pub graph_plan_create: Unused,
    pub graph_plan_free: Unused,
    pub graph_plan_update: Unused,
    pub graph_plan_compute: Unused,
    pub graph_compute: unsafe extern "C" fn(*mut Backend, *mut Graph) -> Status,
    pub event_record: Option<unsafe extern "C" fn(*mut Backend, *mut Event)>,
    pub event_wait: Option<unsafe extern "C" fn(*mut Backend, *mut Event)>,
    pub graph_optimize: Option<unsafe extern "C" fn(*mut Backend, *mut Graph)>,
}

/// `ggml_backend_event`.
#[repr(C)]
pub struct Event {
    /// The device it was made by.
    pub device: *mut Device,
    /// Ours.
    pub context: *mut c_void,
}

const _: () = {
    assert!(offset_of!(Registry, fns) == 8);
    assert!(offset_of!(Registry, context) == 40);
    assert!(offset_of!(DeviceFns, supports_op) == 72);
    assert!(offset_of!(Device, registry) == 120);
    assert!(offset_of!(Device, context) == 128);
    assert!(size_of::<Props>() == 56);
    assert!(offset_of!(BufferTypeFns, is_host) == 56);
    assert!(offset_of!(BufferType, device) == 64);
    assert!(offset_of!(BufferFns, set_tensor_2d) == 48);
    assert!(offset_of!(Buffer, buffer_type) == 88);
    assert!(offset_of!(Buffer, usage) == 112);
    assert!(offset_of!(BackendFns, graph_compute) == 96);
    assert!(offset_of!(Backend, device) == 136);
};
