//! A device: one session, opened when it is first needed, and what it can do.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hexloom::session::TensorUse;
use hexloom::{Buffer, RunError, Session, SessionOptions, Transport};
use hexloom_emu::{EmuOptions, EmuTransport};
use hexloom_fastrpc::{FastRpcOptions, FastRpcTransport};
use hexloom_sim::{NullTransport, SimTransport};

use crate::abi::{Backend, BufferType, Caps, DEVICE_TYPE_GPU, Device, DeviceFns, Props, Registry, Tensor};
use crate::convert::{self, Node};
use crate::error::BackendError;
use crate::graph::{Graphs, KEPT};
use crate::{buffer, event, guard, registry, stream};

/// What a device runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The simulator in this process.
    Sim,
    /// The firmware image on an emulated Hexagon.
    Emu,
    /// The NPU of this phone or laptop.
    FastRpc,
    /// Answers at once without computing, for measuring the host.
    Null,
    /// Takes graphs and does not even look at them, for telling the back end's share from ggml's.
    Nothing,
}

/// A device as ggml and we see it. It lives as long as the process.
pub(crate) struct DeviceState {
    kind: Kind,
    pub(crate) name: CString,
    description: &'static CStr,
    session: Mutex<Option<Session>>,
    graphs: Mutex<Graphs>,
    alone: AtomicBool,
    /// Bytes of the buffers that ggml has.
    allocated: AtomicU64,
    raw: AtomicPtr<Device>,
    buffer_type: AtomicPtr<BufferType>,
}

impl Kind {
    pub(crate) fn parse(word: &str) -> Result<Self, BackendError> {
        match word {
            "sim" => Ok(Self::Sim),
            "emu" => Ok(Self::Emu),
            "fastrpc" => Ok(Self::FastRpc),
            "null" => Ok(Self::Null),
            "nothing" => Ok(Self::Nothing),
            _ => Err(BackendError::UnknownDevice(word.to_owned())),
        }
    }

    fn description(self) -> &'static CStr {
        match self {
            Self::Sim => c"Hexagon NPU, simulated",
            Self::Emu => c"Hexagon NPU, emulated",
            Self::FastRpc => c"Hexagon NPU",
            Self::Null => c"no NPU: answers without computing",
            Self::Nothing => c"no NPU: does nothing",
        }
    }

    fn transport(self) -> Result<Arc<dyn Transport>, BackendError> {
        Ok(match self {
            Self::Sim => Arc::new(SimTransport::default()),
            Self::Emu => Arc::new(EmuTransport::new(EmuOptions::find()?)),
            Self::FastRpc => Arc::new(FastRpcTransport::open(FastRpcOptions::default())?),
            Self::Null | Self::Nothing => Arc::new(NullTransport),
        })
    }

    /// Longest wait for a reply.
    fn deadline(self) -> Duration {
        match self {
            // A prompt takes a minute there, more on a busy machine.
            Self::Emu => Duration::from_secs(900),
            Self::Sim | Self::FastRpc | Self::Null | Self::Nothing => SessionOptions::default().deadline,
        }
    }
}

