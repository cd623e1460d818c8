//! The thread pool: one fork-join per kernel phase, no spin without a deadline, a panic poisons the session.
//!
//! The caller runs part 0; worker `i` runs part `i`. Work is announced by a sequence number that workers wait on;
//! they spin briefly, because the next phase of a batch follows within microseconds, and then sleep.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hexloom_abi::Status;
use hexloom_abi::limits::MAX_THREADS;
use hexloom_abi::profile::TRACE_KERNEL;

use crate::hvx::{Isa, Kernel, Part};
use crate::platform::Platform;
use crate::trace::Trace;

/// Longest time in microseconds that a fork-join may take before the session is poisoned.
pub const JOIN_TIMEOUT_US: u64 = 20_000_000;

/// Looks at the sequence number this often before a worker sleeps.
const SPINS: u32 = 4_000;

/// A pool of `n_threads - 1` workers and the calling thread.
pub struct Pool<P> {
    platform: P,
    n_threads: u32,
    /// Rises by one per fork; workers wait on it.
    seq: AtomicU32,
    /// Workers that have not finished the current fork.
    running: AtomicU32,
    /// Workers that sleep on `seq`; spares the wake-up call when none does.
    sleeping: AtomicU32,
    stop: AtomicBool,
    poisoned: AtomicBool,
    work: UnsafeCell<Option<Erased>>,
    trace: Trace,
}

/// What kernels see of a pool: the machine underneath is hidden, so that they are compiled once and not once per machine.
pub trait Fork: Sync {
    /// Runs every part of some work and waits for all of them. Only one thread may fork at a time.
    ///
    /// Fails with [`Status::Poisoned`] after a worker's panic and with [`Status::Timeout`] when a worker is stuck.
    fn fork(&self, work: Work<'_>) -> Result<(), Status>;

    /// Threads, the caller's included.
    fn n_threads(&self) -> u32;

    /// Whether a panic or a missed deadline has ended the pool.
    fn is_poisoned(&self) -> bool;

    /// Records in the batch's trace, if there is one, that thread `thread`, the caller, starts or stops `id`.
    fn mark(&self, thread: usize, id: u16, is_stop: bool);
}

/// A kernel on an instruction set, both erased; it borrows the kernel.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    erased: Erased,
    kernel: core::marker::PhantomData<&'a ()>,
}

/// Address and code of a kernel: valid only while `fork` waits for it.
#[derive(Clone, Copy)]
struct Erased {
    kernel: *const (),
    invoke: unsafe fn(*const (), Part),
}

impl<'a> Work<'a> {
    /// `kernel` compiled for `I`.
    pub fn new<I: Isa, K: Kernel>(kernel: &'a K) -> Self {
        Self {
            erased: Erased {
                kernel: core::ptr::from_ref(kernel).cast(),
                invoke: invoke_erased::<I, K>,
            },
            kernel: core::marker::PhantomData,
        }
    }

    fn run(&self, part: Part) {
        // SAFETY: kernel and code were stored together by `new`, and the borrow keeps the kernel alive.
        unsafe { (self.erased.invoke)(self.erased.kernel, part) };
    }
}

// SAFETY: `work` is written by the forking thread only while no worker runs (`running == 0`), and read by workers only
// between the release of `seq` and their decrement of `running`; everything else is atomic.
unsafe impl<P: Sync> Sync for Pool<P> {}
// SAFETY: the erased kernel pointer is only followed inside `fork`, on whichever thread owns the pool then.
unsafe impl<P: Send> Send for Pool<P> {}

impl<P: Platform> Pool<P> {
    /// A pool for `n_threads` threads (1 to 10); the caller starts the workers on [`Pool::work`].
    pub fn new(platform: P, n_threads: u32) -> Self {
        Self {
            platform,
            n_threads: n_threads.clamp(1, MAX_THREADS),
            seq: AtomicU32::new(0),
            running: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            work: UnsafeCell::new(None),
            trace: Trace::default(),
        }
    }

