//! ggml's own functions, found in the library that `HEXLOOM_GGML` names, as far as the tests need them.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use ggml_hexloom::abi::{Device, Registry};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

const GGML_VAR: &str = "HEXLOOM_GGML";
const F32: c_int = 0;
const I32: c_int = 26;
/// Bytes for a few tensors and a graph.
const CONTEXT_BYTES: usize = 1 << 20;

type Ptr = *mut c_void;

#[repr(C)]
struct InitParams {
    mem_size: usize,
    mem_buffer: Ptr,
    no_alloc: bool,
}

/// Declares the functions that are looked up.
macro_rules! api {
    ($($name:ident($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, and our registry in them.
        pub(crate) struct Api {
            registry: *mut Registry,
            $($name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
            _library: Library,
        }

        impl Api {
            fn of(library: Library, registry: *mut Registry) -> Self {
                Self {
                    registry,
                    // SAFETY: the types are those of ggml's public headers; the library stays as long as the structure.
                    $($name: *unsafe { library.get(stringify!($name).as_bytes()) }.unwrap(),)*
                    _library: library,
                }
            }
        }
    };
}

api! {
    ggml_init(InitParams) -> Ptr;
    ggml_free(Ptr);
    ggml_new_tensor_2d(Ptr, c_int, i64, i64) -> Ptr;
    ggml_view_1d(Ptr, Ptr, i64, usize) -> Ptr;
    ggml_set_name(Ptr, *const c_char) -> Ptr;
    ggml_get_data(Ptr) -> Ptr;
    ggml_add(Ptr, Ptr, Ptr) -> Ptr;
    ggml_get_rows(Ptr, Ptr, Ptr) -> Ptr;
    ggml_new_graph(Ptr) -> Ptr;
    ggml_build_forward_expand(Ptr, Ptr);
    ggml_backend_reg_dev_get(*mut Registry, usize) -> *mut Device;
    ggml_backend_dev_memory(*mut Device, *mut usize, *mut usize);
    ggml_backend_dev_init(*mut Device, *const c_char) -> Ptr;
    ggml_backend_free(Ptr);
    ggml_backend_get_default_buffer_type(Ptr) -> Ptr;
    ggml_backend_alloc_ctx_tensors_from_buft(Ptr, Ptr) -> Ptr;
    ggml_backend_alloc_ctx_tensors_from_buft_size(Ptr, Ptr) -> usize;
    ggml_backend_buffer_free(Ptr);
    ggml_backend_buffer_is_multi_buffer(Ptr) -> bool;
    ggml_backend_tensor_get(Ptr, Ptr, usize, usize);
    ggml_backend_tensor_set_async(Ptr, Ptr, *const c_void, usize, usize);
    ggml_backend_tensor_get_async(Ptr, Ptr, Ptr, usize, usize);
    ggml_backend_tensor_set_2d_async(Ptr, Ptr, *const c_void, usize, usize, usize, usize, usize);
    ggml_backend_tensor_get_2d_async(Ptr, Ptr, Ptr, usize, usize, usize, usize, usize);
    ggml_backend_tensor_copy_async(Ptr, Ptr, Ptr, Ptr);
    ggml_backend_graph_compute_async(Ptr, Ptr) -> c_int;
    ggml_backend_synchronize(Ptr);
    ggml_backend_event_new(*mut Device) -> Ptr;
    ggml_backend_event_free(Ptr);
    ggml_backend_event_record(Ptr, Ptr);
    ggml_backend_event_synchronize(Ptr);
    ggml_backend_event_wait(Ptr, Ptr);
}

impl Api {
    /// ggml with our back end in it.
    pub(crate) fn load() -> Self {
        let path = std::env::var_os(GGML_VAR).expect("HEXLOOM_GGML names libggml-base.so");
        // SAFETY: ggml's library only fills tables when it is loaded.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.unwrap();
        let registry = ggml_hexloom::ggml_backend_init();
        assert!(!registry.is_null(), "the back end refuses this ggml");
        Self::of(library, registry)
    }

    fn device(&self, idx: usize) -> *mut Device {
        // SAFETY: the registry is ours.
        unsafe { (self.ggml_backend_reg_dev_get)(self.registry, idx) }
    }

    /// Free and total bytes of a device.
    pub(crate) fn memory(&self, idx: usize) -> (usize, usize) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both places are ours.
        unsafe { (self.ggml_backend_dev_memory)(self.device(idx), &raw mut free, &raw mut total) };
        (free, total)
    }

    /// A new event of a device.
    pub(crate) fn event(&self, idx: usize) -> Event<'_> {
        // SAFETY: the device is ours.
        let raw = unsafe { (self.ggml_backend_event_new)(self.device(idx)) };
        Event { api: self, raw }
    }
}

/// A tensor that lives as long as its context.
#[derive(Clone, Copy)]
pub(crate) struct Tensor<'a> {
    api: &'a Api,
    raw: Ptr,
}

