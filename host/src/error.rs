//! Errors of the host, one enum per family of operations, each message with the name, the numbers and what to do.

use std::time::Duration;

use hexloom_abi::support::{Part, Reason, Unsupported};
use hexloom_abi::{Opcode, Status};

use crate::transport::{Death, SessionAt, TransportError};

/// A session could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A step of the start-up failed; everything done before it was given back.
    #[error("opening session {} on core {} of {transport}: {step}: {source}", at.session, at.core)]
    Step {
        /// The transport's name.
        transport: String,
        /// Which session.
        at: SessionAt,
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        source: TransportError,
    },
    /// An option is outside its limits.
    #[error("session option {option} is {value}, allowed are {allowed}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: u64,
        /// What is allowed.
        allowed: String,
    },
    /// Extended weights were asked for on a DSP that cannot have them.
    #[error(
        "core {} is a v{arch}: extended weight mappings begin with v81; open the session without extended_weights",
        at.core
    )]
    NoExtendedMappings {
        /// Which session.
        at: SessionAt,
        /// Its architecture.
        arch: u32,
    },
    /// Extended weights were asked for on a DSP whose own system does not map them.
    #[error(
        "core {} is a v{arch}, but the system on it has no call that maps memory outside the 32-bit window: open the \
         session without extended_weights; a newer system image of the device may have that call",
        at.core
    )]
    NoExtendedOnDsp {
        /// Which session.
        at: SessionAt,
        /// Its architecture.
        arch: u32,
    },
    /// The plain reference kernels were asked for where they are not.
    #[error(
        "{transport} has no plain reference kernels, they are left out of the DSP's library: open the session without \
         `reference`, or on the simulator"
    )]
    NoReference {
        /// The transport's name.
        transport: String,
    },
    /// The cores of a group differ, so that they would not compute the same.
    #[error("core {} differs from core {} in architecture, threads or scratch memory: they cannot form a group", at.core, lead.core)]
    UnlikeCores {
        /// The core that differs.
        at: SessionAt,
        /// The group's leader.
        lead: SessionAt,
    },
}

/// Shared memory could not be had or made visible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The transport has no memory of that size.
    #[error("allocating {bytes} bytes of shared memory for {name}: {source}")]
    Alloc {
        /// What it was for.
        name: String,
        /// Bytes asked for.
        bytes: u64,
        /// Why it failed.
        source: TransportError,
    },
    /// A tensor can never be mapped.
    #[error(transparent)]
    Plan(#[from] crate::plan::buffers::BufferPlanError),
    /// A buffer would be larger than what the DSP can map at once, or than its whole window.
    #[error(
        "{name} needs {bytes} bytes in one piece, a v{arch} session maps at most {limit}; split the tensor, or use a \
         smaller context or model"
    )]
    TooLarge {
        /// What it was for.
        name: String,
        /// Bytes asked for.
        bytes: u64,
        /// Most bytes of one buffer.
        limit: u64,
        /// Architecture of the session's core.
        arch: u32,
    },
    /// A buffer could not be mapped, even after a retry.
    #[error(
        "mapping {name} (fd {fd}, {bytes} bytes) in session {} on core {} failed: {source}; buffers of {known} bytes are \
         known to the session, whose window has {window}; free buffers or use a smaller context",
        at.session, at.core
    )]
    Map {
        /// The buffer's name.
        name: String,
        /// Its fd.
        fd: u32,
        /// Its size.
        bytes: u64,
        /// The session.
        at: SessionAt,
        /// Bytes of the buffers that it knows already.
        known: u64,
        /// Bytes of the window that tensor buffers can fill.
        window: u64,
        /// Why it failed.
        source: TransportError,
    },
    /// A copy would reach outside a buffer.
    #[error("{name}: bytes {offset}..{end} are outside its {bytes} bytes")]
    Range {
        /// The buffer's name.
        name: String,
        /// First byte of the copy.
        offset: u64,
        /// One past its last byte.
        end: u64,
        /// The buffer's size.
        bytes: u64,
    },
}

/// A graph cannot be built or run as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// No kernel takes the op.
    #[error("{op} \"{name}\": {what}")]
    Unsupported {
        /// The op.
        op: Opcode,
        /// The node's name.
        name: String,
        /// Which part, and why, with the shapes.
        what: String,
    },
    /// A view or tensor does not fit where it was placed.
    #[error("tensor \"{name}\": {what}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong, with the numbers.
        what: String,
    },
}

