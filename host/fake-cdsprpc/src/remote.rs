//! Libraries on a DSP (`remote_handle64_*`).

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::Arc;

use hexloom_abi::fastrpc::{DSP_CODE_OFFSET, ENTRY, RpcMethod, Scalars};
use hexloom_hexagon_sys::host;
use hexloom_sim::rpc::{self, RemoteArg, RemoteBuffer};

use crate::driver::{Outcome, SESSION_STRIDE, answer, code, domain_id, domain_name, driver};

/// "No such handle".
const EINVHANDLE: u32 = 0x2c;
/// "Not signed", as the DSP says it.
const EUNSIGNEDMOD: u32 = DSP_CODE_OFFSET | 0x81;
/// "Not supported", as the DSP says it.
const EUNSUPPORTED: u32 = DSP_CODE_OFFSET | host::AEE_EUNSUPPORTED;
/// "Not loaded", as the DSP says it.
const EUNABLETOLOAD: u32 = DSP_CODE_OFFSET | host::AEE_EUNABLETOLOAD;
/// Folders of libraries for the DSP.
const PATH_VARS: [&str; 2] = ["DSP_LIBRARY_PATH", "ADSP_LIBRARY_PATH"];

/// Opens a library by its address.
///
/// # Safety
/// `name` is null or a string that ends with 0; `handle` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remote_handle64_open(name: *const c_char, handle: *mut host::remote_handle64) -> c_int {
    if name.is_null() || handle.is_null() {
        return code(host::AEE_EBADPARM);
    }
    // SAFETY: a string, by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    match open(name) {
        Ok(opened) => {
            // SAFETY: not null, and so writable by the caller's promise.
            unsafe { handle.write(opened) };
            0
        }
        Err(code) => code,
    }
}

fn open(name: &CStr) -> Outcome<u64> {
    let driver = driver();
    driver.enter("remote_handle64_open")?;
    let address = name.to_str().map_err(|_| code(host::AEE_EBADPARM))?;
    let Address { file, effective } = Address::parse(address, driver.setup.sim.n_cores)?;
    let mut table = driver.lock();
    let process = table.process(driver, effective as c_int)?;
    let (library, connection) = (Arc::clone(&process.library), Arc::clone(&process.connection));
    let takes_unsigned = table
        .domains
        .get(&effective)
        .is_some_and(|domain| domain.takes_unsigned);
    drop(table);
    if takes_unsigned && !driver.setup.unsigned {
        return Err(code(EUNSUPPORTED));
    }
    if file != format!("libhexloom-v{}.so", driver.setup.sim.arch) || !is_in_a_folder(file) {
        return Err(code(EUNABLETOLOAD));
    }
    if !takes_unsigned && !driver.setup.signed {
        return Err(code(EUNSIGNEDMOD));
    }
    // A process that is gone takes no library.
    driver.outcome(effective, connection.hw_info().map(drop), host::AEE_ECONNRESET)?;
    let address = name.to_bytes_with_nul();
    let len = (address.len() as u32).to_ne_bytes();
    let mut args = [buffer(&len), buffer(address), RemoteArg { handle: 0 }];
    // SAFETY: three arguments as the method has them; both buffers live for the call, and inputs are only read.
    let result = unsafe { rpc::invoke(&*library, 0, RpcMethod::Open.scalars().0, args.as_mut_ptr()) };
    if result != 0 {
        return Err(code(result));
    }
    // SAFETY: the last argument is a handle.
    let remote = unsafe { args[2].handle };
    let mut table = driver.lock();
    let number = 0x5000_0000 + table.number();
    table.handles.insert(number, (effective, remote));
    Ok(number)
}

fn buffer(bytes: &[u8]) -> RemoteArg {
    RemoteArg {
        buffer: RemoteBuffer {
            address: bytes.as_ptr().cast_mut(),
            bytes: bytes.len(),
        },
    }
}