impl Tensor<'_> {
    /// Where its bytes are.
    pub(crate) fn address(&self) -> Ptr {
        // SAFETY: the tensor is alive.
        unsafe { (self.api.ggml_get_data)(self.raw) }
    }
}

/// Tensors and a graph.
pub(crate) struct Context<'a> {
    api: &'a Api,
    raw: Ptr,
}

impl<'a> Context<'a> {
    pub(crate) fn new(api: &'a Api) -> Self {
        let params = InitParams {
            mem_size: CONTEXT_BYTES,
            mem_buffer: ptr::null_mut(),
            no_alloc: true,
        };
        // SAFETY: ggml takes memory of its own.
        let raw = unsafe { (api.ggml_init)(params) };
        Self { api, raw }
    }

    fn tensor(&self, raw: Ptr) -> Tensor<'a> {
        assert!(!raw.is_null());
        Tensor { api: self.api, raw }
    }

    pub(crate) fn f32(&self, [ne0, ne1]: [i64; 2]) -> Tensor<'a> {
        // SAFETY: the context is alive.
        self.tensor(unsafe { (self.api.ggml_new_tensor_2d)(self.raw, F32, ne0, ne1) })
    }

    pub(crate) fn i32(&self, n: i64) -> Tensor<'a> {
        // SAFETY: as in `f32`.
        self.tensor(unsafe { (self.api.ggml_new_tensor_2d)(self.raw, I32, n, 1) })
    }

    pub(crate) fn named(&self, name: &str, ne: [i64; 2]) -> Tensor<'a> {
        let tensor = self.f32(ne);
        let name = CString::new(name).unwrap();
        // SAFETY: ggml copies the name.
        unsafe { (self.api.ggml_set_name)(tensor.raw, name.as_ptr()) };
        tensor
    }

    pub(crate) fn view(&self, of: Tensor<'_>, n: i64) -> Tensor<'a> {
        // SAFETY: as in `f32`.
        self.tensor(unsafe { (self.api.ggml_view_1d)(self.raw, of.raw, n, 0) })
    }

    pub(crate) fn add(&self, a: Tensor<'_>, b: Tensor<'_>) -> Tensor<'a> {
        // SAFETY: as in `f32`.
        self.tensor(unsafe { (self.api.ggml_add)(self.raw, a.raw, b.raw) })
    }

    pub(crate) fn get_rows(&self, table: Tensor<'_>, rows: Tensor<'_>) -> Tensor<'a> {
        // SAFETY: as in `f32`.
        self.tensor(unsafe { (self.api.ggml_get_rows)(self.raw, table.raw, rows.raw) })
    }

    /// The graph that computes a tensor.
    pub(crate) fn graph(&self, of: Tensor<'_>) -> Ptr {
        // SAFETY: as in `f32`.
        let graph = unsafe { (self.api.ggml_new_graph)(self.raw) };
        // SAFETY: graph and tensor are of this context.
        unsafe { (self.api.ggml_build_forward_expand)(graph, of.raw) };
        graph
    }

    /// Places every tensor on a stream's device.
    pub(crate) fn alloc(&self, stream: &Stream<'a>) -> Buffer<'a> {
        // SAFETY: context and type are alive.
        let raw = unsafe { (self.api.ggml_backend_alloc_ctx_tensors_from_buft)(self.raw, stream.buffer_type()) };
        assert!(!raw.is_null());
        Buffer { api: self.api, raw }
    }

    /// Bytes that [`Context::alloc`] would take.
    pub(crate) fn bytes(&self, stream: &Stream<'a>) -> usize {
        // SAFETY: as in `alloc`.
        unsafe { (self.api.ggml_backend_alloc_ctx_tensors_from_buft_size)(self.raw, stream.buffer_type()) }
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: freed once.
        unsafe { (self.api.ggml_free)(self.raw) };
    }
}

/// One buffer or several.
pub(crate) struct Buffer<'a> {
    api: &'a Api,
    raw: Ptr,
}

impl Buffer<'_> {
    pub(crate) fn is_several(&self) -> bool {
        // SAFETY: the buffer is alive.
        unsafe { (self.api.ggml_backend_buffer_is_multi_buffer)(self.raw) }
    }

    pub(crate) fn free(self) {
        // SAFETY: freed once; nobody computes with it.
        unsafe { (self.api.ggml_backend_buffer_free)(self.raw) };
    }
}

