//! A value that one thread at a time may look at, with a deadline for the wait.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hexloom_hexagon_sys::dsp;

use crate::arch;

/// How often a waiter looks, in microseconds: holders keep the value for the length of a batch.
const POLL_US: u64 = 50;

/// A guarded value.
pub(crate) struct Guarded<T> {
    held: AtomicBool,
    waiting: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by whoever turned `held` from false to true.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            held: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `f` on the value; `None` when it did not become free within `timeout_us`.
    pub(crate) fn with<R>(&self, timeout_us: u64, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.held.swap(true, Ordering::Acquire) {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let free = self.wait(timeout_us);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            free?;
        }
        // SAFETY: `held` is ours, so nobody else has a reference.
        let result = f(unsafe { &mut *self.value.get() });
        self.held.store(false, Ordering::Release);
        Some(result)
    }

    /// Whether somebody waits for it; a holder that has time gives way.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    fn wait(&self, timeout_us: u64) -> Option<()> {
        let end = arch::nanos().saturating_add(timeout_us * 1000);
        while self.held.swap(true, Ordering::Acquire) {
            if arch::nanos() >= end {
                return None;
            }
            // SAFETY: takes a number only.
            unsafe { dsp::qurt_sleep(POLL_US) };
        }
        Some(())
    }
}
