//! The thread pool: every part of every fork runs exactly once, and a panic never lets a frame go that a worker uses.

#[path = "support/platform.rs"]
mod platform;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hexloom_abi::Status;
use hexloom_dsp::hvx::plain::Plain;
use hexloom_dsp::hvx::{Isa, Kernel, Part};
use hexloom_dsp::pool::{Fork, Work};
use platform::with_pool;

/// Adds its own value once per part to that part's count.
struct Count<'a> {
    value: u64,
    sums: &'a [AtomicU64],
}

impl Kernel for Count<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        assert_eq!(part.count, self.sums.len());
        self.sums[part.idx].fetch_add(self.value, Ordering::Relaxed);
    }
}

#[test]
fn every_part_of_every_fork_runs_once() {
    for n_threads in 1..=10 {
        with_pool(n_threads, |pool| {
            let sums: Vec<AtomicU64> = (0..n_threads).map(|_| AtomicU64::new(0)).collect();
            let n = if n_threads < 4 { 3000 } else { 50 };
            for value in 1..=n {
                let kernel = Count { value, sums: &sums };
                assert_eq!(pool.fork(Work::new::<Plain, _>(&kernel)), Ok(()));
                // All parts of this fork are done when it returns, and none runs later.
                let wanted = value * (value + 1) / 2;
                assert!(sums.iter().all(|sum| sum.load(Ordering::Relaxed) == wanted));
            }
        });
    }
}

/// One part panics; another notices and then works on for a while.
struct Panics<'a> {
    at: usize,
    panicking: &'a AtomicBool,
    done: &'a AtomicU64,
}

impl Kernel for Panics<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        if part.idx == self.at {
            self.panicking.store(true, Ordering::Release);
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        while !self.panicking.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        for _ in 0..2_000_000 {
            std::hint::black_box(self.at);
        }
        self.done.fetch_add(1, Ordering::Release);
    }
}

#[test]
fn a_panic_waits_for_the_other_parts_and_poisons() {
    for at in 0..3 {
        let panicking = AtomicBool::new(false);
        let done = AtomicU64::new(0);
        let mut seen = None;
        // The worker's own thread ends by the panic, which the scope reports.
        let whole = catch_unwind(AssertUnwindSafe(|| {
            with_pool(3, |pool| {
                let kernel = Panics {
                    at,
                    panicking: &panicking,
                    done: &done,
                };
                let result = catch_unwind(AssertUnwindSafe(|| pool.fork(Work::new::<Plain, _>(&kernel))));
                let n_done = done.load(Ordering::Acquire);
                let again = pool.fork(Work::new::<Plain, _>(&Count { value: 1, sums: &[] }));
                seen = Some((result.ok(), n_done, pool.is_poisoned(), again));
            });
        }));
        let result = if at == 0 { None } else { Some(Err(Status::Poisoned)) };
        assert_eq!(
            seen,
            Some((result, 2, true, Err(Status::Poisoned))),
            "a panic in part {at}"
        );
        assert_eq!(whole.is_err(), at != 0);
    }
}