/// A stream of a device.
pub(crate) struct Stream<'a> {
    api: &'a Api,
    raw: Ptr,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(api: &'a Api, device: usize) -> Self {
        // SAFETY: the device is ours.
        let raw = unsafe { (api.ggml_backend_dev_init)(api.device(device), ptr::null()) };
        assert!(!raw.is_null());
        Self { api, raw }
    }

    fn buffer_type(&self) -> Ptr {
        // SAFETY: the stream is alive.
        unsafe { (self.api.ggml_backend_get_default_buffer_type)(self.raw) }
    }

    pub(crate) fn compute(&self, graph: Ptr) -> c_int {
        // SAFETY: the graph's context is alive.
        unsafe { (self.api.ggml_backend_graph_compute_async)(self.raw, graph) }
    }

    pub(crate) fn set(&self, to: Tensor<'_>, data: &[f32]) {
        // SAFETY: the data is as long as said.
        unsafe {
            (self.api.ggml_backend_tensor_set_async)(self.raw, to.raw, data.as_ptr().cast(), 0, size_of_val(data));
        }
    }

    pub(crate) fn set_i32(&self, to: Tensor<'_>, data: &[i32]) {
        // SAFETY: the data is as long as said.
        unsafe {
            (self.api.ggml_backend_tensor_set_async)(self.raw, to.raw, data.as_ptr().cast(), 0, size_of_val(data));
        }
    }

    /// `width` elements into each of four rows of eight from element `start` on, from rows that are `stride` apart.
    pub(crate) fn set_2d(&self, to: Tensor<'_>, data: &[f32], start: usize, width: usize, stride: usize) {
        let [start, width, stride] = [start, width, stride].map(|n| 4 * n);
        // SAFETY: the data has four rows.
        unsafe {
            (self.api.ggml_backend_tensor_set_2d_async)(
                self.raw,
                to.raw,
                data.as_ptr().cast(),
                start,
                width,
                4,
                32,
                stride,
            );
        }
    }

    /// The way back.
    pub(crate) fn get_2d(&self, from: Tensor<'_>, data: &mut [f32], start: usize, width: usize, stride: usize) {
        let [start, width, stride] = [start, width, stride].map(|n| 4 * n);
        // SAFETY: the room is for four rows, and the caller synchronises before it is read.
        unsafe {
            (self.api.ggml_backend_tensor_get_2d_async)(
                self.raw,
                from.raw,
                data.as_mut_ptr().cast(),
                start,
                width,
                4,
                32,
                stride,
            );
        }
    }

    /// Copies out behind what is on its way; `data` is read after [`Stream::synchronize`].
    pub(crate) fn get_later(&self, from: Tensor<'_>, data: &mut [f32]) {
        let bytes = size_of_val(data);
        // SAFETY: the room is as long as said.
        unsafe { (self.api.ggml_backend_tensor_get_async)(self.raw, from.raw, data.as_mut_ptr().cast(), 0, bytes) };
    }

    pub(crate) fn get(&self, from: Tensor<'_>, data: &mut [f32]) {
        let bytes = size_of_val(data);
        // SAFETY: the room is as long as said.
        unsafe { (self.api.ggml_backend_tensor_get)(from.raw, data.as_mut_ptr().cast(), 0, bytes) };
    }

    pub(crate) fn copy(&self, from: Tensor<'_>, to: &Stream<'_>, into: Tensor<'_>) {
        // SAFETY: both tensors have places.
        unsafe { (self.api.ggml_backend_tensor_copy_async)(self.raw, to.raw, from.raw, into.raw) };
    }

    pub(crate) fn synchronize(&self) {
        // SAFETY: the stream is alive.
        unsafe { (self.api.ggml_backend_synchronize)(self.raw) };
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // SAFETY: freed once.
        unsafe { (self.api.ggml_backend_free)(self.raw) };
    }
}

/// An event.
pub(crate) struct Event<'a> {
    api: &'a Api,
    raw: Ptr,
}

impl Event<'_> {
    pub(crate) fn record(&self, stream: &Stream<'_>) {
        // SAFETY: both are alive.
        unsafe { (self.api.ggml_backend_event_record)(self.raw, stream.raw) };
    }

    pub(crate) fn wait(&self, stream: &Stream<'_>) {
        // SAFETY: both are alive.
        unsafe { (self.api.ggml_backend_event_wait)(stream.raw, self.raw) };
    }

    pub(crate) fn synchronize(&self) {
        // SAFETY: it is alive.
        unsafe { (self.api.ggml_backend_event_synchronize)(self.raw) };
    }

    pub(crate) fn free(self) {
        // SAFETY: freed once.
        unsafe { (self.api.ggml_backend_event_free)(self.raw) };
    }
}