/// Whether a folder for the DSP has the file; without such folders it is taken to be where it belongs.
fn is_in_a_folder(file: &str) -> bool {
    let folders: Vec<String> = PATH_VARS.iter().filter_map(|name| std::env::var(name).ok()).collect();
    let mut each = folders
        .iter()
        .flat_map(|folders| folders.split(';'))
        .filter(|folder| !folder.is_empty());
    folders.iter().all(String::is_empty) || each.any(|folder| Path::new(folder).join(file).is_file())
}

/// What an address asks for.
struct Address<'a> {
    file: &'a str,
    effective: u32,
}

impl<'a> Address<'a> {
    fn parse(text: &'a str, n_cores: u32) -> Outcome<Self> {
        let bad = || code(host::AEE_EBADPARM);
        let (file, query) = text
            .strip_prefix("file:///")
            .and_then(|rest| rest.split_once('?'))
            .ok_or_else(bad)?;
        let mut words = query.split('&');
        if words.next() != Some(ENTRY) {
            return Err(code(EUNABLETOLOAD));
        }
        let (mut core, mut session) = (None, 0);
        for word in words {
            match word.split_once('=') {
                Some(("_dom", name)) => core = (0..n_cores).find(|&core| domain_name(core) == name),
                Some(("_session", number)) => session = number.parse().map_err(|_| bad())?,
                Some(("_modver", _)) => {}
                _ => return Err(bad()),
            }
        }
        let effective = domain_id(core.ok_or_else(bad)?) + SESSION_STRIDE * session;
        Ok(Self { file, effective })
    }
}

/// Calls an open library.
///
/// # Safety
/// `args` is null or as many arguments as `scalars` says, with buffers as [`rpc::invoke`] asks for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remote_handle64_invoke(
    handle: host::remote_handle64,
    scalars: u32,
    args: *mut host::remote_arg,
) -> c_int {
    let driver = driver();
    if let Err(code) = driver.enter("remote_handle64_invoke") {
        return code;
    }
    let found = {
        let mut table = driver.lock();
        let found = table.handles.get(&handle).copied();
        found.and_then(|(effective, remote)| {
            let library = Arc::clone(&table.running(effective)?.library);
            Some((effective, remote, library))
        })
    };
    let Some((effective, remote, library)) = found else {
        return code(EINVHANDLE);
    };
    // Opening and closing are the driver's own.
    if Scalars(scalars).method() < RpcMethod::Call.number() {
        return code(host::AEE_EBADPARM);
    }
    // SAFETY: the caller's promise; both types are the same argument.
    let result = unsafe { rpc::invoke(&*library, remote, scalars, args.cast()) };
    if library.is_dead() {
        driver.notify(effective, host::FASTRPC_USER_PD_EXCEPTION);
        return code(host::AEE_ECONNRESET);
    }
    code(result)
}

/// Closes a library, and with the last one the process.
#[unsafe(no_mangle)]
pub extern "C" fn remote_handle64_close(handle: host::remote_handle64) -> c_int {
    answer(close(handle))
}

fn close(handle: u64) -> Outcome {
    let driver = driver();
    driver.enter("remote_handle64_close")?;
    let mut table = driver.lock();
    let Some((effective, remote)) = table.handles.get(&handle).copied() else {
        table.breach("remote_handle64_close of what is no handle, or not any more".to_owned());
        return Err(code(EINVHANDLE));
    };
    if let Some(process) = table.running(effective) {
        let is_gone = process.library.is_dead() || process.connection.hw_info().is_err();
        let mut args = [RemoteArg { handle: remote }];
        let method = RpcMethod::Close.scalars().0;
        // SAFETY: one argument, a handle.
        let result = unsafe { rpc::invoke(&*process.library, remote, method, args.as_mut_ptr()) };
        if result != 0 && !is_gone {
            return Err(code(result));
        }
    }
    table.handles.remove(&handle);
    let is_last = !table.handles.values().any(|&(of, _)| of == effective);
    if is_last { table.end(driver, effective) } else { Ok(()) }
}

const _: () = assert!(
    size_of::<RemoteArg>() == size_of::<host::remote_arg>()
        && align_of::<RemoteArg>() == align_of::<host::remote_arg>()
);
