//! The emulated machine as a [`Platform`]: real 32-bit mappings, futexes, packet counters, coherent caches.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use heapless::Vec;
use hexloom_abi::{BufferDesc, Status};
use hexloom_dsp::Platform;
use hexloom_dsp::platform::Mapped;

use crate::{sys, threads};

/// Descriptors that the host has made known at one time.
const MAX_KNOWN: usize = 256;

/// The machine under a session.
pub(crate) struct EmuPlatform {
    known: UnsafeCell<Vec<Known, MAX_KNOWN>>,
    busy: AtomicU32,
}

/// A descriptor of the host under its number there.
#[derive(Clone, Copy)]
struct Known {
    host_fd: u32,
    guest_fd: i32,
    bytes: u64,
}

// SAFETY: `known` is only touched between `busy` going 0 to 1 and back.
unsafe impl Sync for EmuPlatform {}

impl EmuPlatform {
    pub(crate) const fn new() -> Self {
        Self {
            known: UnsafeCell::new(Vec::new()),
            busy: AtomicU32::new(0),
        }
    }

    /// Makes a descriptor known under the host's number; an earlier one of that number is closed.
    pub(crate) fn learn(&self, host_fd: u32, guest_fd: i32, bytes: u64) -> Result<(), Status> {
        self.unlearn(host_fd);
        let known = Known {
            host_fd,
            guest_fd,
            bytes,
        };
        self.with_known(|list| list.push(known)).map_err(|_| {
            sys::close(guest_fd);
            Status::TooMany
        })
    }

    /// Forgets a descriptor and closes it.
    pub(crate) fn unlearn(&self, host_fd: u32) {
        let removed = self.with_known(|list| {
            let idx = list.iter().position(|known| known.host_fd == host_fd)?;
            Some(list.swap_remove(idx))
        });
        if let Some(known) = removed {
            sys::close(known.guest_fd);
        }
    }

    fn with_known<R>(&self, f: impl FnOnce(&mut Vec<Known, MAX_KNOWN>) -> R) -> R {
        while self
            .busy
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            core::hint::spin_loop();
        }
        // SAFETY: `busy` is ours, so nobody else has a reference.
        let result = f(unsafe { &mut *self.known.get() });
        self.busy.store(0, Ordering::Release);
        result
    }
}

impl Platform for EmuPlatform {
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        let known = self.with_known(|list| list.iter().find(|known| known.host_fd == buffer.fd).copied());
        let known = known.ok_or(Status::MapFailed)?;
        let bytes = u32::try_from(buffer.bytes).map_err(|_| Status::MapFailed)?;
        if buffer.bytes > known.bytes {
            return Err(Status::MapFailed);
        }
        let start = sys::map(Some(known.guest_fd), bytes).map_err(|_| Status::MapFailed)?;
        Ok(Mapped::window(u64::from(start), buffer.bytes))
    }

    fn unmap(&self, _fd: u32, mapped: Mapped) {
        let Some(address) = mapped.address() else { return };
        // SAFETY: the mapping table gives each mapping back once, between two ops.
        unsafe { sys::unmap(address as u32, mapped.bytes as u32) };
    }

    // The emulator's memory is coherent.
    fn clean(&self, _address: u64, _bytes: u64) {}
    fn invalidate(&self, _address: u64, _bytes: u64) {}

    // The emulator has no cycles; nanoseconds let a trace show time.
    fn cycles(&self) -> u64 {
        sys::nanos()
    }

    fn nanos(&self) -> u64 {
        sys::nanos()
    }

    fn packets(&self) -> u32 {
        threads::packets()
    }

    fn part_done(&self, thread: usize) {
        threads::note_packets(thread);
    }

    fn wait(&self, word: &AtomicU32, expected: u32, timeout_us: u32) {
        sys::futex_wait(word, expected, timeout_us);
    }

    fn relax(&self) {
        sys::sched_yield();
    }

    fn wake(&self, word: &AtomicU32) {
        sys::futex_wake(word);
    }
}
