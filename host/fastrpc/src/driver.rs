//! Each call of the driver library as a safe function: arguments that fit, results with words and remedy.

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use hexloom::transport::{MapKind, SharedMemory, TransportError, aee};
use hexloom_abi::control::{ControlReply, ControlRequest};
use hexloom_abi::fastrpc::RpcMethod;
use hexloom_hexagon_sys::host;
use zerocopy::{FromZeros, IntoBytes};

use crate::calls::Calls;
use crate::notices::Notices;

const PAGE_BYTES: u64 = 4096;
/// Room for the address of a library with the names of core and session.
const ADDRESS_BYTES: usize = 256;

/// An open driver library.
pub(crate) struct Driver {
    pub(crate) calls: Calls,
    pub(crate) notices: Notices,
}

/// A session that was set aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reserved {
    pub(crate) domain: u32,
    pub(crate) session: u32,
    pub(crate) effective: u32,
}

impl Driver {
    pub(crate) fn new(calls: Calls) -> Self {
        Self {
            calls,
            notices: Notices::default(),
        }
    }

    pub(crate) fn library(&self) -> &Path {
        &self.calls.path
    }

    pub(crate) fn missing_calls(&self) -> Vec<&'static str> {
        self.calls.missing()
    }

    /// Architecture number of a core.
    pub(crate) fn arch(&self, domain: u32) -> Result<u32, TransportError> {
        const CALL: &str = "remote_handle_control";
        let what = format!("the architecture of domain {domain}; name it with an option");
        match self.capability(domain, host::ARCH_VER) {
            Some(Ok(capability)) => arch_of(capability)
                .ok_or_else(|| aee::failed(CALL, aee::EUNSUPPORTED, format!("{what} (it says {capability:#x})"))),
            Some(Err(code)) => Err(aee::failed(CALL, code, what)),
            None => Err(aee::failed(CALL, aee::EUNSUPPORTEDAPI, what)),
        }
    }

    /// Whether a core's processes may take unsigned libraries, when the driver says.
    pub(crate) fn takes_unsigned(&self, domain: u32) -> Option<bool> {
        let answer = self.capability(domain, host::UNSIGNED_PD_SUPPORT)?;
        answer.ok().map(|capability| capability != 0)
    }

    /// Whether a core is there, when the driver says.
    pub(crate) fn has_domain(&self, domain: u32) -> Option<bool> {
        let answer = self.capability(domain, host::DOMAIN_SUPPORT)?;
        Some(answer.is_ok_and(|capability| capability != 0))
    }

    /// What a core has; `None` when the library lacks the call.
    fn capability(&self, domain: u32, attribute: u32) -> Option<Result<u32, i32>> {
        let control = self.calls.remote_handle_control?;
        let mut asked = host::fastrpc_capability {
            domain,
            attribute_ID: attribute,
            capability: 0,
        };
        let (data, bytes) = record(&mut asked);
        // SAFETY: the request goes with this structure, which is live for the call.
        let result = unsafe { control(host::DSPRPC_GET_DSP_INFO, data, bytes) };
        Some(if result == 0 { Ok(asked.capability) } else { Err(result) })
    }

    /// Asks or sets what is a session's; `None` when the library lacks the call.
    ///
    /// # Safety
    /// `T` is the structure of `request`; pointers in it are valid as that request asks.
    unsafe fn session_control<T>(&self, request: u32, asked: &mut T) -> Option<c_int> {
        let control = self.calls.remote_session_control?;
        let (data, bytes) = record(asked);
        // SAFETY: the caller's promise; the structure is live for the call.
        Some(unsafe { control(request, data, bytes) })
    }

    /// Says whether a session's next process takes unsigned libraries, which the driver remembers until it is told
    /// otherwise; false when it has no such thing.
    pub(crate) fn set_unsigned(&self, effective: u32, unsigned: bool) -> Result<bool, TransportError> {
        let mut asked = host::remote_rpc_control_unsigned_module {
            domain: effective as c_int,
            enable: unsigned.into(),
        };
        // SAFETY: the structure of the request, without pointers.
        match unsafe { self.session_control(host::DSPRPC_CONTROL_UNSIGNED_MODULE, &mut asked) } {
            None => Ok(false),
            Some(0) => Ok(true),
            Some(code) => {
                let what = format!("whether processes on domain {effective} take unsigned libraries");
                Err(aee::failed("remote_session_control", code, what))
            }
        }
    }

    /// Sets a session aside, beside the first one of a core.
    pub(crate) fn reserve(&self, id: u32, domain: &CStr, name: &CStr) -> Result<Reserved, TransportError> {
        let mut asked = host::remote_rpc_reserve_new_session_t {
            domain_name: domain.as_ptr().cast_mut(),
            domain_name_len: domain.count_bytes() as u32,
            session_name: name.as_ptr().cast_mut(),
            session_name_len: name.count_bytes() as u32,
            ..Default::default()
        };
        let what = || format!("a session more on {}", domain.to_string_lossy());
        // SAFETY: the structure of the request; both names live for the call, which does not write them.
        match unsafe { self.session_control(host::FASTRPC_RESERVE_NEW_SESSION, &mut asked) } {
            Some(0) => Ok(Reserved {
                domain: id,
                session: asked.session_id,
                effective: asked.effective_domain_id,
            }),
            Some(code) => Err(aee::failed("remote_session_control", code, what())),
            None => Err(aee::failed("remote_session_control", aee::EUNSUPPORTEDAPI, what())),
        }
    }

    /// The effective number of a core's first session, when the driver says.
    pub(crate) fn effective(&self, domain: &CStr) -> Option<u32> {
        let mut asked = host::remote_rpc_effective_domain_id_t {
            domain_name: domain.as_ptr().cast_mut(),
            domain_name_len: domain.count_bytes() as u32,
            ..Default::default()
        };
        // SAFETY: the structure of the request; the name lives for the call, which does not write it.
        let result = unsafe { self.session_control(host::FASTRPC_GET_EFFECTIVE_DOMAIN_ID, &mut asked) };
        (result == Some(0)).then_some(asked.effective_domain_id)
    }

    /// The address of a library in a session, when the driver makes one.
    pub(crate) fn address(&self, domain: &CStr, session: u32, module: &CStr) -> Option<CString> {
        let mut address = [0u8; ADDRESS_BYTES];
        let mut asked = host::remote_rpc_get_uri_t {
            domain_name: domain.as_ptr().cast_mut(),
            domain_name_len: domain.count_bytes() as u32,
            session_id: session,
            module_uri: module.as_ptr().cast_mut(),
            module_uri_len: module.count_bytes() as u32,
            uri: address.as_mut_ptr().cast(),
            uri_len: ADDRESS_BYTES as u32,
        };
        // SAFETY: the structure of the request; names live for the call, which writes the room for the answer only.
        let result = unsafe { self.session_control(host::FASTRPC_GET_URI, &mut asked) };
        let address = CStr::from_bytes_until_nul(&address).ok()?;
        (result == Some(0) && !address.is_empty()).then(|| address.to_owned())
    }

    /// Has a function called when something becomes of a process on a domain; false when the driver has no such thing.
    ///
    /// # Safety
    /// `call` may be called with `context` from any thread for the life of the program.
    pub(crate) unsafe fn notify(&self, domain: u32, call: host::fastrpc_notif_fn_t, context: *mut c_void) -> bool {
        let mut asked = host::remote_rpc_notif_register_t {
            context,
            domain: domain as c_int,
            notifier_fn: call,
        };
        // SAFETY: the structure of the request; the caller's promise.
        unsafe { self.session_control(host::FASTRPC_REGISTER_STATUS_NOTIFICATIONS, &mut asked) == Some(0) }
    }

    /// Ends a session's process from outside, so that calls which wait for it come back; for calls that never would.
    pub(crate) fn kill(&self, effective: u32) {
        let mut asked = host::remote_rpc_process_clean_params {
            domain: effective as c_int,
        };
        // SAFETY: the structure of the request, without pointers.
        let result = unsafe { self.session_control(host::FASTRPC_REMOTE_PROCESS_KILL, &mut asked) };
        log::warn!("killing the process of domain {effective}: {result:?}");
    }

    /// Ends a session's process, if it has one still.
    pub(crate) fn end(&self, effective: u32) {
        let mut asked = host::remote_rpc_session_close {
            domain: effective as c_int,
        };
        // SAFETY: the structure of the request, without pointers.
        let result = unsafe { self.session_control(host::FASTRPC_SESSION_CLOSE, &mut asked) };
        log::debug!("ending the process of domain {effective}: {result:?}");
    }

    /// Opens a library.
    pub(crate) fn open(&self, address: &CStr) -> Result<u64, i32> {
        let mut handle = 0;
        // SAFETY: a string and an output, both live for the call.
        let result = unsafe { (self.calls.remote_handle64_open)(address.as_ptr(), &raw mut handle) };
        if result == 0 { Ok(handle) } else { Err(result) }
    }

    /// Closes it.
    pub(crate) fn close(&self, handle: u64) -> Result<(), i32> {
        // SAFETY: takes a number only.
        let result = unsafe { (self.calls.remote_handle64_close)(handle) };
        if result == 0 { Ok(()) } else { Err(result) }
    }

    /// Calls it with a control message.
    pub(crate) fn call(&self, handle: u64, request: &ControlRequest) -> Result<ControlReply, i32> {
        let mut reply = ControlReply::new_zeroed();
        let out = reply.as_mut_bytes();
        let buffer = |address: *mut u8, bytes| host::remote_arg {
            buf: host::remote_buf {
                pv: address.cast(),
                nLen: bytes,
            },
        };
        let request = request.as_bytes();
        let mut args = [
            buffer(request.as_ptr().cast_mut(), request.len()),
            buffer(out.as_mut_ptr(), out.len()),
        ];
        let scalars = RpcMethod::Call.scalars().0;
        // SAFETY: two arguments as the word says, an input that is not written and an output, both live for the call.
        let result = unsafe { (self.calls.remote_handle64_invoke)(handle, scalars, args.as_mut_ptr()) };
        if result == 0 { Ok(reply) } else { Err(result) }
    }

    /// Keeps the host's processor ready for answers; what is refused costs time and nothing else.
    pub(crate) fn set_latency(&self, handle: u64, latency_us: u32) {
        let Some(control) = self.calls.remote_handle64_control else {
            return;
        };
        let mut asked = host::remote_rpc_control_latency {
            enable: host::RPC_PM_QOS,
            latency: latency_us,
        };
        let (data, bytes) = record(&mut asked);
        // SAFETY: the request goes with this structure, which is live for the call.
        let result = unsafe { control(handle, host::DSPRPC_CONTROL_LATENCY, data, bytes) };
        if result != 0 {
            log::warn!("the latency of {latency_us} us was refused: {}", aee::decode(result));
        }
    }

    /// Makes an allocation known to a session.
    pub(crate) fn map(&self, effective: u32, fd: u32, address: usize, bytes: u64, kind: MapKind) -> Result<(), i32> {
        let flags = match kind {
            MapKind::Pinned => host::FASTRPC_MAP_FD,
            MapKind::Lazy => host::FASTRPC_MAP_FD_DELAYED,
            MapKind::Extended => host::FASTRPC_MAP_FD_DELAYED_EXTENDED,
            MapKind::ExtendedNow => host::FASTRPC_MAP_FD_EXTENDED,
        };
        let (domain, fd) = (effective as c_int, fd as c_int);
        // SAFETY: the driver looks the memory up by its descriptor; the address is that of a live allocation or refused.
        let result = unsafe { (self.calls.fastrpc_mmap)(domain, fd, address as *mut c_void, 0, bytes as usize, flags) };
        if result == 0 { Ok(()) } else { Err(result) }
    }

    /// Takes that back.
    pub(crate) fn unmap(&self, effective: u32, fd: u32, address: usize, bytes: u64) -> Result<(), i32> {
        let (domain, fd) = (effective as c_int, fd as c_int);
        // SAFETY: the driver looks the mapping up by its descriptor and touches no memory of the program.
        let result = unsafe { (self.calls.fastrpc_munmap)(domain, fd, address as *mut c_void, bytes as usize) };
        if result == 0 { Ok(()) } else { Err(result) }
    }
}

