//! The system's log (FARF): lines of text for what goes wrong here, and log frames as lines of hexadecimal digits.

use core::fmt::Write as _;

use heapless::String;
use hexloom_dsp::log::{FRAME_BYTES, FrameWriter};
use hexloom_hexagon_sys::dsp;

use crate::arch::ARCH;

/// Of interest to whoever looks for the reason of something.
pub(crate) const HIGH: u32 = dsp::HAP_LEVEL_HIGH;
/// Something is wrong.
pub(crate) const ERROR: u32 = dsp::HAP_LEVEL_ERROR;
/// The process ends.
pub(crate) const FATAL: u32 = dsp::HAP_LEVEL_FATAL;

/// Bytes of a line, with room for a whole frame in digits.
const LINE_BYTES: usize = 2 * FRAME_BYTES + 64;

/// Writes one line: what happened, and a number with its name.
pub(crate) fn line(level: u32, what: &str, name: &str, number: u32) {
    let mut text = String::new();
    // A line that is too long is cut.
    let _ = write!(text, "hexloom: {what} {name} {number}");
    put(level, &mut text);
}

/// Frames go out as `hexloom-frame ARCH BASE DIGITS`: the decoder needs to know which library's texts are meant, and where
/// that is in memory, because the indices in frames count from there.
fn frame(bytes: &[u8]) {
    let mut text = String::new();
    let _ = write!(text, "hexloom-frame {ARCH} {:x} ", load_base());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    put(HIGH, &mut text);
}

/// Where the loader has put the library.
fn load_base() -> usize {
    unsafe extern "C" {
        /// The library's first byte, by the linker.
        static __ehdr_start: u8;
    }
    (&raw const __ehdr_start) as usize
}

fn put(level: u32, text: &mut String<LINE_BYTES>) {
    if text.len() == text.capacity() {
        text.pop();
    }
    let _ = text.push('\0');
    // SAFETY: three strings that end with 0; the format takes the one argument.
    unsafe { dsp::HAP_debug_v2(level as i32, c"hexloom".as_ptr(), 0, c"%s".as_ptr(), text.as_ptr()) };
}

#[defmt::global_logger]
struct Logger;

static WRITER: FrameWriter = FrameWriter::new();

// SAFETY: `WRITER` lets one thread through at a time, from `acquire` to `release`.
unsafe impl defmt::Logger for Logger {
    fn acquire() {
        // SAFETY: takes a number only.
        WRITER.acquire(|| unsafe { dsp::qurt_sleep(10) });
    }

    unsafe fn flush() {}

    unsafe fn release() {
        // SAFETY: `acquire` came before.
        unsafe { WRITER.release(frame) };
    }

    unsafe fn write(bytes: &[u8]) {
        // SAFETY: `acquire` came before.
        unsafe { WRITER.write(bytes) };
    }
}
