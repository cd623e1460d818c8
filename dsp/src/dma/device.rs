//! The device's own engine: one per hardware thread, driven by four instructions.
//!
//! The instructions are words, because the assembler takes them from v68 on only and one source serves the emulator's v67
//! image too, where nothing reaches this file's code: `dmstart(r0)`, `dmlink(r0,r1)`, `r0 = dmpoll`.

use core::arch::asm;

use super::DmaError;
use super::descriptor::{Arch, Place};
use super::ring::Hardware;

/// Low bits of `dmpoll`'s result: what the engine is doing.
const STATE: u32 = 3;
/// The engine has stopped at a descriptor that it could not carry out.
const STATE_ERROR: u32 = 2;

/// The engine of the thread that calls.
pub struct DeviceEngine {
    arch: Arch,
    deadline_ns: u64,
    nanos: fn() -> u64,
}

impl DeviceEngine {
    /// The engine of a device of architecture `version`, for instance 73, whose clock is `nanos`.
    pub const fn new(version: u32, deadline_ns: u64, nanos: fn() -> u64) -> Self {
        Self {
            arch: Arch::of(version),
            deadline_ns,
            nanos,
        }
    }
}

impl Hardware for DeviceEngine {
    fn arch(&self) -> Arch {
        self.arch
    }

    fn address(&self, memory: u64) -> Option<u64> {
        Some(memory)
    }

    unsafe fn start(&self, _channel: usize, first: &Place) {
        // The barrier before makes the descriptor's words visible to the engine.
        // SAFETY: the caller keeps descriptor, source and target until the engine is done; the engine is the calling
        // thread's own and idle.
        unsafe { asm!(".word 0xa840c000", ".word 0xa600c020", in("r0") first.address() as u32, options(nostack)) };
    }

    unsafe fn link(&self, _channel: usize, tail: &Place, next: &Place) {
        // SAFETY: as for `start`; `tail` is the last descriptor that this thread's engine was given.
        unsafe {
            asm!(".word 0xa840c000", ".word 0xa600c140", in("r0") tail.address() as u32,
                in("r1") next.address() as u32, options(nostack));
        };
    }

    fn poll(&self, _channel: usize) -> Result<(), DmaError> {
        let status: u32;
        // SAFETY: reads the engine's state.
        unsafe { asm!(".word 0xa800c040", out("r0") status, options(nostack)) };
        match status & STATE {
            STATE_ERROR => Err(DmaError::Fault),
            _ => Ok(()),
        }
    }

    fn nanos(&self) -> u64 {
        (self.nanos)()
    }

    fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }
}
