//! The platform's error codes ("AEE"), decoded to words with likely causes. Values are those that the host's half of
//! FastRPC gives.

use std::fmt::Display;

use super::TransportError;

/// The platform refused and does not say why.
pub const EFAILED: i32 = 0x01;
/// Out of memory.
pub const ENOMEMORY: i32 = 0x02;
/// A wait ended without what was waited for.
pub const EEXPIRED: i32 = 0x0c;
/// Not allowed in the present state.
pub const EBADSTATE: i32 = 0x0d;
/// An argument is outside what is allowed, or the thing is still in use.
pub const EBADPARM: i32 = 0x0e;
/// The platform or the architecture does not have it.
pub const EUNSUPPORTED: i32 = 0x14;
/// Done before.
pub const EALREADY: i32 = 0x1a;
/// In use by somebody else.
pub const EITEMBUSY: i32 = 0x20;
/// There is no such thing.
pub const ENOSUCH: i32 = 39;
/// The call was interrupted.
pub const EINTERRUPTED: i32 = 46;
/// The memory is not mapped.
pub const ENOSUCHMAP: i32 = 0x48;
/// No session is left.
pub const ENOSESSION: i32 = 0x8a;
/// The connection to the DSP was reset.
pub const ECONNRESET: i32 = 104;

/// What a code means and what most often causes it.
pub fn words(code: i32) -> &'static str {
    match code {
        EFAILED => "refused without a reason; for a map, mostly a full or fragmented window",
        ENOMEMORY => "out of memory",
        EEXPIRED => "no answer in time",
        EBADSTATE => "not allowed now; the DSP process may be gone",
        EBADPARM => "bad argument, or still in use",
        EUNSUPPORTED => "not supported by this platform or architecture",
        EALREADY => "done before",
        EITEMBUSY => "in use",
        ENOSUCH => "no such thing",
        EINTERRUPTED => "interrupted; the DSP process has most likely ended",
        ENOSUCHMAP => "not mapped",
        ENOSESSION => "no session is left; close one",
        ECONNRESET => "the connection was reset; the DSP process or the whole DSP has restarted",
        _ => "unknown code",
    }
}

/// The error of a call that failed with `code`; `what` has the names and numbers.
pub fn failed(call: &'static str, code: i32, what: impl Display) -> TransportError {
    TransportError::Call {
        call,
        reason: format!("{what}: {}", words(code)),
        code,
    }
}
