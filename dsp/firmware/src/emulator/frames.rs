//! Log frames go to the host over standard output, each with one write, so that frames of two threads do not mix.

use hexloom_dsp::log::FrameWriter;

use crate::sys;

/// Standard output.
const FRAMES: i32 = 1;

static WRITER: FrameWriter = FrameWriter::new();

#[defmt::global_logger]
struct Logger;

// SAFETY: `WRITER` lets one thread through at a time, from `acquire` to `release`.
unsafe impl defmt::Logger for Logger {
    fn acquire() {
        WRITER.acquire(core::hint::spin_loop);
    }

    unsafe fn flush() {}

    unsafe fn release() {
        // SAFETY: `acquire` came before.
        unsafe { WRITER.release(|frame| sys::write(FRAMES, frame)) };
    }

    unsafe fn write(bytes: &[u8]) {
        // SAFETY: `acquire` came before.
        unsafe { WRITER.write(bytes) };
    }
}
