//! What is asked of, or set for, the driver, a library or a session (`remote_*_control`).

use std::ffi::{CStr, c_char, c_int, c_void};

use hexloom_hexagon_sys::host;

use crate::driver::{Driver, Notifier, Outcome, SESSION_STRIDE, answer, code, domain_id, domain_name, driver};
use crate::setup::Notices;

/// Asks what a DSP has.
///
/// # Safety
/// `data` is null or readable and writable for `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remote_handle_control(request: u32, data: *mut c_void, bytes: u32) -> c_int {
    let driver = driver();
    answer(driver.enter("remote_handle_control").and_then(|()| {
        if request != host::DSPRPC_GET_DSP_INFO {
            return Err(code(host::AEE_EUNSUPPORTEDAPI));
        }
        // SAFETY: the caller's promise.
        let asked: &mut host::fastrpc_capability = unsafe { record(data, bytes) }?;
        let core = (0..driver.setup.sim.n_cores).find(|&core| domain_id(core) == asked.domain);
        let arch = driver.setup.sim.arch;
        asked.capability = match (asked.attribute_ID, core) {
            (host::DOMAIN_SUPPORT, core) => core.is_some().into(),
            (_, None) => return Err(code(host::AEE_EINVALIDDOMAIN)),
            (host::UNSIGNED_PD_SUPPORT, _) => driver.setup.unsigned.into(),
            (host::STATUS_NOTIFICATION_SUPPORT, _) => 1,
            // The upper half is no part of the number.
            (host::ARCH_VER, _) => 0x8d00 + ((arch / 10) << 4) + arch % 10,
            _ => 0,
        };
        Ok(())
    }))
}

/// Sets how quickly a library's calls are to be answered.
///
/// # Safety
/// `data` is null or readable for `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remote_handle64_control(
    handle: host::remote_handle64,
    request: u32,
    data: *mut c_void,
    bytes: u32,
) -> c_int {
    let driver = driver();
    answer(driver.enter("remote_handle64_control").and_then(|()| {
        if request != host::DSPRPC_CONTROL_LATENCY {
            return Err(code(host::AEE_EUNSUPPORTEDAPI));
        }
        // SAFETY: the caller's promise.
        let asked: &mut host::remote_rpc_control_latency = unsafe { record(data, bytes) }?;
        let known = driver.lock().handles.contains_key(&handle);
        let sensible = asked.enable <= host::RPC_POLL_QOS && asked.latency <= 10_000;
        match known && sensible {
            true => Ok(()),
            false => Err(code(host::AEE_EBADPARM)),
        }
    }))
}

/// Asks or sets what is a session's.
///
/// # Safety
/// `data` is null or readable and writable for `bytes`; strings in the structure there end with 0, and room for answers is
/// as large as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remote_session_control(request: u32, data: *mut c_void, bytes: u32) -> c_int {
    let driver = driver();
    let name = match request {
        host::DSPRPC_CONTROL_UNSIGNED_MODULE => "unsigned_module",
        host::FASTRPC_REMOTE_PROCESS_KILL => "process_kill",
        host::FASTRPC_SESSION_CLOSE => "session_close",
        host::FASTRPC_REGISTER_STATUS_NOTIFICATIONS => "status_notifications",
        host::FASTRPC_RESERVE_NEW_SESSION => "reserve_new_session",
        host::FASTRPC_GET_EFFECTIVE_DOMAIN_ID => "get_effective_domain_id",
        host::FASTRPC_GET_URI => "get_uri",
        _ => return code(host::AEE_EUNSUPPORTEDAPI),
    };
    let entered = driver.enter("remote_session_control").and_then(|()| driver.enter(name));
    answer(entered.and_then(|()| {
        match request {
            // SAFETY: here and in every arm the caller's promise for the structure, and below for what it refers to.
            host::DSPRPC_CONTROL_UNSIGNED_MODULE => take_unsigned(driver, unsafe { record(data, bytes) }?),
            // SAFETY: as above.
            host::FASTRPC_REMOTE_PROCESS_KILL => kill(driver, unsafe { record(data, bytes) }?),
            // SAFETY: as above.
            host::FASTRPC_SESSION_CLOSE => close(driver, unsafe { record(data, bytes) }?),
            // SAFETY: as above.
            host::FASTRPC_REGISTER_STATUS_NOTIFICATIONS => register(driver, unsafe { record(data, bytes) }?),
            host::FASTRPC_RESERVE_NEW_SESSION => {
                // SAFETY: as above.
                let asked = unsafe { record(data, bytes) }?;
                // SAFETY: as above.
                unsafe { reserve(driver, asked) }
            }
            host::FASTRPC_GET_EFFECTIVE_DOMAIN_ID => {
                // SAFETY: as above.
                let asked = unsafe { record(data, bytes) }?;
                // SAFETY: as above.
                unsafe { effective(driver, asked) }
            }
            _ => {
                // SAFETY: as above.
                let asked = unsafe { record(data, bytes) }?;
                // SAFETY: as above.
                unsafe { address(driver, asked) }
            }
        }
    }))
}

