//! The packet queue: a message with at most one block in, a reply out.

use core::cell::UnsafeCell;

use hexloom_abi::{BatchReply, Status};
use hexloom_dsp::interp::{BlockRef, Packet};
use hexloom_hexagon_sys::dsp;
use zerocopy::IntoBytes;

/// The queue's own limits, so that whatever is sent can be taken off it.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
const MAX_REFERENCES: usize = 64;
/// Longest wait for room for a reply; there is room for every batch that the host may have in flight.
const WRITE_TIMEOUT_US: u32 = 1_000_000;

/// An open queue.
#[derive(Clone, Copy)]
pub(crate) struct Queue(dsp::dspqueue_t);

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
    /// Opens the queue that the host has exported under `id`, without threads of its own.
    pub(crate) fn import(id: u64) -> Result<Self, Status> {
        let mut queue = core::ptr::null_mut();
        // SAFETY: no callbacks, and the output is live.
        match unsafe { dsp::dspqueue_import(id, None, None, core::ptr::null_mut(), &raw mut queue) } {
            0 if !queue.is_null() => Ok(Self(queue)),
            _ => Err(Status::Invalid),
        }
    }

    /// Waits for a packet, at most `timeout_us`; an error ends the queue for good.
    pub(crate) fn wait(self, timeout_us: u32) -> Result<bool, Status> {
        let (mut flags, mut n_buffers, mut bytes) = (0, 0, 0);
        // SAFETY: the queue is open, the outputs are live.
        let result =
            unsafe { dsp::dspqueue_peek(self.0, &raw mut flags, &raw mut n_buffers, &raw mut bytes, timeout_us) };
        match code(result) {
            dsp::AEE_SUCCESS => Ok(true),
            dsp::AEE_EEXPIRED | dsp::AEE_EWOULDBLOCK => Ok(false),
            _ => Err(Status::Internal),
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
        // SAFETY: the queue is open; outputs are live and as long as is said.
        let result = unsafe {
            dsp::dspqueue_read_noblock(
                self.0,
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
                self.0,
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
        let _ = unsafe { dsp::dspqueue_close(self.0) };
    }
}

/// The number without what this side of the system adds to it.
fn code(result: dsp::AEEResult) -> u32 {
    (result as u32).wrapping_sub(if result < 0 { dsp::AEE_DSP_OFFSET } else { 0 })
}