/// A batch could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Mapping failed.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The graph is at fault.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// No memory layout was found.
    #[error(transparent)]
    Plan(#[from] crate::plan::PlanError),
    /// One op alone exceeds what a batch can hold.
    #[error("op \"{op}\" needs {what} {needed}, a batch holds {limit}")]
    OpTooLarge {
        /// The op's name.
        op: String,
        /// What it needs too much of.
        what: &'static str,
        /// How much it needs.
        needed: u64,
        /// How much there is.
        limit: u64,
    },
    /// Too few queue slots are free: every other one belongs to a batch of a prepared graph.
    #[error(
        "no free queue slot: the graph needs {needed}, {owned} of {total} belong to prepared graphs ({in_flight} of them \
         in flight); drop a prepared graph or open the session with more slots"
    )]
    NoSlot {
        /// Slots asked for.
        needed: usize,
        /// Slots of prepared graphs.
        owned: usize,
        /// Slots whose batch is in flight.
        in_flight: usize,
        /// All slots.
        total: usize,
    },
    /// Too few fence slots are free side by side.
    #[error(
        "no free fence slot: {needed} side by side are needed, {free} of {total} are free, at most {longest} side by side; \
         drop an event or open the session with more fences"
    )]
    NoFence {
        /// Slots asked for.
        needed: u32,
        /// Slots free.
        free: u32,
        /// Slots of the longest free run.
        longest: u32,
        /// All slots.
        total: u32,
    },
    /// The session was lost before.
    #[error(transparent)]
    Lost(#[from] LostError),
    /// The session was closed.
    #[error("the session is closed")]
    Closed,
}

/// A batch did not end well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The DSP answered with a failure; the session goes on.
    #[error("batch {seq} ({batch}): {what}: {status}")]
    Failed {
        /// Sequence number.
        seq: u64,
        /// What the batch was.
        batch: String,
        /// The op at fault, or the part of the message.
        what: String,
        /// The DSP's status.
        status: Status,
    },
    /// A session that was to signal an event failed.
    #[error("event \"{event}\" was signalled with a failure: {status}")]
    Peer {
        /// The event.
        event: String,
        /// What failed.
        status: Status,
    },
    /// An event was not signalled in time.
    #[error("event \"{event}\" was not signalled within {timeout:?}")]
    Fence {
        /// The event.
        event: String,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// The session is gone.
    #[error(transparent)]
    Lost(#[from] LostError),
}

/// Why a session is lost. It can be opened again with [`crate::Session::reopen`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "session lost in batch {seq} ({batch}){}: {fault}; reopen the session to go on",
    at(op)
)]
pub struct LostError {
    /// Sequence number of the batch, 0 outside a batch.
    pub seq: u64,
    /// What the batch was.
    pub batch: String,
    /// The op the DSP was in, when it told.
    pub op: Option<String>,
    /// What happened.
    pub fault: Fault,
}

/// What happened to a lost session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No reply within the deadline.
    #[error("no reply within {0:?}")]
    Stalled(Duration),
    /// The DSP process ended.
    #[error("{0}")]
    Died(Death),
    /// A reply that contradicts the protocol.
    #[error("garbage reply: {0}")]
    Garbage(String),
    /// A transport call failed.
    #[error("{0}")]
    Transport(TransportError),
}

/// Any error of running a graph: what [`crate::Session`] and prepared graphs return at the top.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Before it was sent.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// After it was sent.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl RunError {
    /// Whether the session is lost and must be re-opened.
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            Self::Submit(SubmitError::Lost(_)) | Self::Wait(WaitError::Lost(_))
        )
    }
}

impl RunError {
    /// Whether it only tells that another session, which this one waited for, has failed.
    pub fn is_from_peer(&self) -> bool {
        match self {
            Self::Wait(WaitError::Failed { status, .. }) => *status == Status::PeerFailed,
            Self::Wait(WaitError::Peer { .. }) => true,
            _ => false,
        }
    }
}

impl From<LostError> for RunError {
    fn from(lost: LostError) -> Self {
        Self::Wait(WaitError::Lost(lost))
    }
}

impl From<MapError> for RunError {
    fn from(error: MapError) -> Self {
        Self::Submit(error.into())
    }
}

/// A refusal in words.
pub fn refusal_text(refusal: &Unsupported) -> String {
    let at = match refusal.at {
        Part::Op => "the op".to_owned(),
        Part::Src(idx) => format!("operand {idx}"),
        Part::Dst(idx) => format!("destination {idx}"),
        Part::Param(idx) => format!("parameter {idx}"),
    };
    let reason = match refusal.reason {
        Reason::NoKernel => "has no kernel",
        Reason::Missing => "is missing",
        Reason::DType => "has a data type that the op does not take here",
        Reason::Shape => "has dimensions that do not fit the op or its other operands",
        Reason::Strides => "has strides that the kernel cannot walk",
        Reason::NotTiled => "is a quantised weight that was not repacked into tiles",
        Reason::Tiled => "is a tiled weight, which cannot be read here",
        Reason::Value => "has a value outside what the kernel takes",
        Reason::Scratch => "needs more scratch memory than the session has",
        Reason::Unknown => "is no operand that the op knows",
        Reason::Extended => "lies in an extended buffer, which has no address here",
    };
    format!("{at} {reason}")
}

fn at(op: &Option<String>) -> String {
    op.as_ref().map_or_else(String::new, |op| format!(" at op {op}"))
}
