//! The packet queue (`dspqueue.h`).

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use hexloom::transport::{BlockRef, Connection};
use hexloom_abi::BatchReply;
use hexloom_hexagon_sys::host;

use crate::driver::{LONGEST, Outcome, answer, code, driver};

const MAX_QUEUE_BYTES: u32 = 16 << 20;
const MAX_MESSAGE_BYTES: u32 = 64 << 10;
const MAX_BUFFERS: u32 = 64;
/// What a packet takes beside its message: a header, and a record for each buffer.
const HEADER_BYTES: usize = 8;
const REFERENCE_BYTES: usize = 24;
/// "No such handle".
const EINVHANDLE: u32 = 0x2c;
/// "The room for the answer is too small".
const EBUFFERTOOSMALL: u32 = 0x26;

/// An open queue.
pub struct Queue {
    pub(crate) domain: u32,
    connection: Arc<dyn Connection>,
    id: u64,
    exported: bool,
    /// Its process has ended.
    pub(crate) is_left: bool,
    /// Replies that there is room for, and requests without a reply.
    room: usize,
    in_flight: usize,
}

/// Creates the queue of a session's process.
///
/// # Safety
/// `queue` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dspqueue_create(
    domain: c_int,
    flags: u32,
    request_bytes: u32,
    response_bytes: u32,
    on_packet: host::dspqueue_callback_t,
    on_error: host::dspqueue_callback_t,
    _context: *mut c_void,
    queue: *mut host::dspqueue_t,
) -> host::AEEResult {
    let has_callbacks = on_packet.is_some() || on_error.is_some();
    let sizes = [request_bytes, response_bytes];
    if queue.is_null() || flags != 0 || has_callbacks || sizes.iter().any(|&bytes| bytes > MAX_QUEUE_BYTES) {
        return code(host::AEE_EBADPARM);
    }
    match create(domain, sizes) {
        Ok(number) => {
            // SAFETY: not null, and so writable by the caller's promise.
            unsafe { queue.write(std::ptr::without_provenance_mut(number)) };
            0
        }
        Err(code) => code,
    }
}

fn create(domain: c_int, [request_bytes, response_bytes]: [u32; 2]) -> Outcome<usize> {
    let driver = driver();
    driver.enter("dspqueue_create")?;
    let usable = |bytes: u32, default: usize| if bytes == 0 { default } else { bytes as usize }.saturating_sub(8);
    let request = HEADER_BYTES + REFERENCE_BYTES + size_of::<hexloom_abi::BatchRequest>();
    let reply = HEADER_BYTES + size_of::<BatchReply>();
    let depth = usable(request_bytes, 64 << 10) / request;
    let mut table = driver.lock();
    let process = table.process(driver, domain)?;
    let connection = Arc::clone(&process.connection);
    driver.place(domain)?;
    // What a driver has for the queues of a domain is of the process that they were made in.
    if table
        .queues
        .values()
        .any(|queue| queue.domain == domain as u32 && queue.is_left)
    {
        table.breach(format!(
            "a queue on domain {domain}, where one of an earlier process is open still"
        ));
        return Err(code(host::AEE_EFAILED));
    }
    drop(table);
    let created = connection.create_queue(depth as u32);
    driver.outcome(domain as u32, created, host::AEE_ECONNRESET)?;
    let mut table = driver.lock();
    let number = table.number();
    let queue = Queue {
        domain: domain as u32,
        connection,
        id: number << 32 | u64::from(domain as u32),
        exported: false,
        is_left: false,
        room: usable(response_bytes, 16 << 10) / reply,
        in_flight: 0,
    };
    // As an address of something that nobody may look into.
    let address = number as usize * 64;
    table.queues.insert(address, queue);
    Ok(address)
}

/// Closes a queue.
#[unsafe(no_mangle)]
pub extern "C" fn dspqueue_close(queue: host::dspqueue_t) -> host::AEEResult {
    answer(close(queue.addr()))
}

