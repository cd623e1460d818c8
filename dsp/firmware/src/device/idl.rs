//! What the dispatcher of the SDK's IDL compiler calls (`toolchains/sdk/hexloom.idl`), where it takes the place of ours.
//! It hands over buffers that are aligned as that file's words are, to 4 bytes.

use core::ffi::{CStr, c_char};

use hexloom_abi::control::{ControlReply, ControlRequest};
use hexloom_abi::fastrpc::RpcRefusal;
use hexloom_dsp::rpc::Service as _;

use crate::entry::Library;

/// Opens the library for its process.
///
/// # Safety
/// - `address` is null or ends with a zero;
/// - `handle` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexloom_open(address: *const c_char, handle: *mut u64) -> u32 {
    if address.is_null() || handle.is_null() {
        return RpcRefusal::BadArguments.code();
    }
    // SAFETY: not null, and so with a zero at its end by the caller's promise.
    let address = unsafe { CStr::from_ptr(address) };
    match Library.open(address.to_bytes()) {
        Ok(opened) => {
            // SAFETY: not null, and so writable by the caller's promise.
            unsafe { handle.write(opened) };
            0
        }
        Err(refusal) => refusal.code(),
    }
}

/// Closes it.
#[unsafe(no_mangle)]
pub extern "C" fn hexloom_close(handle: u64) -> u32 {
    Library.close(handle).map_or_else(RpcRefusal::code, |()| 0)
}

/// Answers a control message.
///
/// # Safety
/// - `message` is null or readable;
/// - `answer` is null or writable; the interface's structures are of 4-byte words, so it is aligned to no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexloom_call(
    handle: u64,
    message: *const [u8; size_of::<ControlRequest>()],
    answer: *mut ControlReply,
) -> u32 {
    if message.is_null() || answer.is_null() {
        return RpcRefusal::BadArguments.code();
    }
    // SAFETY: not null, and so readable by the caller's promise; bytes need no alignment.
    let message = unsafe { message.read() };
    match Library.call(handle, &message) {
        Ok(reply) => {
            // SAFETY: not null, and so writable by the caller's promise; it need not be aligned.
            unsafe { answer.write_unaligned(reply) };
            0
        }
        Err(refusal) => refusal.code(),
    }
}
