//! A session: one open connection to one DSP process, its pinned buffer, its queue and its mappings.
//!
//! States: *open* until a fault makes it *lost* or [`Session::close`] makes it *closed*. A lost session refuses work with
//! the error that ended it; [`Session::reopen`] starts a fresh DSP process, and prepared graphs re-bind to it on their
//! next run. Buffers belong to the session, not to the connection: their contents survive.
//!
//! Lock order: `reopening`, `state`, then a link's queue, then its mappings. No lock is held while waiting for a reply, and
//! `state` is not held while anything is dropped, because a buffer's last clone takes mappings back in other sessions.

mod event;
mod free_runs;
mod link;
mod links;
mod measure;
mod options;
mod pinned;
mod queue;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hexloom_abi::op::Op;
use hexloom_abi::support::Unsupported;
use hexloom_abi::{scratch, support};

use crate::error::{LostError, MapError, OpenError, RunError, SubmitError};
use crate::graph::Graph;
use crate::memory::{Buffer, BufferKind};
use crate::plan::buffers::{BufferLimits, BufferPlan, Place, TensorNeed};
use crate::prepared::PreparedGraph;
use crate::transport::{HwInfo, Transport};

pub use event::Event;
use link::Link;
pub(crate) use links::Links;
pub use measure::{MeasureEnd, Measured, measure_window};
pub use options::{MatrixUnit, SessionOptions};
pub(crate) use pinned::{FenceRun, Slot};
pub(crate) use queue::{Ticket, record};

/// An open connection to one DSP process, or to one on each core of a group. Clones share it; several threads may use
/// it.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

/// What clones of a session, its buffers and its prepared graphs share.
pub(crate) struct Shared {
    transport: Arc<dyn Transport>,
    options: SessionOptions,
    state: Mutex<State>,
    /// Held while the session is opened again, which happens once at a time.
    reopening: Mutex<()>,
    epoch: AtomicU64,
    hw: HwInfo,
    n_threads: u32,
    window_bytes: u64,
}

/// Buffer and byte offset of each tensor of a list; `None` for views.
pub type Places = Vec<Option<(Buffer, u64)>>;

/// What tensors are to a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TensorUse {
    /// Written before the first run and by nobody since; outside the window if the session was opened so.
    Weights,
    /// Read and written by graphs.
    State,
}

enum State {
    Open(Arc<Links>),
    Lost(LostError),
    Closed,
}

impl Session {
    /// Opens a session and starts the DSP side.
    pub fn open(transport: Arc<dyn Transport>, options: SessionOptions) -> Result<Self, OpenError> {
        options.check()?;
        let links = Links::open(&*transport, &options, 0)?;
        Ok(Self {
            shared: Arc::new(Shared {
                transport,
                options,
                reopening: Mutex::new(()),
                epoch: AtomicU64::new(0),
                hw: *links.hw(),
                n_threads: links.lead().n_threads(),
                window_bytes: links.window_bytes(),
                state: Mutex::new(State::Open(Arc::new(links))),
            }),
        })
    }

    /// Opens the session again after it was lost. An open session is closed first.
    pub fn reopen(&self) -> Result<(), OpenError> {
        let _alone = lock(&self.shared.reopening);
        self.close();
        let epoch = self.shared.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        let links = Links::open(self.shared.transport(), &self.shared.options, epoch)?;
        *self.shared.lock() = State::Open(Arc::new(links));
        Ok(())
    }

    /// Stops the DSP side and gives everything back. Buffers stay readable; running a graph then fails.
    pub fn close(&self) {
        // What is dropped here may take mappings back in other sessions, so the lock is not held.
        let state = std::mem::replace(&mut *self.shared.lock(), State::Closed);
        if let State::Open(links) = state {
            links.shut_down();
        }
    }

    /// Allocates a shared buffer, zeroed.
    pub fn alloc(&self, name: &str, bytes: u64) -> Result<Buffer, MapError> {
        Buffer::new(&self.shared, name, bytes, BufferKind::Tensors)
    }

