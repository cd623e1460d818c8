//! A session: one open connection to one DSP process, its pinned buffer, its queue and its mappings.
//!
//! States: *open* until a fault makes it *lost* or [`Session::close`] makes it *closed*. A lost session refuses work with
//! the error that ended it; [`Session::reopen`] starts a fresh DSP process, and prepared graphs re-bind to it on their
//! next run. Buffers belong to the session, not to the connection: their contents survive.
//!
//! Lock order: `state`, then a link's queue, then its mappings. No lock is held while waiting for a reply.

mod link;
mod options;
mod queue;
mod slots;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hexloom_abi::op::Op;
use hexloom_abi::support::Unsupported;
use hexloom_abi::{scratch, support};

use crate::error::{LostError, MapError, OpenError, RunError, SubmitError};
use crate::graph::Graph;
use crate::memory::Buffer;
use crate::plan::buffers::BufferLimits;
use crate::prepared::PreparedGraph;
use crate::transport::{HwInfo, Transport};

pub(crate) use link::Link;
pub use options::{MatrixUnit, SessionOptions};
pub(crate) use queue::{Ticket, record};
pub(crate) use slots::Slot;

/// An open connection to one DSP process. Clones share it; several threads may use it.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

/// What clones of a session, its buffers and its prepared graphs share.
pub(crate) struct Shared {
    transport: Arc<dyn Transport>,
    options: SessionOptions,
    state: Mutex<State>,
    generation: AtomicU64,
    epoch: AtomicU64,
    hw: HwInfo,
    n_threads: u32,
}

enum State {
    Open(Arc<Link>),
    Lost(LostError),
    Closed,
}

impl Session {
    /// Opens a session and starts the DSP side.
    pub fn open(transport: Arc<dyn Transport>, options: SessionOptions) -> Result<Self, OpenError> {
        options.check()?;
        let link = Link::open(&transport, &options, 0)?;
        let hw = *link.hw();
        let n_threads = link.n_threads();
        Ok(Self {
            shared: Arc::new(Shared {
                transport,
                options,
                state: Mutex::new(State::Open(Arc::new(link))),
                generation: AtomicU64::new(0),
                epoch: AtomicU64::new(0),
                hw,
                n_threads,
            }),
        })
    }

    /// Opens the session again after it was lost. An open session is closed first.
    pub fn reopen(&self) -> Result<(), OpenError> {
        let mut state = self.shared.lock();
        if let State::Open(link) = std::mem::replace(&mut *state, State::Closed) {
            link.shut_down();
        }
        let epoch = self.shared.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        let link = Link::open(&self.shared.transport, &self.shared.options, epoch)?;
        *state = State::Open(Arc::new(link));
        Ok(())
    }

    /// Stops the DSP side and gives everything back. Buffers stay readable; running a graph then fails.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        if let State::Open(link) = std::mem::replace(&mut *state, State::Closed) {
            link.shut_down();
        }
    }

    /// Allocates a shared buffer, zeroed.
    pub fn alloc(&self, name: &str, bytes: u64) -> Result<Buffer, MapError> {
        Buffer::new(&self.shared, name, bytes)
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
        self.link().map_or(0, |link| link.pinned_bytes())
    }

    /// What buffers for weights and caches can be in this session.
    pub fn buffer_limits(&self) -> BufferLimits {
        let window_bytes = match self.shared.options.window_bytes {
            0 => self.shared.hw.window_bytes,
            bytes => bytes.min(self.shared.hw.window_bytes),
        };
        let budget_bytes = window_bytes.saturating_sub(self.pinned_bytes());
        let limits = BufferLimits::new(self.shared.hw.arch, budget_bytes);
        limits.with_cap(limits.cap_bytes.min(self.shared.options.buffer_bytes_max))
    }

    /// Nanoseconds spent inside transport calls that send and receive batches, since the session was opened.
    pub fn transport_ns(&self) -> u64 {
        self.link().map_or(0, |link| link.queue().transport_ns())
    }

    pub(crate) fn link(&self) -> Result<Arc<Link>, SubmitError> {
        match &*self.shared.lock() {
            State::Open(link) => Ok(Arc::clone(link)),
            State::Lost(lost) => Err(lost.clone().into()),
            State::Closed => Err(SubmitError::Closed),
        }
    }

    /// Makes the session lost if `link` is still its connection, and gives the error that ended it.
    pub(crate) fn lose(&self, link: &Link, lost: LostError) -> LostError {
        link.shut_down();
        let mut state = self.shared.lock();
        if let State::Open(current) = &*state
            && current.epoch() == link.epoch()
        {
            log::warn!("{lost}");
            *state = State::Lost(lost.clone());
        }
        lost
    }
}

impl Shared {
    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// A number that no buffer of this session had before.
    pub(crate) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes the mappings of an fd back, before its descriptor is closed.
    pub(crate) fn unmap(&self, fd: u32) {
        let link = match &*self.lock() {
            State::Open(link) => Arc::clone(link),
            State::Lost(_) | State::Closed => return,
        };
        link.unmap(fd);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Open(link) = state {
            link.shut_down();
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} threads)", self.n_threads())
    }
}