fn take_unsigned(driver: &Driver, asked: &mut host::remote_rpc_control_unsigned_module) -> Outcome {
    driver.place(asked.domain)?;
    let mut table = driver.lock();
    let domain = table.domains.entry(asked.domain as u32).or_default();
    if domain.process.is_some() {
        return Err(code(host::AEE_EBADSTATE));
    }
    domain.takes_unsigned = asked.enable != 0;
    Ok(())
}

fn kill(driver: &Driver, asked: &mut host::remote_rpc_process_clean_params) -> Outcome {
    driver.place(asked.domain)?;
    driver.kill(asked.domain as u32)
}

fn close(driver: &Driver, asked: &mut host::remote_rpc_session_close) -> Outcome {
    driver.place(asked.domain)?;
    driver.lock().end(driver, asked.domain as u32)
}

fn register(driver: &Driver, asked: &mut host::remote_rpc_notif_register) -> Outcome {
    driver.place(asked.domain)?;
    if driver.setup.notices == Notices::None {
        return Err(code(host::AEE_EUNSUPPORTED));
    }
    let call = asked.notifier_fn.ok_or(code(host::AEE_EBADPARM))?;
    let context = asked.context as usize;
    let notifier = (asked.domain as u32, Notifier { call, context });
    driver.lock().notifiers.push(notifier);
    Ok(())
}

/// # Safety
/// Names in `asked` are null or strings.
unsafe fn reserve(driver: &Driver, asked: &mut host::remote_rpc_reserve_new_session) -> Outcome {
    // SAFETY: the caller's promise.
    let core = unsafe { core_of(driver, asked.domain_name, asked.domain_name_len) }?;
    // SAFETY: as above.
    unsafe { text(asked.session_name, asked.session_name_len) }?;
    let mut table = driver.lock();
    let effective = |session: u32| domain_id(core) + SESSION_STRIDE * session;
    // What was asked for is not looked at, as in drivers: the lowest that is free.
    let free = (1..driver.setup.sim.n_sessions).find(|&session| !table.reserved.contains(&effective(session)));
    let session = free.ok_or(code(host::AEE_ENOSESSION))?;
    table.reserved.insert(effective(session));
    (asked.session_id, asked.effective_domain_id) = (session, effective(session));
    Ok(())
}

/// # Safety
/// The name in `asked` is null or a string.
unsafe fn effective(driver: &Driver, asked: &mut host::remote_rpc_effective_domain_id) -> Outcome {
    // SAFETY: the caller's promise.
    let core = unsafe { core_of(driver, asked.domain_name, asked.domain_name_len) }?;
    if asked.session_id >= driver.setup.sim.n_sessions {
        return Err(code(host::AEE_ENOSESSION));
    }
    asked.effective_domain_id = domain_id(core) + SESSION_STRIDE * asked.session_id;
    Ok(())
}

/// # Safety
/// Strings in `asked` are null or strings, and `uri` is null or writable for `uri_len`.
unsafe fn address(driver: &Driver, asked: &mut host::remote_rpc_get_uri) -> Outcome {
    // SAFETY: the caller's promise.
    let core = unsafe { core_of(driver, asked.domain_name, asked.domain_name_len) }?;
    // SAFETY: as above.
    let module = unsafe { text(asked.module_uri, asked.module_uri_len) }?;
    let whole = format!("{module}&_dom={}&_session={}\0", domain_name(core), asked.session_id);
    if asked.uri.is_null() || whole.len() > asked.uri_len as usize {
        return Err(code(host::AEE_EBADSIZE));
    }
    // SAFETY: not null, and so writable for `uri_len`, which is enough; the text is memory of our own.
    unsafe { std::ptr::copy_nonoverlapping(whole.as_ptr(), asked.uri.cast(), whole.len()) };
    Ok(())
}

/// # Safety
/// `name` is null or a string.
unsafe fn core_of(driver: &Driver, name: *const c_char, len: u32) -> Outcome<u32> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name, len) }?;
    let core = (0..driver.setup.sim.n_cores).find(|&core| domain_name(core) == name);
    core.ok_or(code(host::AEE_EBADPARM))
}

/// A string that must be as long as is said, and not empty.
///
/// # Safety
/// `text` is null or a string.
unsafe fn text<'a>(text: *const c_char, len: u32) -> Outcome<&'a str> {
    let bad = code(host::AEE_EBADPARM);
    if text.is_null() {
        return Err(bad);
    }
    // SAFETY: not null, and so a string.
    let text = unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| bad)?;
    match text.len() == len as usize && len > 0 {
        true => Ok(text),
        false => Err(bad),
    }
}

/// The structure of a request, if there is one of the right size.
///
/// # Safety
/// `data` is null or readable and writable for `bytes`, and what is there is a `T`.
unsafe fn record<'a, T>(data: *mut c_void, bytes: u32) -> Outcome<&'a mut T> {
    let data = data.cast::<T>();
    match !data.is_null() && data.is_aligned() && bytes as usize == size_of::<T>() {
        // SAFETY: the caller's promise, with the size that a `T` has.
        true => Ok(unsafe { &mut *data }),
        false => Err(code(host::AEE_EBADPARM)),
    }
}
