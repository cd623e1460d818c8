//! Mappings of a session: what the driver has been told, and whether it knows mappings outside the 32-bit window.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use hexloom::transport::{MapKind, SharedMemory, TransportError, aee};
use hexloom_abi::limits::has_extended_mappings;

use super::FastRpcConnection;
use super::end::is_end;
use crate::driver;

const MAP: &str = "fastrpc_mmap";
const UNMAP: &str = "fastrpc_munmap";

/// What a session has mapped.
#[derive(Default)]
pub(super) struct Mappings {
    /// By fd: address and bytes.
    mapped: Mutex<HashMap<u32, (usize, u64)>>,
    /// Whether the driver knows mappings outside the window, once that was tried.
    has_extended: OnceLock<bool>,
}

impl Mappings {
    /// What is mapped still, by fd; nothing is after that.
    pub(super) fn drain(&self) -> Vec<(u32, (usize, u64))> {
        self.lock().drain().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, (usize, u64)>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn map(connection: &FastRpcConnection, memory: &SharedMemory, kind: MapKind) -> Result<(), TransportError> {
    connection.end.check()?;
    let what = || {
        let domain = &connection.place.domain.name;
        format!("fd {}, {} bytes on {domain}", memory.fd(), memory.bytes())
    };
    if matches!(kind, MapKind::Extended | MapKind::ExtendedNow)
        && let Some(why) = lacks_extended(connection)?
    {
        return Err(aee::failed(MAP, aee::EUNSUPPORTED, format!("{}: {why}", what())));
    }
    let mapped = map_as(connection, memory, kind)?;
    mapped.map_err(|code| connection.end.failed(MAP, code, what()))
}

pub(super) fn unmap(connection: &FastRpcConnection, fd: u32, bytes: u64) -> Result<(), TransportError> {
    let end = &connection.end;
    if end.is_closed() {
        return Ok(());
    }
    let was_over = end.is_over();
    let known = connection.mappings.lock().get(&fd).copied();
    let (address, mapped_bytes) = known.unwrap_or((0, bytes));
    let effective = connection.place.effective;
    let result = connection.run(UNMAP, move |driver| driver.unmap(effective, fd, address, mapped_bytes));
    let result = match (was_over, result) {
        // The driver's own part of a mapping goes with the process, if it did not go now.
        (true, _) => Ok(()),
        (false, Ok(Err(code))) if is_end(code) => {
            end.died(UNMAP, code);
            Ok(())
        }
        (false, Ok(Err(code))) => {
            let what = format!("fd {fd} on {}", connection.place.domain.name);
            Err(aee::failed(UNMAP, code, what))
        }
        (false, Ok(Ok(()))) => Ok(()),
        (false, Err(error)) => Err(error),
    };
    if result.is_ok() {
        connection.mappings.lock().remove(&fd);
    }
    result
}

/// Why there are no mappings outside the window; `None` where there are.
fn lacks_extended(connection: &FastRpcConnection) -> Result<Option<String>, TransportError> {
    let arch = connection.arch;
    if !has_extended_mappings(arch) {
        let why = format!("v{arch} has no mappings outside the 32-bit window, v81 and later have");
        return Ok(Some(why));
    }
    let lacks = (!has_extended(connection)?).then(|| "the driver has no mappings outside the 32-bit window".to_owned());
    Ok(lacks)
}

/// Whether the driver knows mappings outside the window: tried once, with a page that nobody uses.
fn has_extended(connection: &FastRpcConnection) -> Result<bool, TransportError> {
    let known = &connection.mappings.has_extended;
    if let Some(&known) = known.get() {
        return Ok(known);
    }
    let page = driver::alloc(&connection.driver, 1)?;
    let found = match map_as(connection, &page, MapKind::ExtendedNow)? {
        Ok(()) => {
            unmap(connection, page.fd(), page.bytes())?;
            true
        }
        Err(code) if is_end(code) => return Err(connection.end.died(MAP, code)),
        Err(code) => {
            log::warn!("no mappings outside the 32-bit window: {}", aee::decode(code));
            false
        }
    };
    Ok(*known.get_or_init(|| found))
}

/// Maps and notes it; the inner error is the driver's code.
fn map_as(
    connection: &FastRpcConnection,
    memory: &SharedMemory,
    kind: MapKind,
) -> Result<Result<(), i32>, TransportError> {
    let (effective, fd, bytes) = (connection.place.effective, memory.fd(), memory.bytes());
    let address = memory.as_ptr().as_ptr() as usize;
    let result = connection.run(MAP, move |driver| driver.map(effective, fd, address, bytes, kind))?;
    if result.is_ok() {
        connection.mappings.lock().insert(fd, (address, bytes));
    }
    Ok(result)
}
