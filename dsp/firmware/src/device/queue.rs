//! The packet queue: a message with at most one block in, a reply out.
//!
//! A queue without callbacks has no threads of its own, and the serving thread blocks in it. Systems that have none such
//! refuse it as a bad argument; there a thread of the queue's says that packets have come, the serving thread looks for that
//! word, because nobody may block in a queue with callbacks, and takes the packets as ever.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};

use hexloom_abi::{BatchReply, Status};
use hexloom_dsp::interp::{BlockRef, Packet};
use hexloom_hexagon_sys::dsp;
use zerocopy::IntoBytes;

use crate::{arch, log};

/// The queue's own limits, so that whatever is sent can be taken off it.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
const MAX_REFERENCES: usize = 64;
/// Longest wait for room for a reply; there is room for every batch that the host may have in flight.
const WRITE_TIMEOUT_US: u32 = 1_000_000;

/// How often a serving thread that may not block looks for packets.
const LOOK_US: u64 = 500;

/// There may be packets in a queue that tells: set when some come and while some are taken, cleared before a look that
/// finds none.
static ARRIVED: AtomicBool = AtomicBool::new(false);
/// The queue's own thread has told of an error.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// An open queue.
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    queue: dsp::dspqueue_t,
    waiting: Waiting,
}

/// How the serving thread waits for packets.
#[derive(Clone, Copy)]
enum Waiting {
    /// In the queue.
    Blocked,
    /// For what the callbacks say.
    Told,
}

// SAFETY: the system's queues may be used from any thread.
unsafe impl Send for Queue {}

/// Where messages are read to: by the thread that serves, and there is one.
pub(crate) struct Inbox {
    message: UnsafeCell<[u8; MAX_MESSAGE_BYTES]>,
}

// SAFETY: `Queue::next` borrows it mutably from whoever owns the right to serve.
unsafe impl Sync for Inbox {}

impl Inbox {
    pub(crate) const fn new() -> Self {
        Self {
            message: UnsafeCell::new([0; MAX_MESSAGE_BYTES]),
        }
    }
}

impl Queue {
    /// Opens the queue that the host has exported under `id`.
    pub(crate) fn import(id: u64) -> Result<Self, Status> {
        let mut opened = Self::open(id, Waiting::Blocked);
        if matches!(opened, Err(dsp::AEE_EBADPARM)) {
            log::line(log::HIGH, "the queue may need callbacks", "code", dsp::AEE_EBADPARM);
            opened = Self::open(id, Waiting::Told);
        }
        opened.map_err(|code| {
            log::line(log::ERROR, "the queue cannot be opened", "code", code);
            match code {
                // With callbacks as without: there is no such queue.
                dsp::AEE_EBADPARM => Status::Invalid,
                dsp::AEE_EITEMBUSY => Status::AlreadyStarted,
                _ => Status::Internal,
            }
        })
    }

    fn open(id: u64, waiting: Waiting) -> Result<Self, u32> {
        let (on_packet, on_error): (dsp::dspqueue_callback_t, dsp::dspqueue_callback_t) = match waiting {
            Waiting::Blocked => (None, None),
            Waiting::Told => (Some(on_packet), Some(on_error)),
        };
        ARRIVED.store(false, Ordering::Release);
        BROKEN.store(false, Ordering::Release);
        let mut queue = core::ptr::null_mut();
        // SAFETY: the callbacks are functions of this library that need no context, and the output is live.
        let result = unsafe { dsp::dspqueue_import(id, on_packet, on_error, core::ptr::null_mut(), &raw mut queue) };
        match code(result) {
            dsp::AEE_SUCCESS if !queue.is_null() => Ok(Self { queue, waiting }),
            dsp::AEE_SUCCESS => Err(dsp::AEE_EFAILED),
            code => Err(code),
        }
    }

    /// Waits for a packet, at most `timeout_us`; an error ends the queue for good.
    pub(crate) fn wait(self, timeout_us: u32) -> Result<bool, Status> {
        match self.waiting {
            Waiting::Blocked => self.wait_blocked(timeout_us),
            Waiting::Told => wait_told(timeout_us),
        }
    }

