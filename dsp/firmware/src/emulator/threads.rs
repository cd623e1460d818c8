//! Guest threads: `clone` with a stack of our own, and the packet counter of each thread.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU32, Ordering};

use hexloom_abi::limits::MAX_THREADS;

use crate::sys;

const STACK_BYTES: u32 = 256 * 1024;

/// Packets that each thread of the pool had executed at its last look.
static PACKETS: [AtomicU32; MAX_THREADS as usize] = [const { AtomicU32::new(0) }; MAX_THREADS as usize];

/// Stack of each worker, made once and used again by later sessions; 0 = not made.
static STACKS: [AtomicU32; MAX_THREADS as usize] = [const { AtomicU32::new(0) }; MAX_THREADS as usize];

/// 1 while a worker lives: the kernel stores 0 and wakes waiters when it has left its stack for good.
static ALIVE: [AtomicU32; MAX_THREADS as usize] = [const { AtomicU32::new(0) }; MAX_THREADS as usize];

// hexloom_clone(flags, stack top, entry, argument, alive word): the child starts behind the trap with r0 = 0 and r29 at
// the two words that the parent put on its stack.
global_asm!(
    ".global hexloom_clone",
    "hexloom_clone:",
    "{{ r1 = add(r1, #-8) }}",
    "{{ memw(r1 + #0) = r2 }}",
    "{{ memw(r1 + #4) = r3 }}",
    "{{ r2 = #0; r3 = r4 }}",
    "{{ r4 = #0; r6 = #220 }}",
    "trap0(#1)",
    "{{ p0 = cmp.eq(r0, #0) }}",
    "{{ if (!p0) jumpr r31 }}",
    "{{ r2 = memw(r29 + #0) }}",
    "{{ r0 = memw(r29 + #4) }}",
    "{{ callr r2 }}",
    "{{ r0 = #0; r6 = #93 }}",
    "trap0(#1)",
);

unsafe extern "C" {
    fn hexloom_clone(
        flags: u32,
        stack_top: u32,
        entry: extern "C" fn(*const ()),
        arg: *const (),
        alive: *mut u32,
    ) -> i32;
}

/// Starts worker `idx` on `entry(arg)`; false when the system has no memory or thread for it.
///
/// # Safety
/// `arg` stays valid until [`join`] has returned for the same worker.
pub(crate) unsafe fn spawn(idx: usize, entry: extern "C" fn(*const ()), arg: *const ()) -> bool {
    // VM, FS, FILES, SIGHAND, THREAD, SYSVSEM make a thread of one process; CHILD_CLEARTID clears the word at its end.
    const FLAGS: u32 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x20_0000;
    let (Some(stack), Some(alive)) = (STACKS.get(idx), ALIVE.get(idx)) else {
        return false;
    };
    if stack.load(Ordering::Relaxed) == 0 {
        match sys::map(None, STACK_BYTES) {
            Ok(start) => stack.store(start, Ordering::Relaxed),
            Err(_) => return false,
        }
    }
    alive.store(1, Ordering::Release);
    let top = stack.load(Ordering::Relaxed) + STACK_BYTES;
    // SAFETY: the stack belongs to this worker alone, because the last one has been joined; the word is static.
    let started = unsafe { hexloom_clone(FLAGS, top, entry, arg, alive.as_ptr()) } > 0;
    if !started {
        alive.store(0, Ordering::Release);
    }
    started
}

/// Waits until worker `idx` has ended.
pub(crate) fn join(idx: usize) {
    let Some(alive) = ALIVE.get(idx) else { return };
    loop {
        match alive.load(Ordering::Acquire) {
            0 => return,
            // The kernel's wake-up at a thread's end is not a private one, so this looks again after a millisecond.
            value => sys::futex_wait(alive, value, 1000),
        }
    }
}

/// Notes how many packets this thread has executed.
pub(crate) fn note_packets(thread: usize) {
    let packets: u32;
    // SAFETY: reads a counter register; the word is `r0 = C20`, which the assembler has no name for.
    unsafe { asm!(".word 0x6a14c000", out("r0") packets, options(nomem, nostack)) };
    if let Some(slot) = PACKETS.get(thread) {
        slot.store(packets, Ordering::Relaxed);
    }
}

/// Packets of all threads at their last look, modulo 2^32.
pub(crate) fn packets() -> u32 {
    note_packets(0);
    PACKETS
        .iter()
        .fold(0, |sum, slot| sum.wrapping_add(slot.load(Ordering::Relaxed)))
}
