//! What the DSP half tells its developers: one function for each event, a `defmt` frame where the firmware takes frames.
//!
//! Without the feature `defmt` (on a PC) the functions do nothing. Frames are a few bytes: an index into a table that stays
//! in the image's file on the host, and the numbers.

/// Declares the events.
macro_rules! events {
    ($($(#[$doc:meta])* $level:ident $name:ident($($arg:ident: $kind:ty),*) $text:literal;)*) => {$(
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($($arg: $kind),*) {
            #[cfg(feature = "defmt")]
            defmt::$level!($text, $($arg),*);
            #[cfg(not(feature = "defmt"))]
            let _ = ($($arg),*);
        }
    )*};
}

events! {
    /// A session has everything that it needs.
    info session_started(n_threads: u32, scratch_bytes: u32, window_bytes: u64)
        "session: {=u32} threads, {=u32} bytes of scratch, a window of {=u64} bytes";
    /// A mapping went to make room.
    info mapping_evicted(fd: u32, bytes: u64) "window: fd {=u32} evicted, {=u64} bytes";
    /// Mappings were dropped and made again to close holes.
    warn window_defragmented(n_mappings: u32, bytes: u64)
        "window: {=u32} mappings made again to close holes, {=u64} bytes";
    /// A batch was refused before its first op.
    warn batch_refused(seq: u64, status: &str, detail: u32) "batch {=u64} refused: {=str}, detail {=u32}";
    /// An op failed, and its batch with it.
    warn op_failed(seq: u64, op_idx: u32, opcode: &str, status: &str, detail: u32)
        "batch {=u64}: op {=u32} ({=str}): {=str}, detail {=u32}";
    /// A kernel panicked on a worker, or was unwound there.
    error worker_panicked(idx: u32) "pool: thread {=u32} panicked";
    /// Workers did not come back in time.
    error workers_stuck(n_running: u32, limit_us: u64) "pool: {=u32} threads are not done after {=u64} us";
}

#[cfg(feature = "defmt")]
pub use frames::{FRAME_BYTES, FrameWriter};

#[cfg(feature = "defmt")]
mod frames {
    use core::cell::UnsafeCell;
    use core::sync::atomic::{AtomicBool, Ordering};

    use heapless::Vec;

    /// Bytes of the longest frame; a longer one is left out.
    pub const FRAME_BYTES: usize = 240;

    /// The encoder behind a firmware's logger: whole frames, one thread at a time.
    pub struct FrameWriter {
        held: AtomicBool,
        frame: UnsafeCell<Frame>,
    }

    struct Frame {
        encoder: defmt::Encoder,
        bytes: Vec<u8, FRAME_BYTES>,
        is_cut: bool,
    }

    // SAFETY: the frame is touched between `acquire` and `release` only, by whoever turned `held` from false to true.
    unsafe impl Sync for FrameWriter {}

    impl Frame {
        fn push(bytes: &mut Vec<u8, FRAME_BYTES>, is_cut: &mut bool, more: &[u8]) {
            *is_cut |= bytes.extend_from_slice(more).is_err();
        }
    }

    impl FrameWriter {
        /// A writer with nothing in it.
        pub const fn new() -> Self {
            Self {
                held: AtomicBool::new(false),
                frame: UnsafeCell::new(Frame {
                    encoder: defmt::Encoder::new(),
                    bytes: Vec::new(),
                    is_cut: false,
                }),
            }
        }

        /// Begins a frame. `pause` is called while another thread writes one, which takes it no longer than a copy.
        pub fn acquire(&self, pause: impl Fn()) {
            while self.held.swap(true, Ordering::Acquire) {
                pause();
            }
            // SAFETY: `held` is ours.
            let Frame { encoder, bytes, is_cut } = unsafe { &mut *self.frame.get() };
            bytes.clear();
            *is_cut = false;
            encoder.start_frame(|more| Frame::push(bytes, is_cut, more));
        }

        /// Adds to the frame.
        ///
        /// # Safety
        /// The caller is between [`FrameWriter::acquire`] and [`FrameWriter::release`].
        pub unsafe fn write(&self, data: &[u8]) {
            // SAFETY: `held` is the caller's.
            let Frame { encoder, bytes, is_cut } = unsafe { &mut *self.frame.get() };
            encoder.write(data, |more| Frame::push(bytes, is_cut, more));
        }

        /// Ends the frame and hands it to `send`, unless it was too long.
        ///
        /// # Safety
        /// The caller has called [`FrameWriter::acquire`], and not this since.
        pub unsafe fn release(&self, send: impl FnOnce(&[u8])) {
            // SAFETY: `held` is the caller's.
            let Frame { encoder, bytes, is_cut } = unsafe { &mut *self.frame.get() };
            encoder.end_frame(|more| Frame::push(bytes, is_cut, more));
            if !*is_cut {
                send(bytes);
            }
            self.held.store(false, Ordering::Release);
        }
    }

    impl Default for FrameWriter {
        fn default() -> Self {
            Self::new()
        }
    }
}
