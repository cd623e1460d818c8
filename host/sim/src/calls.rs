//! The one place through which every call of every session goes: counted, logged when asked, and failed when planned.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hexloom::transport::SessionAt;

use crate::fault::{CallFault, FaultPlan};
use crate::platform::lock;

/// A call of the transport, of a connection, or of the DSP process to its system.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "named after the calls")]
pub enum CallName {
    Cores,
    Alloc,
    Open,
    HwInfo,
    Map,
    Unmap,
    CreateQueue,
    Start,
    Stop,
    Forget,
    Count,
    Write,
    Read,
    Close,
    /// The DSP side maps a buffer.
    DspMap,
    /// The DSP side takes such a mapping back.
    DspUnmap,
    /// The DSP side starts a thread.
    DspThread,
    /// The descriptor of an allocation is closed. Logged only: it is not counted and cannot fail.
    Release,
}

/// One call, as the log has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Which.
    pub name: CallName,
    /// Of which session; `None` for calls of the transport.
    pub at: Option<SessionAt>,
    /// The memory that it is about.
    pub fd: Option<u32>,
    /// The planned fault that it met.
    pub fault: Option<CallFault>,
}

/// Counter, log and plan of a transport's calls.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    n: AtomicU64,
    faults: FaultPlan,
    log: Mutex<Option<Vec<Call>>>,
}

impl CallName {
    /// The name in messages.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::Alloc => "alloc",
            Self::Open => "open",
            Self::HwInfo => "hw_info",
            Self::Map => "map",
            Self::Unmap => "unmap",
            Self::CreateQueue => "create_queue",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Forget => "forget",
            Self::Count => "count",
            Self::Write => "write",
            Self::Read => "read",
            Self::Close => "close",
            Self::DspMap => "the DSP's map",
            Self::DspUnmap => "the DSP's unmap",
            Self::DspThread => "the DSP's thread",
            Self::Release => "release",
        }
    }

    /// Whether the call gives something back, and so succeeds on a DSP process that is gone.
    pub(crate) const fn gives_back(self) -> bool {
        matches!(self, Self::Unmap | Self::Stop | Self::Forget | Self::Close)
    }
}

impl Calls {
    pub(crate) fn new(faults: FaultPlan) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    /// Counts a call and gives the fault that is planned for it.
    pub(crate) fn enter(&self, name: CallName, at: Option<SessionAt>, fd: Option<u32>) -> Option<CallFault> {
        let number = self.n.fetch_add(1, Ordering::AcqRel) + 1;
        let fault = self.faults.at_call(number);
        self.record(Call { name, at, fd, fault });
        fault
    }

    pub(crate) fn record(&self, call: Call) {
        if let Some(log) = &mut *lock(&self.log) {
            log.push(call);
        }
    }

    pub(crate) fn n(&self) -> u64 {
        self.n.load(Ordering::Acquire)
    }

    /// Begins an empty log, or ends it.
    pub(crate) fn keep_log(&self, keep: bool) {
        *lock(&self.log) = keep.then(Vec::new);
    }

    pub(crate) fn log(&self) -> Vec<Call> {
        lock(&self.log).clone().unwrap_or_default()
    }
}
