//! The packet queue of a session's process.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hexloom::transport::{BlockRef, TransportError, aee, ends_at};
use hexloom_abi::{BatchReply, BatchRequest};
use hexloom_hexagon_sys::host;

use crate::driver::Driver;

/// What a packet takes beside its message, and a buffer's record.
const HEADER_BYTES: u32 = 8;
const REFERENCE_BYTES: u32 = 24;
/// Room in each direction beside the packets.
const SLACK_BYTES: u32 = 1024;
/// A queue is no larger.
const MAX_BYTES: u32 = 16 << 20;
/// A longer reply is none of ours.
const MAX_REPLY_BYTES: usize = 1024;
/// Waits are cut into pieces, so that a queue that is to be closed is not waited for to the end.
pub(crate) const PIECE: Duration = Duration::from_millis(100);

/// An open queue; closed when dropped. Creating and closing it wait for the DSP.
pub(crate) struct Queue {
    driver: Arc<Driver>,
    calls: QueueCalls,
    queue: host::dspqueue_t,
    id: u64,
    is_open: bool,
}

/// The calls that a queue takes, of which a driver has all or none.
#[derive(Clone, Copy)]
struct QueueCalls {
    create: host::dspqueue_create,
    close: host::dspqueue_close,
    export: host::dspqueue_export,
    write: host::dspqueue_write,
    read: host::dspqueue_read,
}

// SAFETY: the driver's queues may be used from any thread, several at a time; the address is looked into by nobody else.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl QueueCalls {
    fn of(driver: &Driver) -> Result<Self, TransportError> {
        let all = || {
            Some(Self {
                create: driver.calls.dspqueue_create?,
                close: driver.calls.dspqueue_close?,
                export: driver.calls.dspqueue_export?,
                write: driver.calls.dspqueue_write?,
                read: driver.calls.dspqueue_read?,
            })
        };
        all().ok_or_else(|| {
            let what = format!("{} has no packet queue", driver.library().display());
            aee::failed("dspqueue_create", aee::EUNSUPPORTEDAPI, what)
        })
    }
}

impl Queue {
    /// Creates the queue, with room for `depth` requests and as many replies.
    pub(crate) fn create(driver: &Arc<Driver>, effective: u32, depth: u32) -> Result<Self, TransportError> {
        let calls = QueueCalls::of(driver)?;
        let bytes = |packet: u32| {
            depth
                .saturating_mul(packet)
                .saturating_mul(2)
                .saturating_add(SLACK_BYTES)
        };
        let requests = bytes(HEADER_BYTES + REFERENCE_BYTES + size_of::<BatchRequest>() as u32);
        let replies = bytes(HEADER_BYTES + size_of::<BatchReply>() as u32);
        let what = || format!("a queue of {depth} requests on domain {effective}");
        if requests.max(replies) > MAX_BYTES {
            return Err(aee::failed("dspqueue_create", aee::EBADSIZE, what()));
        }
        let mut queue = std::ptr::null_mut();
        let (domain, none) = (effective as c_int, std::ptr::null_mut());
        // SAFETY: no callbacks, and the output is live for the call.
        let result = unsafe { (calls.create)(domain, 0, requests, replies, None, None, none, &raw mut queue) };
        if result != 0 || queue.is_null() {
            let code = if result == 0 { aee::EFAILED } else { result };
            return Err(aee::failed("dspqueue_create", code, what()));
        }
        let mut queue = Self {
            driver: Arc::clone(driver),
            calls,
            queue,
            id: 0,
            is_open: true,
        };
        // SAFETY: the queue is open, and the output is live for the call.
        let result = unsafe { (calls.export)(queue.queue, &raw mut queue.id) };
        match result {
            0 => Ok(queue),
            code => Err(aee::failed("dspqueue_export", code, what())),
        }
    }

    /// The number by which the DSP opens its side.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Closes it, which the driver refuses while the DSP side has it open.
    pub(crate) fn close(&mut self) -> Result<(), i32> {
        if !self.is_open {
            return Ok(());
        }
        // SAFETY: the queue is open; once it is closed it is not used again, as whoever closes it has it alone.
        match unsafe { (self.calls.close)(self.queue) } {
            0 => self.is_open = false,
            code => return Err(code),
        }
        Ok(())
    }

    /// Sends a request with its block.
    pub(crate) fn write(&self, message: &[u8], block: BlockRef, timeout: Duration) -> Result<(), i32> {
        let narrow = |number: u64| u32::try_from(number).map_err(|_| aee::EBADPARM);
        // The DSP looks at nothing of the block but what the host has written, and takes it out of its caches first.
        let mut buffer = host::dspqueue_buffer {
            fd: block.fd,
            size: narrow(block.bytes)?,
            offset: narrow(block.offset)?,
            flags: host::DSPQUEUE_BUFFER_FLAG_FLUSH_SENDER | host::DSPQUEUE_BUFFER_FLAG_INVALIDATE_RECIPIENT,
            ..Default::default()
        };
        let flags = host::DSPQUEUE_PACKET_FLAG_MESSAGE | host::DSPQUEUE_PACKET_FLAG_BUFFERS;
        let len = u32::try_from(message.len()).map_err(|_| aee::EBADPARM)?;
        // SAFETY: the queue is open; one buffer record and the message live for the call.
        let result = unsafe {
            (self.calls.write)(
                self.queue,
                flags,
                1,
                &raw mut buffer,
                len,
                message.as_ptr(),
                micros(timeout),
            )
        };
        if result == 0 { Ok(()) } else { Err(result) }
    }