impl DeviceState {
    /// Makes device number `idx`.
    pub(crate) fn new(idx: usize, kind: Kind) -> &'static Self {
        let device: &'static Self = Box::leak(Box::new(Self {
            kind,
            name: CString::new(format!("HEX{idx}")).unwrap_or_default(),
            description: kind.description(),
            session: Mutex::new(None),
            graphs: Mutex::new(Graphs::default()),
            alone: AtomicBool::new(true),
            allocated: AtomicU64::new(0),
            raw: AtomicPtr::new(ptr::null_mut()),
            buffer_type: AtomicPtr::new(ptr::null_mut()),
        }));
        let raw = Box::into_raw(Box::new(Device {
            fns: fns(),
            registry: ptr::null_mut(),
            context: ptr::from_ref(device).cast_mut().cast(),
        }));
        let buffer_type = Box::into_raw(Box::new(BufferType {
            fns: buffer::type_fns(),
            device: raw,
            context: ptr::null_mut(),
        }));
        device.raw.store(raw, Ordering::Release);
        device.buffer_type.store(buffer_type, Ordering::Release);
        device
    }

    /// The device behind ggml's object.
    ///
    /// # Safety
    /// `raw` is what [`DeviceState::raw`] gave.
    pub(crate) unsafe fn of(raw: *mut Device) -> &'static Self {
        // SAFETY: the caller's; the object lives as long as the process.
        let context = unsafe { (*raw).context };
        // SAFETY: `new` has put a leaked box's address there.
        unsafe { &*context.cast::<Self>() }
    }

    /// ggml's object.
    pub(crate) fn raw(&self) -> *mut Device {
        self.raw.load(Ordering::Acquire)
    }

    /// ggml's object for its memory.
    pub(crate) fn buffer_type(&self) -> *mut BufferType {
        self.buffer_type.load(Ordering::Acquire)
    }

    /// Tells the object which registry it is listed in.
    pub(crate) fn attach(&self, registry: *mut Registry) {
        // SAFETY: the object lives as long as the process; ggml reads the field only after it got the object, from the
        // thread that lists devices.
        unsafe { (*self.raw()).registry = registry };
    }

    /// Whether a buffer type is one of ours.
    pub(crate) fn owns_type(buffer_type: *mut BufferType) -> bool {
        let mut devices = registry::devices().iter();
        devices.any(|device| device.buffer_type() == buffer_type)
    }

    /// The session, opened at the first call and opened again after it was lost.
    pub(crate) fn session(&self) -> Result<Session, BackendError> {
        let mut session = lock(&self.session);
        if let Some(session) = &*session {
            return Ok(session.clone());
        }
        let options = SessionOptions {
            n_slots: KEPT as u32 + 2,
            batch_ops: 512,
            batch_tensors: 2048,
            deadline: self.kind.deadline(),
            ..SessionOptions::default()
        };
        let opened = Session::open(self.kind.transport()?, options)?;
        *session = Some(opened.clone());
        Ok(opened)
    }

    /// Its graphs, ready or on their way.
    pub(crate) fn graphs(&self) -> MutexGuard<'_, Graphs> {
        lock(&self.graphs)
    }

    /// Waits for what is on its way; false if a graph has failed and nobody was told yet but by the log.
    pub(crate) fn settle(&self) -> bool {
        let mut graphs = self.graphs();
        let mark = graphs.mark();
        graphs.settle_to(self, mark);
        !graphs.has_failed()
    }

    /// Opens the session again if a run has ended it.
    pub(crate) fn reopen_after(&self, error: &RunError) -> Result<(), BackendError> {
        if error.is_lost() {
            log::warn!("the session is lost and is opened again");
            self.session()?.reopen()?;
        }
        Ok(())
    }

    /// Whether its graphs are not even looked at.
    pub(crate) fn does_nothing(&self) -> bool {
        self.kind == Kind::Nothing
    }

    /// Whether no other device is listed. Its graphs are waited for at once: nothing of ggml's could go on meanwhile, and
    /// whoever asked for a graph hears how it ended.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// Tells it that it is one of several.
    pub(crate) fn join(&self) {
        self.alone.store(false, Ordering::Relaxed);
    }

    /// Drops the graphs that use a buffer which is about to be freed.
    pub(crate) fn forget_graphs_with(&self, buffer: &Buffer) {
        self.graphs().forget_with(buffer);
    }

    /// Whether a node can be computed here; views and leaves always can.
    fn supports(&self, tensor: &Tensor) -> Result<bool, BackendError> {
        if tensor.is_view_only() {
            return Ok(true);
        }
        let session = self.session()?;
        if !has_room(&session, tensor) {
            return Ok(false);
        }
        let takes = |node: &Node| {
            let op = node.op(|idx, src| node.wants_tiles(idx) && convert::can_tile(src));
            op.is_ok_and(|op| session.supports(&op).is_ok())
        };
        Ok(Node::list(tensor).is_ok_and(|nodes| nodes.iter().all(takes)))
    }

    pub(crate) fn note_allocated(&self, bytes: u64) {
        self.allocated.fetch_add(bytes, Ordering::AcqRel);
    }

    pub(crate) fn note_freed(&self, bytes: u64) {
        self.allocated.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Bytes of the window that ggml's buffers leave, and all that tensors can have of it.
    fn memory(&self) -> (usize, usize) {
        let total = self.session().map_or(0, |session| session.window_bytes());
        let free = total.saturating_sub(self.allocated.load(Ordering::Acquire));
        let number = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        (number(free), number(total))
    }
}

/// Whether every tensor of an op can be mapped at once, and all together.
fn has_room(session: &Session, tensor: &Tensor) -> bool {
    let most = session.buffer_limits(TensorUse::State).mapping_bytes_max();
    let operands = (0..tensor.src.len()).filter_map(|idx| tensor.src(idx));
    let bytes = std::iter::once(tensor).chain(operands).map(buffer::bytes);
    let all = bytes.clone().fold(0, u64::saturating_add);
    bytes.max().is_some_and(|largest| largest < most) && all <= session.window_bytes()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fns() -> DeviceFns {
    DeviceFns {
        name,
        description,
        memory,
        device_type,
        props,
        init_backend,
        buffer_type,
        host_buffer_type: None,
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
    unsafe { DeviceState::of(device) }.description.as_ptr()
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
            description: state.description.as_ptr(),
            memory_free,
            memory_total,
            device_type: DEVICE_TYPE_GPU,
            device_id: ptr::null(),
            caps: Caps {
                asynchronous: !state.is_alone(),
                events: !state.is_alone(),
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
    let ours = unsafe { DeviceState::of(device) }.buffer_type();
    ours == buffer_type
}
