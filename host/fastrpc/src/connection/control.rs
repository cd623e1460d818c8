//! Control messages: one invocation of the library each, and what its answer means.

use std::sync::atomic::Ordering;

use hexloom::transport::{HwInfo, TransportError};
use hexloom_abi::control::{ControlReply, ControlRequest, CountedEvents, Method};
use hexloom_abi::{StartRequest, Status};

use super::FastRpcConnection;
use super::end::gone_is_done;

const CALL: &str = "remote_handle64_invoke";

/// The first architecture with the matrix unit that kernels drive.
const FIRST_WITH_MATRIX_UNIT: u32 = 73;

pub(super) fn hw_info(connection: &FastRpcConnection) -> Result<HwInfo, TransportError> {
    let reply = call(connection, ControlRequest::new(Method::HW_INFO))?;
    if reply.arch > connection.arch {
        log::warn!("a library for v{} on a v{}", reply.arch, connection.arch);
    }
    Ok(HwInfo {
        arch: reply.arch,
        n_threads: reply.n_threads,
        n_hmx: u32::from(reply.arch >= FIRST_WITH_MATRIX_UNIT),
        scratch_bytes: reply.scratch_bytes,
        window_bytes: reply.window_bytes,
        has_extended: reply.has_extended(),
    })
}

pub(super) fn start(connection: &FastRpcConnection, start: &StartRequest) -> Result<(), TransportError> {
    // One whose answer is lost may have started all the same.
    connection.is_started.store(true, Ordering::Release);
    call(connection, ControlRequest::new(Method::START).with_start(start)).map(drop)
}

pub(super) fn stop(connection: &FastRpcConnection) -> Result<(), TransportError> {
    let stopped = call(connection, ControlRequest::new(Method::STOP)).map(drop);
    if stopped.is_ok() {
        connection.is_started.store(false, Ordering::Release);
    }
    gone_is_done(stopped)
}

pub(super) fn forget(connection: &FastRpcConnection, fd: u32) -> Result<(), TransportError> {
    let request = ControlRequest {
        fd,
        ..ControlRequest::new(Method::FORGET)
    };
    gone_is_done(call(connection, request).map(drop))
}

pub(super) fn count(connection: &FastRpcConnection, events: &CountedEvents) -> Result<(), TransportError> {
    call(connection, ControlRequest::new(Method::COUNT).with_events(events)).map(drop)
}

/// Stops what runs before the close: it still has the queue and the mappings in use. A process that is taken for dead may
/// not be, so nothing is checked.
pub(super) fn stop_at_last(connection: &FastRpcConnection) {
    if connection.is_started.swap(false, Ordering::AcqRel) {
        let (handle, request) = (connection.handle, ControlRequest::new(Method::STOP));
        let stopped = connection.run(CALL, move |driver| driver.call(handle, &request).map(drop));
        log::debug!("stopping before the close: {stopped:?}");
    }
}

/// Sends a message and gives its answer.
fn call(connection: &FastRpcConnection, request: ControlRequest) -> Result<ControlReply, TransportError> {
    let end = &connection.end;
    end.check()?;
    let handle = connection.handle;
    let reply = connection.run(CALL, move |driver| driver.call(handle, &request))?;
    let reply = reply.map_err(|code| match code {
        // Nobody's code: it is what the kernel's interface gives when the process is gone.
        -1 => end.died(CALL, code),
        code => end.failed(CALL, code, format!("method {}", request.method.0)),
    })?;
    match Status::try_from(reply.status) {
        Ok(Status::Ok) => Ok(reply),
        Ok(status) => Err(TransportError::Refused(status)),
        Err(number) => Err(end.garbage(&format!("status {number}"))),
    }
}