    /// Takes a reply and gives its length; at most one piece of a wait.
    pub(crate) fn read(&self, message: &mut [u8], timeout: Duration) -> Result<usize, i32> {
        let mut reply = [0u8; MAX_REPLY_BYTES];
        let timeout = timeout.min(PIECE);
        let result = match (timeout.is_zero(), self.driver.calls.dspqueue_read_noblock) {
            (true, Some(read)) => self.take(&mut reply, |args| {
                let Args {
                    flags,
                    n_buffers,
                    buffers,
                    bytes,
                    message,
                } = args;
                // SAFETY: the queue is open, and every output lives for the call.
                unsafe {
                    read(
                        self.queue,
                        flags,
                        1,
                        n_buffers,
                        buffers,
                        MAX_REPLY_BYTES as u32,
                        bytes,
                        message,
                    )
                }
            }),
            _ => self.take(&mut reply, |args| {
                let Args {
                    flags,
                    n_buffers,
                    buffers,
                    bytes,
                    message,
                } = args;
                let (read, room) = (self.calls.read, MAX_REPLY_BYTES as u32);
                // SAFETY: as above.
                unsafe {
                    read(
                        self.queue,
                        flags,
                        1,
                        n_buffers,
                        buffers,
                        room,
                        bytes,
                        message,
                        micros(timeout),
                    )
                }
            }),
        };
        let len = result?;
        let fitting = len.min(message.len()).min(reply.len());
        message[..fitting].copy_from_slice(&reply[..fitting]);
        Ok(len)
    }

    fn take(&self, reply: &mut [u8; MAX_REPLY_BYTES], read: impl FnOnce(Args) -> c_int) -> Result<usize, i32> {
        let (mut flags, mut n_buffers, mut bytes) = (0, 0, 0);
        let mut buffer = host::dspqueue_buffer::default();
        let result = read(Args {
            flags: &raw mut flags,
            n_buffers: &raw mut n_buffers,
            buffers: &raw mut buffer,
            bytes: &raw mut bytes,
            message: reply.as_mut_ptr(),
        });
        if result == 0 { Ok(bytes as usize) } else { Err(result) }
    }
}

/// Outputs of a read.
struct Args {
    flags: *mut u32,
    n_buffers: *mut u32,
    buffers: *mut host::dspqueue_buffer,
    bytes: *mut u32,
    message: *mut u8,
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Err(code) = self.close() {
            log::warn!("dspqueue_close: {}", aee::decode(code));
        }
    }
}

/// Calls `once` with a piece of the time that is left, until it gives something other than "nothing yet" or the time is
/// over; looks between pieces whether to go on.
pub(crate) fn in_pieces<T>(
    timeout: Duration,
    mut once: impl FnMut(Duration) -> Result<T, i32>,
    goes_on: impl Fn() -> bool,
) -> Result<T, i32> {
    let end = ends_at(timeout);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match once(left.min(PIECE)) {
            Err(code) if is_nothing_yet(code) && !left.is_zero() && goes_on() => {}
            result => return result,
        }
    }
}

/// Whether a code says that nothing came in time.
pub(crate) fn is_nothing_yet(code: i32) -> bool {
    aee::is(code, aee::EEXPIRED) || code == aee::EWOULDBLOCK
}

/// Microseconds, rounded up so that a short wait is a wait.
fn micros(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_nanos().div_ceil(1000)).unwrap_or(host::DSPQUEUE_TIMEOUT_NONE - 1)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn waits_end_with_the_time_the_answer_or_the_close() {
        let pieces = Cell::new(0);
        let expired = |_| {
            pieces.set(pieces.get() + 1);
            Err::<u8, i32>(aee::EEXPIRED)
        };
        assert_eq!(in_pieces(Duration::ZERO, expired, || true), Err(aee::EEXPIRED));
        assert_eq!(pieces.take(), 1);
        assert_eq!(
            in_pieces(Duration::from_secs(3600), expired, || false),
            Err(aee::EEXPIRED)
        );
        assert_eq!(pieces.take(), 1);
        let third = |piece: Duration| {
            assert!(piece <= PIECE);
            pieces.set(pieces.get() + 1);
            if pieces.get() == 3 {
                Ok(7)
            } else {
                Err(aee::EWOULDBLOCK)
            }
        };
        assert_eq!(in_pieces(Duration::MAX, third, || true), Ok(7));
        let broken = |_| Err::<u8, i32>(aee::EINTERRUPTED);
        assert_eq!(
            in_pieces(Duration::from_secs(3600), broken, || true),
            Err(aee::EINTERRUPTED)
        );
    }

    #[test]
    fn times_are_rounded_up_and_never_endless() {
        assert_eq!(micros(Duration::from_nanos(1)), 1);
        assert_eq!(micros(Duration::ZERO), 0);
        assert_eq!(micros(Duration::MAX), u32::MAX - 1);
    }
}