    /// The machine underneath.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// Where [`Fork::mark`] records.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Ends the pool's usefulness, for instance when a kernel panicked.
    pub fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    /// The body of worker `idx` (1 to `n_threads - 1`): returns after [`Pool::stop`].
    pub fn work(&self, idx: u32) {
        let mut seen = 0;
        loop {
            let seq = self.next_seq(seen);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            if seq == seen {
                continue;
            }
            seen = seq;
            let poison = PoisonOnUnwind(self);
            // SAFETY: `seq` was released after the cell was written, and `fork` does not return before `running` is 0.
            if let Some(work) = unsafe { *self.work.get() } {
                let part = Part {
                    idx: idx as usize,
                    count: self.n_threads as usize,
                };
                self.mark(part.idx, TRACE_KERNEL, false);
                // SAFETY: kernel and function were stored together by `fork`, which still borrows the kernel.
                unsafe { (work.invoke)(work.kernel, part) };
                self.mark(part.idx, TRACE_KERNEL, true);
            }
            self.platform.part_done(idx as usize);
            core::mem::forget(poison);
            self.running.fetch_sub(1, Ordering::Release);
        }
    }

    /// Lets all workers return.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.seq.fetch_add(1, Ordering::SeqCst);
        self.platform.wake(&self.seq);
    }

    /// The calling thread's part.
    fn run_first(&self, work: Work<'_>, first: Part) {
        self.mark(first.idx, TRACE_KERNEL, false);
        work.run(first);
        self.mark(first.idx, TRACE_KERNEL, true);
    }

    fn next_seq(&self, seen: u32) -> u32 {
        for _ in 0..SPINS {
            let seq = self.seq.load(Ordering::Acquire);
            if seq != seen {
                return seq;
            }
            core::hint::spin_loop();
        }
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        self.platform.wait(&self.seq, seen, 100_000);
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        self.seq.load(Ordering::Acquire)
    }
}

impl<P: Platform> Fork for Pool<P> {
    fn fork(&self, work: Work<'_>) -> Result<(), Status> {
        if self.is_poisoned() {
            return Err(Status::Poisoned);
        }
        let count = self.n_threads as usize;
        let first = Part { idx: 0, count };
        if count == 1 {
            self.run_first(work, first);
            return Ok(());
        }
        // SAFETY: no worker runs (the last fork waited for all), so nobody reads the cell.
        unsafe { *self.work.get() = Some(work.erased) };
        self.running.store(self.n_threads - 1, Ordering::Relaxed);
        self.seq.fetch_add(1, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) != 0 {
            self.platform.wake(&self.seq);
        }
        let joined = JoinGuard(self);
        self.run_first(work, first);
        joined.finish()
    }

    fn n_threads(&self) -> u32 {
        self.n_threads
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    fn mark(&self, thread: usize, id: u16, is_stop: bool) {
        if self.trace.is_open() {
            self.trace.record(thread, id, is_stop, self.platform.cycles());
        }
    }
}

/// # Safety
/// `kernel` points to a live `K`.
unsafe fn invoke_erased<I: Isa, K: Kernel>(kernel: *const (), part: Part) {
    // SAFETY: the caller promises a live `K`.
    I::invoke(unsafe { &*kernel.cast::<K>() }, part);
}

/// Waits for the workers even when part 0 unwinds, because they borrow the kernel.
struct JoinGuard<'a, P: Platform>(&'a Pool<P>);

impl<P: Platform> JoinGuard<'_, P> {
    fn finish(self) -> Result<(), Status> {
        let result = self.join();
        core::mem::forget(self);
        result
    }

    fn join(&self) -> Result<(), Status> {
        let pool = self.0;
        let mut spins = 0u32;
        let mut deadline = None;
        while pool.running.load(Ordering::Acquire) != 0 {
            core::hint::spin_loop();
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(1024) {
                let now = pool.platform.nanos();
                let end = *deadline.get_or_insert(now.saturating_add(JOIN_TIMEOUT_US * 1000));
                if now > end {
                    pool.poison();
                    return Err(Status::Timeout);
                }
            }
        }
        if pool.is_poisoned() {
            Err(Status::Poisoned)
        } else {
            Ok(())
        }
    }
}

impl<P: Platform> Drop for JoinGuard<'_, P> {
    fn drop(&mut self) {
        self.0.poison();
        // A panic on one thread does not cut this short, since the others still borrow the kernel. Only the deadline
        // does; a worker that is stuck beyond it keeps a pointer into a dead frame, and the session runs no other op.
        let _ = self.join();
    }
}

/// Poisons the pool when a kernel panics on a worker.
struct PoisonOnUnwind<'a, P: Platform>(&'a Pool<P>);

impl<P: Platform> Drop for PoisonOnUnwind<'_, P> {
    fn drop(&mut self) {
        self.0.poison();
        self.0.running.fetch_sub(1, Ordering::Release);
    }
}