    fn wait_blocked(self, timeout_us: u32) -> Result<bool, Status> {
        let (mut flags, mut n_buffers, mut bytes) = (0, 0, 0);
        // SAFETY: the queue is open, the outputs are live.
        let result = unsafe {
            dsp::dspqueue_peek(
                self.queue,
                &raw mut flags,
                &raw mut n_buffers,
                &raw mut bytes,
                timeout_us,
            )
        };
        match code(result) {
            dsp::AEE_SUCCESS => Ok(true),
            dsp::AEE_EEXPIRED | dsp::AEE_EWOULDBLOCK => Ok(false),
            code => {
                log::line(log::ERROR, "the queue is gone", "code", code);
                Err(Status::Internal)
            }
        }
    }

    /// Takes a packet that is there and hands it to `serve`; false when there is none.
    ///
    /// # Safety
    /// `inbox` is used by nobody else meanwhile.
    pub(crate) unsafe fn next(self, inbox: &Inbox, serve: impl FnOnce(&Packet<'_>)) -> bool {
        // SAFETY: the caller's promise.
        let message = unsafe { &mut *inbox.message.get() };
        let mut references = [dsp::dspqueue_buffer::default(); MAX_REFERENCES];
        let (mut flags, mut n_references, mut bytes) = (0, 0, 0);
        // Whoever comes behind this look tells it again.
        ARRIVED.store(false, Ordering::Release);
        // SAFETY: the queue is open; outputs are live and as long as is said.
        let result = unsafe {
            dsp::dspqueue_read_noblock(
                self.queue,
                &raw mut flags,
                MAX_REFERENCES as u32,
                &raw mut n_references,
                references.as_mut_ptr(),
                MAX_MESSAGE_BYTES as u32,
                &raw mut bytes,
                message.as_mut_ptr(),
            )
        };
        if code(result) != dsp::AEE_SUCCESS {
            return false;
        }
        ARRIVED.store(true, Ordering::Release);
        let block = match references.get(..n_references as usize) {
            Some([one]) => Some(BlockRef {
                fd: one.fd,
                offset: u64::from(one.offset),
                bytes: u64::from(one.size),
                address: one.address,
            }),
            _ => None,
        };
        let message = message.get(..bytes as usize).unwrap_or_default();
        serve(&Packet { message, block });
        true
    }

    /// Sends a reply. It carries no block: what the host will read was cleaned before.
    pub(crate) fn reply(self, reply: &BatchReply) -> Result<(), Status> {
        let bytes = reply.as_bytes();
        // SAFETY: the queue is open, the message is live, and there are no buffers.
        let result = unsafe {
            dsp::dspqueue_write(
                self.queue,
                dsp::DSPQUEUE_PACKET_FLAG_MESSAGE,
                0,
                core::ptr::null_mut(),
                bytes.len() as u32,
                bytes.as_ptr(),
                WRITE_TIMEOUT_US,
            )
        };
        (result == 0).then_some(()).ok_or(Status::Timeout)
    }

    /// Closes it; nothing uses it afterwards.
    pub(crate) fn close(self) {
        // SAFETY: the caller is the last who has it.
        let _ = unsafe { dsp::dspqueue_close(self.queue) };
    }
}

fn wait_told(timeout_us: u32) -> Result<bool, Status> {
    let end = arch::nanos().saturating_add(u64::from(timeout_us) * 1000);
    loop {
        if ARRIVED.load(Ordering::Acquire) {
            return Ok(true);
        }
        if BROKEN.load(Ordering::Acquire) {
            return Err(Status::Internal);
        }
        if arch::nanos() >= end {
            return Ok(false);
        }
        // SAFETY: takes a number only.
        unsafe { dsp::qurt_sleep(LOOK_US) };
    }
}

unsafe extern "C" fn on_packet(_queue: dsp::dspqueue_t, _error: dsp::AEEResult, _context: *mut c_void) {
    ARRIVED.store(true, Ordering::Release);
}

unsafe extern "C" fn on_error(_queue: dsp::dspqueue_t, error: dsp::AEEResult, _context: *mut c_void) {
    log::line(log::ERROR, "the queue is gone", "code", code(error));
    BROKEN.store(true, Ordering::Release);
}

/// The number without what this side of the system adds to it.
fn code(result: dsp::AEEResult) -> u32 {
    (result as u32).wrapping_sub(if result < 0 { dsp::AEE_DSP_OFFSET } else { 0 })
}
