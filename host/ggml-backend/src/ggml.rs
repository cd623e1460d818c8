//! The few functions of ggml that the back end calls, found in the running program, and what they tell about it.
//!
//! Nothing of ggml is linked: the program that loads the back end has it already. Numbers of ops and types differ between
//! releases that share one API version, so their names are compared before anything is believed.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::os::unix::Library;

use crate::abi::{Buffer, BufferFns, BufferType, Op, STATUS_SUCCESS, Status, Tensor};
use crate::convert::{GLU_OPS, TYPES, UNARY_OPS};
use crate::error::BackendError;

/// Bytes of what ggml keeps in front of each tensor.
const OBJECT_BYTES: usize = 32;

type LogCallback = unsafe extern "C" fn(c_int, *const c_char, *mut c_void);
type NameOf = unsafe extern "C" fn(c_int) -> *const c_char;

/// ggml's functions.
pub(crate) struct Ggml {
    buffer_init: unsafe extern "C" fn(*mut BufferType, BufferFns, *mut c_void, usize) -> *mut Buffer,
    log_get: unsafe extern "C" fn(*mut Option<LogCallback>, *mut *mut c_void),
    tensor_overhead: unsafe extern "C" fn() -> usize,
    n_bytes: unsafe extern "C" fn(*const Tensor) -> usize,
    buffer_free: unsafe extern "C" fn(*mut Buffer),
    multi_buffer: unsafe extern "C" fn(*mut *mut Buffer, usize) -> *mut Buffer,
    tensor_alloc: unsafe extern "C" fn(*mut Buffer, *mut Tensor, *mut c_void) -> Status,
    view_init: unsafe extern "C" fn(*mut Tensor) -> Status,
    op_name: NameOf,
    type_name: NameOf,
    unary_name: NameOf,
    glu_name: NameOf,
}

/// Why this program's ggml cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Mismatch {
    #[error("no ggml was found in this program")]
    NoGgml,
    #[error(
        "this program's ggml has no `{0}`; hexloom speaks back-end API version 3, which came with ggml 0.2x: \
         use a program built on that"
    )]
    NoFunction(&'static str),
    #[error("this program's ggml has tensors of {found} bytes, hexloom knows {known}: it was built with other limits")]
    TensorBytes { found: usize, known: usize },
    #[error("in this program's ggml, {kind} {number} is \"{found}\", hexloom knows it as \"{known}\": another release")]
    Number {
        kind: &'static str,
        number: u32,
        found: String,
        known: &'static str,
    },
}

/// ggml's functions, if it can be served.
pub(crate) fn get() -> Option<&'static Ggml> {
    check().ok()
}

/// Looks for ggml once and checks that it is the one that hexloom knows.
pub(crate) fn check() -> Result<&'static Ggml, &'static Mismatch> {
    static GGML: OnceLock<Result<Ggml, Mismatch>> = OnceLock::new();
    let found = GGML.get_or_init(|| {
        let ggml = Ggml::find()?;
        ggml.compare()?;
        Ok(ggml)
    });
    found.as_ref()
}

/// Makes a buffer, which ggml owns.
pub(crate) fn new_buffer(
    buffer_type: *mut BufferType,
    fns: BufferFns,
    context: *mut c_void,
    bytes: usize,
) -> *mut Buffer {
    match get() {
        // SAFETY: the function has the type that its header declares; the arguments are ours.
        Some(ggml) => unsafe { (ggml.buffer_init)(buffer_type, fns, context, bytes) },
        None => std::ptr::null_mut(),
    }
}

/// Bytes of a tensor of any type, from its first to its last element.
pub(crate) fn bytes_of(tensor: &Tensor) -> usize {
    // SAFETY: it reads type, dimensions and strides.
    get().map_or(0, |ggml| unsafe { (ggml.n_bytes)(tensor) })
}

/// Gives a buffer of ours back.
pub(crate) fn free_buffer(buffer: *mut Buffer) {
    if let Some(ggml) = get() {
        // SAFETY: `new_buffer` has made it, and nobody has got it.
        unsafe { (ggml.buffer_free)(buffer) };
    }
}

/// One buffer that stands for all.
pub(crate) fn as_one(mut buffers: Vec<*mut Buffer>) -> *mut Buffer {
    match (&mut buffers[..], get()) {
        ([one], _) => *one,
        // SAFETY: it takes over the buffers, not the list.
        (all, Some(ggml)) => unsafe { (ggml.multi_buffer)(all.as_mut_ptr(), all.len()) },
        (_, None) => std::ptr::null_mut(),
    }
}

/// Places a tensor in a buffer of ours.
pub(crate) fn place(buffer: *mut Buffer, tensor: *mut Tensor, offset: u64) -> Result<(), BackendError> {
    let ggml = get().ok_or(BackendError::Null("ggml"))?;
    // SAFETY: `new_buffer` has made it.
    let base = unsafe { &*buffer }.fns.base;
    // SAFETY: the function of that very buffer.
    let base = unsafe { base(buffer) };
    let address = base.wrapping_byte_add(usize::try_from(offset).unwrap_or(usize::MAX));
    // SAFETY: the plan has found room there for a tensor that has no place yet, which is what ggml asks for.
    placed(tensor, unsafe { (ggml.tensor_alloc)(buffer, tensor, address) })
}