fn close(number: usize) -> Outcome {
    let driver = driver();
    driver.enter("dspqueue_close")?;
    let mut table = driver.lock();
    let Some(domain) = table.queues.get(&number).map(|queue| queue.domain) else {
        table.breach("dspqueue_close of what is no queue, or not any more".to_owned());
        return Err(code(EINVHANDLE));
    };
    let is_left = table.queues.get(&number).is_some_and(|queue| queue.is_left);
    if let Some(process) = table.running(domain).filter(|_| !is_left) {
        let is_gone = process.library.is_dead() || process.connection.hw_info().is_err();
        if process.library.is_started() && !is_gone {
            return Err(code(host::AEE_EBADPARM));
        }
        process.library.set_queue(0);
    }
    table.queues.remove(&number);
    Ok(())
}

/// The number by which the DSP opens its side.
///
/// # Safety
/// `id` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dspqueue_export(queue: host::dspqueue_t, id: *mut u64) -> host::AEEResult {
    let driver = driver();
    let exported = driver.enter("dspqueue_export").and_then(|()| {
        let mut table = driver.lock();
        let queue = table.queues.get_mut(&queue.addr()).ok_or(code(EINVHANDLE))?;
        queue.exported = true;
        let (id, domain) = (queue.id, queue.domain);
        if let Some(process) = table.running(domain) {
            process.library.set_queue(id);
        }
        Ok(id)
    });
    match exported {
        Ok(_) if id.is_null() => code(host::AEE_EBADPARM),
        Ok(number) => {
            // SAFETY: not null, and so writable by the caller's promise.
            unsafe { id.write(number) };
            0
        }
        Err(code) => code,
    }
}

/// Sends a packet.
///
/// # Safety
/// `buffers` and `message` are null or readable for as many elements as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dspqueue_write(
    queue: host::dspqueue_t,
    flags: u32,
    n_buffers: u32,
    buffers: *mut host::dspqueue_buffer,
    message_bytes: u32,
    message: *const u8,
    timeout_us: u32,
) -> host::AEEResult {
    let has = |flag, n: u32, is_null: bool| (flags & flag != 0) == (n > 0) && (n == 0 || !is_null);
    let fits = has(host::DSPQUEUE_PACKET_FLAG_MESSAGE, message_bytes, message.is_null())
        && has(host::DSPQUEUE_PACKET_FLAG_BUFFERS, n_buffers, buffers.is_null())
        && flags & !(host::DSPQUEUE_PACKET_FLAG_MESSAGE | host::DSPQUEUE_PACKET_FLAG_BUFFERS) == 0;
    if !fits || message_bytes > MAX_MESSAGE_BYTES || n_buffers > MAX_BUFFERS {
        return code(host::AEE_EBADPARM);
    }
    if message_bytes == 0 || n_buffers == 0 {
        return code(host::AEE_EBADPARM);
    }
    // SAFETY: not null, and so readable for as many bytes as is said.
    let message = unsafe { std::slice::from_raw_parts(message, message_bytes as usize) };
    // SAFETY: the same for buffers.
    let buffers = unsafe { std::slice::from_raw_parts(buffers, n_buffers as usize) };
    answer(write(queue.addr(), buffers, message, timeout_us))
}

fn write(number: usize, buffers: &[host::dspqueue_buffer], message: &[u8], timeout_us: u32) -> Outcome {
    let driver = driver();
    driver.enter("dspqueue_write")?;
    let mut table = driver.lock();
    let queue = table.queues.get_mut(&number).ok_or(code(EINVHANDLE))?;
    let domain = queue.domain;
    let connection = Arc::clone(&queue.connection);
    queue.in_flight += 1;
    if queue.in_flight > queue.room {
        let room = queue.room;
        table.breach(format!(
            "more than {room} requests in flight, and no room for the next reply"
        ));
    }
    let process = table.running(domain).ok_or(code(host::AEE_EBADSTATE))?;
    for buffer in buffers {
        let mapped = process
            .mapped
            .get(&(buffer.fd as c_int))
            .ok_or(code(host::AEE_ENOSUCHMAP))?;
        let end = u64::from(buffer.offset) + u64::from(buffer.size);
        if end > *mapped as u64 {
            return Err(code(host::AEE_EBADPARM));
        }
    }
    drop(table);
    let [block] = buffers else {
        return Err(code(host::AEE_EBADPARM));
    };
    let block = BlockRef {
        fd: block.fd,
        offset: block.offset.into(),
        bytes: block.size.into(),
    };
    let written = connection.write(message, block, duration(timeout_us));
    let outcome = driver.outcome(domain, written, host::AEE_EBADSTATE);
    if outcome.is_err()
        && let Some(queue) = driver.lock().queues.get_mut(&number)
    {
        queue.in_flight = queue.in_flight.saturating_sub(1);
    }
    outcome
}

