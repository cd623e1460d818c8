//! A device: one session, opened when it is first needed, and what it can do.

mod kind;
mod table;

use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hexloom::session::TensorUse;
use hexloom::{Buffer, RunError, Session, SessionOptions};

use crate::abi::{BufferType, Device, Registry, Tensor};
use crate::convert::{self, Node};
use crate::error::BackendError;
use crate::graph::Graphs;
use crate::{buffer, registry};

pub(crate) use kind::Kind;

/// A device as ggml and we see it. It lives as long as the process.
pub(crate) struct DeviceState {
    kind: Kind,
    pub(crate) name: CString,
    /// Its memory for the CPU's tensors.
    pub(crate) host_name: CString,
    session: Mutex<Option<Session>>,
    graphs: Mutex<Graphs>,
    alone: bool,
    /// Bytes of the buffers that ggml has.
    allocated: AtomicU64,
    raw: AtomicPtr<Device>,
    buffer_type: AtomicPtr<BufferType>,
    host_type: AtomicPtr<BufferType>,
}

impl DeviceState {
    /// Makes device number `idx`, which may be alone in the list.
    pub(crate) fn new(idx: usize, kind: Kind, alone: bool) -> &'static Self {
        let device: &'static Self = Box::leak(Box::new(Self {
            kind,
            name: CString::new(format!("HEX{idx}")).unwrap_or_default(),
            host_name: CString::new(format!("HEX{idx}_Host")).unwrap_or_default(),
            session: Mutex::new(None),
            graphs: Mutex::new(Graphs::default()),
            alone,
            allocated: AtomicU64::new(0),
            raw: AtomicPtr::new(ptr::null_mut()),
            buffer_type: AtomicPtr::new(ptr::null_mut()),
            host_type: AtomicPtr::new(ptr::null_mut()),
        }));
        let raw = Box::into_raw(Box::new(Device {
            fns: table::fns(),
            registry: ptr::null_mut(),
            context: ptr::from_ref(device).cast_mut().cast(),
        }));
        let buffer_type = |fns| {
            Box::into_raw(Box::new(BufferType {
                fns,
                device: raw,
                context: ptr::null_mut(),
            }))
        };
        device.raw.store(raw, Ordering::Release);
        let (own, host) = (buffer_type(buffer::type_fns()), buffer_type(buffer::host_type_fns()));
        device.buffer_type.store(own, Ordering::Release);
        device.host_type.store(host, Ordering::Release);
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

    /// ggml's object for memory that the CPU computes in and the device reads.
    pub(crate) fn host_type(&self) -> *mut BufferType {
        self.host_type.load(Ordering::Acquire)
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
        devices.any(|device| device.buffer_type() == buffer_type) || Self::is_host_type(buffer_type)
    }

    /// Whether a buffer type is some device's for the CPU's tensors.
    pub(crate) fn is_host_type(buffer_type: *mut BufferType) -> bool {
        let mut devices = registry::devices().iter();
        devices.any(|device| device.host_type() == buffer_type)
    }

    /// The session, opened at the first call and opened again after it was lost.
    pub(crate) fn session(&self) -> Result<Session, BackendError> {
        let mut session = lock(&self.session);
        if let Some(session) = &*session {
            return Ok(session.clone());
        }
        let options = SessionOptions {
            n_slots: self.graphs_kept() as u32 + 2,
            deadline: self.kind.deadline(),
            ..SessionOptions::default()
        };
        let options = match self.alone {
            true => options,
            // Many graphs, each of them a part of the model's.
            false => SessionOptions {
                batch_ops: 512,
                batch_tensors: 2048,
                ..options
            },
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

    /// What it runs on, in words.
    fn description(&self) -> &'static CStr {
        self.kind.description()
    }

    /// Whether its graphs are not even looked at.
    pub(crate) fn does_nothing(&self) -> bool {
        self.kind == Kind::Nothing
    }

    /// Graphs that are kept ready. With several devices a model may be split by tensors: its graph is two parts for each
    /// layer then, with a sum behind each. Alone, it is one for prompts and a few for the lengths of its context.
    pub(crate) fn graphs_kept(&self) -> usize {
        if self.is_alone() { 14 } else { 150 }
    }

    /// Whether no other device is listed. Its graphs are waited for at once: nothing of ggml's could go on meanwhile, and
    /// whoever asked for a graph hears how it ended.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
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
        if !has_room(&session, tensor) || operands(tensor).any(buffer::is_host_weight) {
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
    let bytes = std::iter::once(tensor).chain(operands(tensor)).map(buffer::bytes);
    let all = bytes.clone().fold(0, u64::saturating_add);
    bytes.max().is_some_and(|largest| largest < most) && all <= session.window_bytes()
}

fn operands(tensor: &Tensor) -> impl Iterator<Item = &Tensor> + Clone {
    (0..tensor.src.len()).filter_map(|idx| tensor.src(idx))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
