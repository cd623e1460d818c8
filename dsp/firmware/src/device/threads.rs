//! Threads of a session: their stacks are static, since there is no allocator.

use core::cell::UnsafeCell;
use core::ffi::c_void;

use hexloom_abi::limits::MAX_THREADS;
use hexloom_hexagon_sys::dsp;

/// Bytes of a stack: kernels keep vectors there, and spill them.
const STACK_BYTES: usize = 64 * 1024;

#[repr(C, align(4096))]
struct Stack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: a stack's address goes to the one thread that runs on it, and nothing else touches it.
unsafe impl Sync for Stack {}

/// One stack for each thread of a pool: number 0 is the thread that serves.
static STACKS: [Stack; MAX_THREADS as usize] =
    [const { Stack(UnsafeCell::new([0; STACK_BYTES])) }; MAX_THREADS as usize];

/// A thread that has been started and not been joined.
pub(crate) struct Thread(dsp::qurt_thread_t);

impl Thread {
    /// Starts thread `idx` of the pool on `entry(arg)`; `None` when the system has no thread for it.
    ///
    /// # Safety
    /// - the last thread of that number has been joined;
    /// - `arg` is what `entry` expects and stays so until this thread has been joined.
    pub(crate) unsafe fn start(
        idx: usize,
        priority: u16,
        entry: unsafe extern "C" fn(*mut c_void),
        arg: *mut c_void,
    ) -> Option<Self> {
        let stack = STACKS.get(idx)?;
        let mut attributes = dsp::qurt_thread_attr_t {
            priority,
            bus_priority: dsp::QURT_THREAD_BUS_PRIORITY_DEFAULT as u8,
            timetest_id: dsp::QURT_THREAD_TIMETEST_ID_DEFAULT as u16,
            stack_size: STACK_BYTES as u32,
            stack_addr: stack.0.get().cast(),
            detach_state: dsp::QURT_THREAD_JOINABLE as u16,
            ..dsp::qurt_thread_attr_t::default()
        };
        let digit = b'0' + (idx % 10) as u8;
        for (to, from) in attributes.name.iter_mut().zip(*b"hexloom-") {
            *to = from as _;
        }
        attributes.name[8] = digit as _;
        let mut id = 0;
        // SAFETY: both structures are live for the call; the stack is free and `arg` lives, by this function's contract.
        let result = unsafe { dsp::qurt_thread_create(&raw mut id, &raw mut attributes, Some(entry), arg) };
        (result == dsp::QURT_EOK as i32).then_some(Self(id))
    }

    /// Waits until it has ended.
    pub(crate) fn join(self) {
        let mut status = 0;
        // SAFETY: the identity is that of a joinable thread; one that has ended already gives an error, which is fine.
        let _ = unsafe { dsp::qurt_thread_join(self.0, &raw mut status) };
    }
}

/// Priority for the threads of a pool that the calling thread starts.
pub(crate) fn priority() -> u16 {
    // SAFETY: no arguments.
    let this = unsafe { dsp::qurt_thread_get_id() };
    // SAFETY: a live thread's identity.
    let priority = unsafe { dsp::qurt_thread_get_priority(this) };
    hexloom_dsp::idle::priority(priority)
}

/// Threads that kernels can use: one for each vector unit, as far as hardware threads go.
pub(crate) fn available() -> u32 {
    // SAFETY: no arguments.
    let units = unsafe { dsp::qurt_hvx_get_units() } as u32 >> 8 & 0xff;
    let mut hardware = dsp::qurt_sysenv_max_hthreads_t::default();
    // SAFETY: writes the one structure.
    let known = unsafe { dsp::qurt_sysenv_get_max_hw_threads(&raw mut hardware) } == dsp::QURT_EOK as i32;
    let limit = if known { hardware.max_hthreads } else { 1 };
    units.min(limit).clamp(1, MAX_THREADS)
}

const _: () = assert!(dsp::QURT_THREAD_PRIORITY_LEAST == 254);
