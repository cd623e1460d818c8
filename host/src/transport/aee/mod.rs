//! The platform's error codes ("AEE"), decoded to words, likely causes and what to do.
//!
//! The host's half of FastRPC gives the numbers of the table as they are, the DSP's half adds [`DSP_OFFSET`], and the
//! kernel's come negative. [`decode`] tells them apart.

mod table;

use std::fmt::{self, Display};

use super::TransportError;
use table::{ROWS, Remedy};

/// The platform refused and does not say why.
pub const EFAILED: i32 = 0x01;
/// Out of memory.
pub const ENOMEMORY: i32 = 0x02;
/// A library could not be loaded.
pub const EUNABLETOLOAD: i32 = 0x06;
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
/// There is no such descriptor.
pub const EINVALIDFD: i32 = 0x3a;
/// The memory is not mapped.
pub const ENOSUCHMAP: i32 = 0x48;
/// Room of the wrong size.
pub const EBADSIZE: i32 = 0x4d;
/// The driver does not know the request.
pub const EUNSUPPORTEDAPI: i32 = 0x6c;
/// The connection to the DSP was reset. As 0x68 it also is the driver's "no memory to share"; [`decode`] takes the call
/// into account.
pub const ECONNRESET: i32 = 104;
/// The DSP refused the connection.
pub const ECONNREFUSED: i32 = 0x72;
/// No session is left.
pub const ENOSESSION: i32 = 0x8a;
/// FastRPC itself failed.
pub const ERPC: i32 = 0x200;
/// Nothing there, and the call was told not to wait.
pub const EWOULDBLOCK: i32 = 516;

/// What the DSP's half adds to the numbers above.
pub const DSP_OFFSET: i32 = 0x8000_0400_u32 as i32;

/// Most that an error number of the kernel can be.
const MAX_ERRNO: i32 = 1024;

/// Which half of the platform a code is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The driver library.
    Host,
    /// The DSP.
    Dsp,
    /// The kernel.
    Kernel,
}

/// What a code means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// Where it is from.
    pub side: Side,
    /// Its name, without the `AEE_` in front.
    pub name: &'static str,
    /// What it means and what most often causes it.
    pub words: &'static str,
    /// What to do, as a sentence.
    pub remedy: &'static str,
}

/// Decodes a code, of any call.
pub fn decode(code: i32) -> Decoded {
    let (side, number) = split(code);
    let row = match side {
        Side::Kernel => table::errno(number),
        Side::Host | Side::Dsp => ROWS.iter().find(|row| i32::from(row.code) == number),
    };
    match row {
        Some(row) => Decoded {
            side,
            name: row.name,
            words: row.words,
            remedy: row.remedy.text(),
        },
        None => Decoded {
            side,
            name: "unknown",
            words: "unknown code",
            remedy: Remedy::Report.text(),
        },
    }
}

/// Decodes a code of `call`: one number has two meanings, of which an allocation has the second.
pub fn decode_of(call: &str, code: i32) -> Decoded {
    match code {
        ECONNRESET if call.starts_with("rpcmem") => Decoded {
            name: table::NO_RPC_MEMORY.name,
            words: table::NO_RPC_MEMORY.words,
            remedy: table::NO_RPC_MEMORY.remedy.text(),
            ..decode(code)
        },
        _ => decode(code),
    }
}

/// The half that a code is from, and the number without what that half adds.
pub fn split(code: i32) -> (Side, i32) {
    match code.wrapping_sub(DSP_OFFSET) {
        number @ 0..=0x3ff => (Side::Dsp, number),
        _ if (-MAX_ERRNO..0).contains(&code) => (Side::Kernel, -code),
        _ => (Side::Host, code),
    }
}

/// Whether a code has this number, whichever half it is from.
pub fn is(code: i32, number: i32) -> bool {
    matches!(split(code), (Side::Host | Side::Dsp, found) if found == number)
}

/// What a code means and what most often causes it.
pub fn words(code: i32) -> &'static str {
    decode(code).words
}

/// The error of a call that failed with `code`; `what` has the names and numbers.
pub fn failed(call: &'static str, code: i32, what: impl Display) -> TransportError {
    TransportError::Call {
        call,
        reason: format!("{what}: {}", decode_of(call, code)),
        code,
    }
}

impl Display for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Host => "",
            Side::Dsp => "on the DSP, ",
            Side::Kernel => "in the kernel, ",
        };
        write!(
            f,
            "{side}{} ({}). {}",
            self.words,
            self.name,
            self.remedy.trim_end_matches('.')
        )
    }
}

#[cfg(test)]
mod tests;