    /// Allocates buffers for many long-lived tensors at once, as [`BufferPlan`] packs them: listed in order of use. Gives
    /// each tensor's buffer and byte offset, `None` for views; one failure gives everything back.
    pub fn alloc_tensors(&self, name: &str, tensors: &[TensorNeed<'_>], use_: TensorUse) -> Result<Places, MapError> {
        let plan = BufferPlan::new(tensors, &self.buffer_limits(use_))?;
        self.alloc_planned(name, &plan, use_)
    }

    /// The same for a plan that is made already.
    pub fn alloc_planned(&self, name: &str, plan: &BufferPlan, use_: TensorUse) -> Result<Places, MapError> {
        let kind = match self.buffer_limits(use_).extended {
            true => BufferKind::Extended,
            false => BufferKind::Tensors,
        };
        let buffers = plan.buffers.iter().enumerate();
        let buffers: Vec<Buffer> = buffers
            .map(|(idx, planned)| Buffer::new(&self.shared, &format!("{name} {idx}"), planned.bytes, kind))
            .collect::<Result<_, _>>()?;
        let place = |place: &Option<Place>| place.map(|place| (buffers[place.buffer].clone(), place.offset));
        Ok(plan.places.iter().map(place).collect())
    }

    /// Takes a fence slot, with which other sessions and the host can wait for this session.
    pub fn event(&self, name: &str) -> Result<Event, SubmitError> {
        Event::new(self, name)
    }

    /// Plans and encodes a graph once, to be run many times.
    pub fn prepare(&self, name: &str, graph: Graph) -> Result<PreparedGraph, SubmitError> {
        PreparedGraph::new(self, name, graph)
    }

    /// Prepares a graph, runs it once and gives the prepared graph back for reading its outputs.
    pub fn run(&self, name: &str, graph: Graph) -> Result<PreparedGraph, RunError> {
        let mut prepared = self.prepare(name, graph)?;
        prepared.run()?;
        Ok(prepared)
    }

    /// Whether the DSP's kernels take an op, with this session's threads and scratch memory.
    pub fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        support::check(op)?;
        scratch::check(op, self.shared.n_threads, self.scratch_bytes())
    }

    /// What the DSP has.
    pub fn hw(&self) -> &HwInfo {
        &self.shared.hw
    }

    /// DSP threads in use.
    pub fn n_threads(&self) -> u32 {
        self.shared.n_threads
    }

    /// Scratch bytes that kernels may use.
    pub fn scratch_bytes(&self) -> u64 {
        match self.shared.options.scratch_bytes_max {
            0 => self.shared.hw.scratch_bytes,
            max => max.min(self.shared.hw.scratch_bytes),
        }
    }

    /// The options it was opened with.
    pub fn options(&self) -> &SessionOptions {
        &self.shared.options
    }

    /// Bytes of the queue-and-fence buffer, which is mapped as long as the session is open.
    pub fn pinned_bytes(&self) -> u64 {
        self.links().map_or(0, |links| links.lead().pinned().memory().bytes())
    }

    /// Bytes of the 32-bit window that tensor buffers can fill, the pinned buffer taken off.
    pub fn window_bytes(&self) -> u64 {
        self.shared.window_bytes
    }

    /// What buffers for weights or for caches can be in this session.
    pub fn buffer_limits(&self, use_: TensorUse) -> BufferLimits {
        let limits = BufferLimits::new(self.hw().arch, self.window_bytes());
        let cap = self.shared.options.buffer_bytes_max;
        match self.shared.options.extended_weights && use_ == TensorUse::Weights {
            // There is no window to fragment, so buffers are as large as they may be.
            true => limits.with_cap(cap).outside_window(),
            false => limits.with_cap(limits.cap_bytes.min(cap)),
        }
    }

    /// Bytes of the window that the buffers made known so far fill together, whether mapped at the moment or not.
    pub fn known_bytes(&self) -> u64 {
        self.links().map_or(0, |links| links.lead().known_bytes())
    }

    /// Nanoseconds spent inside transport calls that send and receive batches, since the session was opened.
    pub fn transport_ns(&self) -> u64 {
        let links = self.links();
        links.map_or(0, |links| {
            links.all().iter().map(|link| link.queue().transport_ns()).sum()
        })
    }

    pub(crate) fn links(&self) -> Result<Arc<Links>, SubmitError> {
        match &*self.shared.lock() {
            State::Open(links) => Ok(Arc::clone(links)),
            State::Lost(lost) => Err(lost.clone().into()),
            State::Closed => Err(SubmitError::Closed),
        }
    }

    /// Rises with every re-opening.
    pub(crate) fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Relaxed)
    }

    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// Makes the session lost if `links` are still its connections, and gives the error that ended it.
    pub(crate) fn lose(&self, links: &Links, lost: LostError) -> LostError {
        links.shut_down();
        let mut state = self.shared.lock();
        let is_current = matches!(&*state, State::Open(current) if current.epoch() == links.epoch());
        if is_current {
            log::warn!("{lost}");
            let old = std::mem::replace(&mut *state, State::Lost(lost.clone()));
            // Dropped without the lock, as in `close`.
            drop(state);
            drop(old);
        }
        lost
    }
}

impl Shared {
    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    pub(crate) fn hw(&self) -> &HwInfo {
        &self.hw
    }

    /// As [`Session::window_bytes`].
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// Takes the mappings of an fd back, before its descriptor is closed.
    pub(crate) fn unmap(&self, fd: u32) {
        let links = match &*self.lock() {
            State::Open(links) => Arc::clone(links),
            State::Lost(_) | State::Closed => return,
        };
        links.unmap(fd);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Open(links) = state {
            links.shut_down();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} threads)", self.n_threads())
    }
}