/// Takes a packet, waiting for one.
///
/// # Safety
/// Outputs are null or writable, `message` for `max_message_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dspqueue_read(
    queue: host::dspqueue_t,
    flags: *mut u32,
    _max_buffers: u32,
    n_buffers: *mut u32,
    _buffers: *mut host::dspqueue_buffer,
    max_message_bytes: u32,
    message_bytes: *mut u32,
    message: *mut u8,
    timeout_us: u32,
) -> host::AEEResult {
    let room = (message, max_message_bytes);
    // SAFETY: the caller's promise.
    unsafe { take(queue, flags, n_buffers, message_bytes, room, timeout_us) }
}

/// # Safety
/// Outputs are null or writable, the message for as many bytes as is said.
unsafe fn take(
    queue: host::dspqueue_t,
    flags: *mut u32,
    n_buffers: *mut u32,
    message_bytes: *mut u32,
    (message, max_message_bytes): (*mut u8, u32),
    timeout_us: u32,
) -> host::AEEResult {
    if flags.is_null() || n_buffers.is_null() || message_bytes.is_null() || message.is_null() {
        return code(host::AEE_EBADPARM);
    }
    // SAFETY: not null, and so writable for as many bytes as is said.
    let message = unsafe { std::slice::from_raw_parts_mut(message, max_message_bytes as usize) };
    match read(queue.addr(), message, timeout_us) {
        Ok(len) => {
            // SAFETY: found not null, and so writable by the caller's promise; here and below.
            unsafe { flags.write(host::DSPQUEUE_PACKET_FLAG_MESSAGE) };
            // SAFETY: as above.
            unsafe { n_buffers.write(0) };
            // SAFETY: as above.
            unsafe { message_bytes.write(len as u32) };
            0
        }
        Err(code) => code,
    }
}

/// Takes a packet if one is there.
///
/// # Safety
/// As for [`dspqueue_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dspqueue_read_noblock(
    queue: host::dspqueue_t,
    flags: *mut u32,
    _max_buffers: u32,
    n_buffers: *mut u32,
    _buffers: *mut host::dspqueue_buffer,
    max_message_bytes: u32,
    message_bytes: *mut u32,
    message: *mut u8,
) -> host::AEEResult {
    let room = (message, max_message_bytes);
    // SAFETY: the caller's promise.
    let result = unsafe { take(queue, flags, n_buffers, message_bytes, room, 0) };
    match result {
        expired if expired == code(host::AEE_EEXPIRED) => code(host::AEE_EWOULDBLOCK),
        result => result,
    }
}

fn read(number: usize, message: &mut [u8], timeout_us: u32) -> Outcome<usize> {
    let driver = driver();
    driver.enter("dspqueue_read")?;
    let queue = driver
        .lock()
        .queues
        .get(&number)
        .map(|queue| (queue.domain, Arc::clone(&queue.connection)));
    let (domain, connection) = queue.ok_or(code(EINVHANDLE))?;
    let len = connection.read(message, duration(timeout_us));
    let len = driver.outcome(domain, len, host::AEE_EINTERRUPTED)?;
    if let Some(queue) = driver.lock().queues.get_mut(&number) {
        queue.in_flight = queue.in_flight.saturating_sub(1);
    }
    match len <= message.len() {
        true => Ok(len),
        false => Err(code(EBUFFERTOOSMALL)),
    }
}

fn duration(timeout_us: u32) -> Duration {
    Duration::from_micros(timeout_us.into()).min(LONGEST)
}