/// Places a view in the buffer of what it looks into.
pub(crate) fn place_view(tensor: *mut Tensor) -> Result<(), BackendError> {
    let ggml = get().ok_or(BackendError::Null("ggml"))?;
    // SAFETY: a view of a tensor that has a place.
    placed(tensor, unsafe { (ggml.view_init)(tensor) })
}

fn placed(tensor: *const Tensor, status: Status) -> Result<(), BackendError> {
    if status == STATUS_SUCCESS {
        return Ok(());
    }
    // SAFETY: the caller has a tensor there.
    let name = unsafe { tensor.as_ref() }.map(Tensor::name).unwrap_or_default();
    let what = "has no place in its buffer".to_owned();
    Err(BackendError::Tensor { name, what })
}

/// One line for the program's log.
pub(crate) fn log(level: c_int, line: &CStr) {
    let Some(ggml) = get() else { return };
    let mut callback = None;
    let mut user_data = std::ptr::null_mut();
    // SAFETY: both places are ours.
    unsafe { (ggml.log_get)(&raw mut callback, &raw mut user_data) };
    if let Some(callback) = callback {
        // SAFETY: callback and data belong together, as ggml gave them; the line ends with a zero.
        unsafe { callback(level, line.as_ptr(), user_data) };
    }
}

impl Ggml {
    fn find() -> Result<Self, Mismatch> {
        let library = library().ok_or(Mismatch::NoGgml)?;
        // The two functions that version 3 of the interface added, so that an older one is noticed.
        let _: *const c_void = symbol(&library, "ggml_backend_buft_alloc_buffer_n")?;
        Ok(Self {
            buffer_init: symbol(&library, "ggml_backend_buffer_init")?,
            log_get: symbol(&library, "ggml_log_get")?,
            tensor_overhead: symbol(&library, "ggml_tensor_overhead")?,
            n_bytes: symbol(&library, "ggml_nbytes")?,
            buffer_free: symbol(&library, "ggml_backend_buffer_free")?,
            multi_buffer: symbol(&library, "ggml_backend_multi_buffer_alloc_buffer")?,
            tensor_alloc: symbol(&library, "ggml_backend_tensor_alloc")?,
            view_init: symbol(&library, "ggml_backend_view_init")?,
            op_name: symbol(&library, "ggml_op_name")?,
            type_name: symbol(&library, "ggml_type_name")?,
            unary_name: symbol(&library, "ggml_unary_op_name")?,
            glu_name: symbol(&library, "ggml_glu_op_name")?,
        })
    }

    fn compare(&self) -> Result<(), Mismatch> {
        // SAFETY: it takes nothing and reads nothing of ours.
        let found = unsafe { (self.tensor_overhead)() };
        let known = size_of::<Tensor>() + OBJECT_BYTES;
        if found != known {
            return Err(Mismatch::TensorBytes { found, known });
        }
        let ops = Op::ALL.iter().map(|&op| (op as u32, op.name()));
        let types = TYPES.iter().map(|&(dtype, name)| (dtype.number(), name));
        let unary = UNARY_OPS.iter().map(|&(number, name, _)| (number, name));
        let glu = GLU_OPS.iter().map(|&(number, name, _)| (number, name));
        compare("op", self.op_name, ops)?;
        compare("type", self.type_name, types)?;
        compare("unary op", self.unary_name, unary)?;
        compare("gated op", self.glu_name, glu)
    }
}

fn compare(
    kind: &'static str,
    name_of: NameOf,
    known: impl Iterator<Item = (u32, &'static str)>,
) -> Result<(), Mismatch> {
    for (number, known) in known {
        // SAFETY: the number is one of ggml's, far below its count, or a table look-up that ggml checks.
        let name = unsafe { name_of(number as c_int) };
        let found = if name.is_null() {
            String::new()
        } else {
            // SAFETY: ggml's names are zero-terminated and static.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        if found != known {
            return Err(Mismatch::Number {
                kind,
                number,
                found,
                known,
            });
        }
    }
    Ok(())
}

/// The program itself, or the library that it loaded out of everybody's sight.
fn library() -> Option<Library> {
    let this = Library::this();
    if symbol::<*const c_void>(&this, "ggml_backend_buffer_init").is_ok() {
        return Some(this);
    }
    /// `RTLD_LAZY | RTLD_NOLOAD`: only what is there already.
    const LOADED: c_int = 0x1 | 0x4;
    ["libggml-base.so.0", "libggml-base.so"].iter().find_map(|name| {
        // SAFETY: a library that is loaded already runs no code when it is opened again.
        unsafe { Library::open(Some(name), LOADED) }.ok()
    })
}

fn symbol<T: Copy>(library: &Library, name: &'static str) -> Result<T, Mismatch> {
    // SAFETY: the type is the one that ggml's public headers declare for the name; ggml stays loaded as long as its back
    // ends, so the address outlives `library`.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found.map(|symbol| *symbol).map_err(|_| Mismatch::NoFunction(name))
}
