//! What the library exports: three functions that a FastRPC dispatcher calls, each a few lines over safe code.

use core::ffi::c_char;
use core::sync::atomic::{AtomicBool, Ordering};

use hexloom_abi::control::{ControlReply, ControlRequest};
use hexloom_hexagon_sys::dsp;
use zerocopy::IntoBytes;

use crate::session;

/// The one handle that is given out; a process has one session.
const HANDLE: u64 = 1;

static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Opens the library for its process; gives 0, or `AEE_EITEMBUSY` when it is open.
///
/// # Safety
/// `handle` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexloom_open(_uri: *const c_char, handle: *mut u64) -> u32 {
    if handle.is_null() {
        return dsp::AEE_EBADPARM;
    }
    if IS_OPEN.swap(true, Ordering::AcqRel) {
        return dsp::AEE_EITEMBUSY;
    }
    // SAFETY: not null, and so writable by the caller's promise.
    unsafe { handle.write(HANDLE) };
    dsp::AEE_SUCCESS
}

/// Closes it; gives 0, or `AEE_EITEMBUSY` while a session runs.
#[unsafe(no_mangle)]
pub extern "C" fn hexloom_close(handle: u64) -> u32 {
    if handle != HANDLE || !IS_OPEN.load(Ordering::Acquire) {
        return dsp::AEE_EBADPARM;
    }
    if session::is_running() {
        return dsp::AEE_EITEMBUSY;
    }
    IS_OPEN.store(false, Ordering::Release);
    dsp::AEE_SUCCESS
}

/// Answers one [`ControlRequest`] with one [`ControlReply`], whose status says how the call ended; gives 0, or
/// `AEE_EBADPARM` when there is nothing to read from or no room to write to.
///
/// # Safety
/// - `request` is null or readable for `request_bytes`;
/// - `reply` is null or writable for `reply_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexloom_call(
    handle: u64,
    request: *const u8,
    request_bytes: i32,
    reply: *mut u8,
    reply_bytes: i32,
) -> u32 {
    let holds = |bytes: i32, needed: usize| usize::try_from(bytes).is_ok_and(|bytes| bytes >= needed);
    let fits = holds(request_bytes, 0) && holds(reply_bytes, size_of::<ControlReply>());
    if handle != HANDLE || request.is_null() || reply.is_null() || !fits {
        return dsp::AEE_EBADPARM;
    }
    // The host's copy may change while it is read, so it is copied once.
    let mut message = [0u8; size_of::<ControlRequest>() + 1];
    let len = message.len().min(request_bytes as usize);
    // SAFETY: readable for `request_bytes`, of which `len` are copied to private memory.
    unsafe { core::ptr::copy_nonoverlapping(request, message.as_mut_ptr(), len) };
    let answer = session::call(&message[..len]);
    let bytes = answer.as_bytes();
    // SAFETY: writable for `reply_bytes`, which was found to be at least the answer's length.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), reply, bytes.len()) };
    dsp::AEE_SUCCESS
}
