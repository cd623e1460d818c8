//! The queue of a session: made once, then requests out and replies in, each wait cut into pieces so that the end of the
//! session is noticed.

use std::sync::PoisonError;
use std::time::Duration;

use hexloom::transport::{BlockRef, TransportError, aee};

use super::FastRpcConnection;
use super::end::is_end;
use crate::queue::{Queue, in_pieces, is_nothing_yet};

pub(super) fn create_queue(connection: &FastRpcConnection, depth: u32) -> Result<u64, TransportError> {
    connection.end.check()?;
    let place = || connection.queue.write().unwrap_or_else(PoisonError::into_inner);
    let has_one = || aee::failed("dspqueue_create", aee::EALREADY, "the session has a queue");
    if place().is_some() {
        return Err(has_one());
    }
    let effective = connection.place.effective;
    let created = connection.run("dspqueue_create", move |driver| Queue::create(driver, effective, depth))?;
    let created = created.map_err(|error| match error {
        TransportError::Call { call, code, .. } if is_end(code) => connection.end.died(call, code),
        error => error,
    })?;
    let id = created.id();
    let mut place = place();
    // Another thread may have made one, or the session been closed, since.
    let refused = connection.end.check().err().or(place.is_some().then(has_one));
    match refused {
        None => *place = Some(created),
        Some(error) => {
            drop(place);
            connection.run("dspqueue_close", move |_| drop(created))?;
            return Err(error);
        }
    }
    Ok(id)
}

pub(super) fn write(
    connection: &FastRpcConnection,
    message: &[u8],
    block: BlockRef,
    timeout: Duration,
) -> Result<(), TransportError> {
    let what = || format!("{} bytes with a block of {}", message.len(), block.bytes);
    with_queue(connection, "dspqueue_write", timeout, what, |queue, piece| {
        queue.write(message, block, piece)
    })
}

pub(super) fn read(
    connection: &FastRpcConnection,
    message: &mut [u8],
    timeout: Duration,
) -> Result<usize, TransportError> {
    let what = || "a reply".to_owned();
    with_queue(connection, "dspqueue_read", timeout, what, |queue, piece| {
        queue.read(message, piece)
    })
}

/// Lets `call` wait on the queue, piece by piece, until the time or the session is over.
fn with_queue<T>(
    connection: &FastRpcConnection,
    name: &'static str,
    timeout: Duration,
    what: impl Fn() -> String,
    mut call: impl FnMut(&Queue, Duration) -> Result<T, i32>,
) -> Result<T, TransportError> {
    let end = &connection.end;
    end.check()?;
    let queue = connection.queue.read().unwrap_or_else(PoisonError::into_inner);
    let no_queue = || aee::failed(name, aee::EBADSTATE, "the session has no queue");
    let queue = queue.as_ref().ok_or_else(no_queue)?;
    let result = in_pieces(timeout, |piece| call(queue, piece), || !end.is_over());
    result.map_err(|code| match code {
        // Nothing came in time, or the session ended meanwhile.
        code if is_nothing_yet(code) => end.check().err().unwrap_or(TransportError::Timeout(timeout)),
        code if is_end(code) || aee::is(code, aee::EBADSTATE) => end.died(name, code),
        code => aee::failed(name, code, what()),
    })
}
