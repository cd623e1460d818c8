//! What the library exports: the function that FastRPC calls, a few lines over safe code, and the address it is found by.
//! With the feature `idl-skel` these two are the vendor's, and call [`crate::idl`].

use core::sync::atomic::{AtomicBool, Ordering};

use hexloom_abi::control::{ControlReply, ControlRequest};
use hexloom_abi::fastrpc::RpcRefusal;
use hexloom_dsp::control;
use hexloom_dsp::rpc::Service;
#[cfg(not(feature = "idl-skel"))]
use hexloom_dsp::rpc::{self, RemoteArg};

use crate::session;

/// The one handle that is given out; a process has one session.
const HANDLE: u64 = 1;

/// The library's address; what opens it adds a core and a session.
#[cfg(not(feature = "idl-skel"))]
const ADDRESS: &str = concat!(
    "file:///libhexloom-v",
    env!("HEXLOOM_ARCH"),
    ".so?hexloom_skel_handle_invoke&_modver=1.0\0"
);

static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// The address in the library's image, where tools look for it.
#[cfg(not(feature = "idl-skel"))]
#[allow(non_upper_case_globals, reason = "the name that the system's tools look for")]
#[unsafe(no_mangle)]
pub static hexloom_skel_handle_invoke_uri: [u8; ADDRESS.len()] = *ADDRESS.as_bytes().first_chunk().unwrap();

/// Takes a call of FastRPC: [`hexloom_abi::fastrpc::RpcMethod`]. Gives 0, or a code with the DSP's offset.
///
/// # Safety
/// As FastRPC's dispatcher calls it: [`rpc::invoke`] says what holds for the arguments.
#[cfg(not(feature = "idl-skel"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexloom_skel_handle_invoke(handle: u64, scalars: u32, args: *mut RemoteArg) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { rpc::invoke(&Library, handle, scalars, args) }
}

/// This library, of which a process has one.
pub(crate) struct Library;

impl Service for Library {
    fn open(&self, _address: &[u8]) -> Result<u64, RpcRefusal> {
        match IS_OPEN.swap(true, Ordering::AcqRel) {
            true => Err(RpcRefusal::Busy),
            false => Ok(HANDLE),
        }
    }

    fn close(&self, handle: u64) -> Result<(), RpcRefusal> {
        self.check(handle)?;
        if session::is_running() {
            return Err(RpcRefusal::Busy);
        }
        IS_OPEN.store(false, Ordering::Release);
        Ok(())
    }

    fn call(&self, handle: u64, message: &[u8]) -> Result<ControlReply, RpcRefusal> {
        self.check(handle)?;
        // The host's copy may change while it is read, so it is copied once; one byte more tells what is too long.
        let mut copy = [0u8; size_of::<ControlRequest>() + 1];
        let len = copy.len().min(message.len());
        copy[..len].copy_from_slice(&message[..len]);
        Ok(control::answer(&session::Process, &copy[..len]))
    }
}

impl Library {
    fn check(&self, handle: u64) -> Result<(), RpcRefusal> {
        match handle == HANDLE && IS_OPEN.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(RpcRefusal::BadArguments),
        }
    }
}