/// Allocates shared memory, zeroed: no system hands a program pages of another one. It is not touched here.
pub(crate) fn alloc(driver: &Arc<Driver>, bytes: u64) -> Result<SharedMemory, TransportError> {
    let what = || format!("{bytes} bytes");
    let no_memory = |call| aee::failed(call, aee::ENOMEMORY, what());
    let rounded = bytes.max(1).checked_next_multiple_of(PAGE_BYTES);
    let rounded = rounded.and_then(|bytes| usize::try_from(bytes).ok());
    let rounded = rounded.ok_or_else(|| no_memory("rpcmem_alloc2"))?;
    let (heap, flags) = (host::RPCMEM_HEAP_ID_SYSTEM as c_int, host::RPCMEM_DEFAULT_FLAGS);
    let (call, address) = match (driver.calls.rpcmem_alloc2, driver.calls.rpcmem_alloc) {
        // SAFETY: takes numbers only.
        (Some(alloc), _) => ("rpcmem_alloc2", unsafe { alloc(heap, flags, rounded) }),
        (None, Some(alloc)) => {
            let Ok(small) = c_int::try_from(rounded) else {
                let what = format!("{bytes} bytes: the driver allocates less than 2 GiB at a time");
                return Err(aee::failed("rpcmem_alloc", aee::EUNSUPPORTED, what));
            };
            // SAFETY: takes numbers only.
            ("rpcmem_alloc", unsafe { alloc(heap, flags, small) })
        }
        (None, None) => return Err(aee::failed("rpcmem_alloc", aee::EUNSUPPORTEDAPI, what())),
    };
    // Drivers are known that give what a failed `mmap` gave them, which is not null.
    let is_page = (address.addr() as u64).is_multiple_of(PAGE_BYTES);
    let ptr = NonNull::new(address.cast::<u8>()).filter(|_| is_page);
    let ptr = ptr.ok_or_else(|| no_memory(call))?;
    // SAFETY: an allocation that was just made.
    let fd = unsafe { (driver.calls.rpcmem_to_fd)(address) };
    let free = Free(Arc::clone(driver), ptr.as_ptr() as usize);
    let fd = u32::try_from(fd).map_err(|_| aee::failed("rpcmem_to_fd", aee::EINVALIDFD, what()))?;
    // SAFETY: the bytes stay until `free` is dropped, which happens in `release` alone.
    Ok(unsafe { SharedMemory::new(ptr, rounded as u64, fd, move || drop(free)) })
}

/// An allocation that is given back when dropped.
struct Free(Arc<Driver>, usize);

impl Drop for Free {
    fn drop(&mut self) {
        // SAFETY: the address is that of an allocation of this driver, given back here and nowhere else.
        unsafe { (self.0.calls.rpcmem_free)(self.1 as *mut c_void) };
    }
}

/// The two decimal digits of a number that is written as if they were hexadecimal ones, in the low byte.
fn arch_of(capability: u32) -> Option<u32> {
    let (tens, ones) = (capability >> 4 & 0xf, capability & 0xf);
    (tens <= 9 && ones <= 9 && tens > 0).then_some(tens * 10 + ones)
}

fn record<T>(record: &mut T) -> (*mut c_void, u32) {
    ((&raw mut *record).cast(), size_of::<T>() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_written_in_decimal() {
        for (capability, arch) in [(0x73, 73), (0x68, 68), (0x8d81, 81), (0x0012_0375, 75)] {
            assert_eq!(arch_of(capability), Some(arch));
        }
        for nonsense in [0, 0x7a, 0xa7, 5] {
            assert_eq!(arch_of(nonsense), None, "{nonsense:#x}");
        }
    }
}
