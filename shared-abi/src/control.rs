//! Method calls of a session over a message socket: how transports without FastRPC reach a DSP image.
//!
//! Each call is one [`ControlRequest`] in one datagram of a sequenced-packet socket, answered by one [`ControlReply`];
//! [`Method::MAP`] carries the descriptor as ancillary data. A batch is [`Method::BATCH`]; its
//! answer is a [`crate::BatchReply`] instead, told apart by its length.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::code::{Status, StatusCode};
use crate::limits::{MAGIC, PMU_COUNTERS, VERSION};
use crate::message::{BatchRequest, StartRequest};

/// Which method is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Method(pub u32);

impl Method {
    /// Answer with what the machine has; needs no started session.
    pub const HW_INFO: Self = Self(1);
    /// Make the attached descriptor known under `fd`, `bytes` long.
    pub const MAP: Self = Self(2);
    /// Forget the descriptor known under `fd`.
    pub const UNMAP: Self = Self(3);
    /// Start a session with `start`.
    pub const START: Self = Self(4);
    /// Stop it.
    pub const STOP: Self = Self(5);
    /// Drop the mappings of `fd`.
    pub const FORGET: Self = Self(6);
    /// Run a batch: `batch` with its block at (`fd`, `offset`, `bytes`).
    pub const BATCH: Self = Self(7);
    /// Let the performance counters count `events` until the session stops; needs a started session.
    pub const COUNT: Self = Self(8);
}

/// What the performance counters of a DSP count: 16 bytes. Profiled batches carry the counters in [`crate::OpProfile`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CountedEvents {
    /// An event of the architecture's list for each counter, at most [`CountedEvents::MAX`]; 0 = nothing.
    pub numbers: [u16; PMU_COUNTERS],
}

impl CountedEvents {
    /// The largest number that a counter can be told.
    pub const MAX: u16 = 0x3ff;

    /// Whether no counter counts anything, so that counting ends.
    pub fn is_off(&self) -> bool {
        self.numbers == [0; PMU_COUNTERS]
    }

    /// Checks the numbers.
    pub fn check(&self) -> Result<(), Status> {
        match self.numbers.iter().all(|&number| number <= Self::MAX) {
            true => Ok(()),
            false => Err(Status::Invalid),
        }
    }
}

/// One call: 256 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ControlRequest {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u16,
    /// Zero.
    pub flags: u16,
    /// The method.
    pub method: Method,
    /// The host's descriptor number of a buffer.
    pub fd: u32,
    /// Byte offset of a block.
    pub offset: u64,
    /// Bytes of a buffer or block.
    pub bytes: u64,
    /// Bytes of `message` that are meant, for batches of any length.
    pub message_bytes: u32,
    /// Zero.
    pub reserved: [u32; 7],
    /// [`StartRequest`], [`BatchRequest`] or [`CountedEvents`], at its start.
    pub message: [u8; 192],
}

/// In the answer to [`Method::HW_INFO`]: the DSP side maps buffers outside the 32-bit window.
pub const REPLY_EXTENDED: u16 = 1;

/// One answer: 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ControlReply {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u16,
    /// [`REPLY_EXTENDED`]; all other bits zero.
    pub flags: u16,
    /// How the call ended.
    pub status: StatusCode,
    /// Architecture number of the image, for [`Method::HW_INFO`].
    pub arch: u32,
    /// Threads that kernels can use.
    pub n_threads: u32,
    /// Zero.
    pub reserved: u32,
    /// Scratch bytes.
    pub scratch_bytes: u64,
    /// Bytes of the window.
    pub window_bytes: u64,
    /// Zero.
    pub reserved2: [u64; 3],
}

impl ControlRequest {
    /// A call of `method` with everything else zero.
    pub const fn new(method: Method) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            flags: 0,
            method,
            fd: 0,
            offset: 0,
            bytes: 0,
            message_bytes: 0,
            reserved: [0; 7],
            message: [0; 192],
        }
    }

    /// Puts a start message in.
    pub fn with_start(mut self, start: &StartRequest) -> Self {
        self.set_message(start.as_bytes());
        self
    }

    /// Puts events to count in.
    pub fn with_events(mut self, events: &CountedEvents) -> Self {
        self.set_message(events.as_bytes());
        self
    }

    /// Puts a batch message of any length up to 192 bytes in; longer ones are cut, which the other side refuses.
    pub fn with_batch(mut self, message: &[u8]) -> Self {
        self.set_message(message);
        self
    }

    /// The bytes that are meant.
    pub fn message(&self) -> &[u8] {
        let len = usize::try_from(self.message_bytes).unwrap_or(usize::MAX);
        self.message.get(..len).unwrap_or(&self.message)
    }

    /// Checks magic, version and reserves.
    pub fn check(&self) -> Result<(), Status> {
        if self.magic != MAGIC {
            return Err(Status::BadMagic);
        }
        if self.version != VERSION {
            return Err(Status::BadVersion);
        }
        if self.flags != 0 || self.reserved != [0; 7] {
            return Err(Status::BadFlags);
        }
        Ok(())
    }

    fn set_message(&mut self, message: &[u8]) {
        let len = message.len().min(self.message.len());
        for (to, from) in self.message.iter_mut().zip(message) {
            *to = *from;
        }
        self.message_bytes = u32::try_from(len).unwrap_or(0);
    }
}

impl ControlReply {
    /// Whether the DSP side maps buffers outside the 32-bit window, for [`Method::HW_INFO`].
    pub const fn has_extended(&self) -> bool {
        self.flags & REPLY_EXTENDED != 0
    }

    /// An answer with a status and nothing else.
    pub fn new(status: Status) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            flags: 0,
            status: status.into(),
            arch: 0,
            n_threads: 0,
            reserved: 0,
            scratch_bytes: 0,
            window_bytes: 0,
            reserved2: [0; 3],
        }
    }
}

const _: () = assert!(size_of::<BatchRequest>() <= 192 && size_of::<StartRequest>() <= 192);
crate::layout::assert_layout!(CountedEvents, 16, 2, { numbers: 0 });
crate::layout::assert_layout!(ControlRequest, 256, 8, {
    magic: 0, version: 4, flags: 6, method: 8, fd: 12, offset: 16, bytes: 24, message_bytes: 32, reserved: 36, message: 64,
});
crate::layout::assert_layout!(ControlReply, 64, 8, {
    magic: 0, version: 4, flags: 6, status: 8, arch: 12, n_threads: 16, reserved: 20, scratch_bytes: 24, window_bytes: 32,
    reserved2: 40,
});
