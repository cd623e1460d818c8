//! Shared memory (`rpcmem.h`), and making it known to sessions (`fastrpc_mmap`).

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use hexloom::transport::{MapKind, Transport};
use hexloom_hexagon_sys::host;

use crate::driver::{Outcome, answer, code, driver};

const PAGE_BYTES: usize = 4096;

/// Allocates, or gives null.
#[unsafe(no_mangle)]
pub extern "C" fn rpcmem_alloc(heap: c_int, flags: u32, bytes: c_int) -> *mut c_void {
    match usize::try_from(bytes) {
        Ok(bytes) => alloc("rpcmem_alloc", heap, flags, bytes),
        Err(_) => null_mut(),
    }
}

/// Allocates, or gives null.
#[unsafe(no_mangle)]
pub extern "C" fn rpcmem_alloc2(heap: c_int, flags: u32, bytes: usize) -> *mut c_void {
    alloc("rpcmem_alloc2", heap, flags, bytes)
}

fn alloc(call: &str, heap: c_int, flags: u32, bytes: usize) -> *mut c_void {
    let driver = driver();
    let known = heap == host::RPCMEM_HEAP_ID_SYSTEM as c_int && flags <= host::RPCMEM_DEFAULT_FLAGS;
    if driver.enter(call).is_err() || !known || bytes == 0 {
        return match driver.setup.map_failed {
            true => std::ptr::without_provenance_mut(usize::MAX),
            false => null_mut(),
        };
    }
    let Ok(memory) = driver.sim.alloc(bytes as u64) else {
        return null_mut();
    };
    let address = memory.as_ptr().as_ptr();
    driver.lock().memory.insert(address as usize, memory);
    address.cast()
}

/// Gives an allocation back.
#[unsafe(no_mangle)]
pub extern "C" fn rpcmem_free(address: *mut c_void) {
    let driver = driver();
    let mut table = driver.lock();
    let Some(memory) = table.memory.remove(&(address as usize)) else {
        if !address.is_null() {
            table.breach("rpcmem_free of what is no allocation, or not any more".to_owned());
        }
        return;
    };
    let fd = memory.fd() as c_int;
    let users = table.domains.iter().filter(|(_, domain)| {
        domain
            .process
            .as_ref()
            .is_some_and(|process| process.mapped.contains_key(&fd))
    });
    let users: Vec<u32> = users.map(|(&effective, _)| effective).collect();
    for effective in users {
        table.breach(format!("rpcmem_free of fd {fd} while domain {effective} has it mapped"));
    }
    drop(table);
    drop(memory);
}

/// The descriptor of an allocation, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn rpcmem_to_fd(address: *mut c_void) -> c_int {
    let driver = driver();
    if driver.enter("rpcmem_to_fd").is_err() {
        return -1;
    }
    let table = driver.lock();
    table
        .memory
        .get(&(address as usize))
        .map_or(-1, |memory| memory.fd() as c_int)
}

/// Makes an allocation known to a session.
#[unsafe(no_mangle)]
pub extern "C" fn fastrpc_mmap(
    domain: c_int,
    fd: c_int,
    address: *mut c_void,
    offset: c_int,
    bytes: usize,
    flags: host::fastrpc_map_flags,
) -> c_int {
    answer(map(domain, fd, address as usize, offset, bytes, flags))
}

fn map(domain: c_int, fd: c_int, address: usize, offset: c_int, bytes: usize, flags: u32) -> Outcome {
    let driver = driver();
    driver.enter("fastrpc_mmap")?;
    let bad = code(host::AEE_EBADPARM);
    let kind = match flags {
        host::FASTRPC_MAP_FD => MapKind::Pinned,
        host::FASTRPC_MAP_FD_DELAYED => MapKind::Lazy,
        host::FASTRPC_MAP_FD_EXTENDED if driver.setup.extended_flags => MapKind::ExtendedNow,
        host::FASTRPC_MAP_FD_DELAYED_EXTENDED if driver.setup.extended_flags => MapKind::Extended,
        _ => return Err(bad),
    };
    if fd < 0 || offset != 0 || bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
        return Err(bad);
    }
    let mut table = driver.lock();
    let Some(memory) = table.memory.remove(&address) else {
        table.breach(format!("fastrpc_mmap of fd {fd} at an address that is no allocation's"));
        return Err(bad);
    };
    let fits = memory.fd() as c_int == fd && memory.bytes() == bytes as u64;
    let mapped = match fits {
        false => Err(bad),
        true => table.process(driver, domain).map(|process| {
            let result = process.connection.map(&memory, kind);
            if result.is_ok() {
                process.mapped.insert(fd, bytes);
            }
            result
        }),
    };
    table.memory.insert(address, memory);
    drop(table);
    driver.outcome(domain as u32, mapped?, host::AEE_ECONNRESET)
}

/// Takes that back.
#[unsafe(no_mangle)]
pub extern "C" fn fastrpc_munmap(domain: c_int, fd: c_int, _address: *mut c_void, bytes: usize) -> c_int {
    answer(unmap(domain, fd, bytes))
}

fn unmap(domain: c_int, fd: c_int, bytes: usize) -> Outcome {
    let driver = driver();
    driver.enter("fastrpc_munmap")?;
    driver.place(domain)?;
    let mut table = driver.lock();
    let process = table.running(domain as u32).ok_or(code(host::AEE_ENOSUCHMAP))?;
    match process.mapped.get(&fd) {
        None => return Err(code(host::AEE_ENOSUCHMAP)),
        Some(&mapped) if mapped != bytes => return Err(code(host::AEE_EBADPARM)),
        Some(_) => {}
    }
    let result = process.connection.unmap(fd as u32, bytes as u64);
    if result.is_ok() {
        process.mapped.remove(&fd);
    }
    drop(table);
    driver.outcome(domain as u32, result, host::AEE_ECONNRESET)
}
