//! The machine of the tests: std threads, a monotonic clock, sleeping on a condition variable. Nothing can be mapped.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use hexloom_abi::{BufferDesc, Status};
use hexloom_dsp::Platform;
use hexloom_dsp::platform::Mapped;
use hexloom_dsp::pool::Pool;

pub(crate) struct TestPlatform {
    start: Instant,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Platform for TestPlatform {
    fn map(&self, _buffer: &BufferDesc) -> Result<Mapped, Status> {
        Err(Status::MapFailed)
    }
    fn unmap(&self, _fd: u32, _mapped: Mapped) {}
    fn clean(&self, _address: u64, _bytes: u64) {}
    fn invalidate(&self, _address: u64, _bytes: u64) {}
    fn cycles(&self) -> u64 {
        self.nanos()
    }
    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
    fn wait(&self, word: &AtomicU32, expected: u32, timeout_us: u32) {
        let guard = self.lock.lock().expect("no test panics while it holds the lock");
        if word.load(Ordering::SeqCst) == expected {
            let _ = self
                .woken
                .wait_timeout(guard, Duration::from_micros(u64::from(timeout_us)));
        }
    }
    fn wake(&self, _word: &AtomicU32) {
        let _guard = self.lock.lock();
        self.woken.notify_all();
    }
}

/// Runs `body` with a pool of `n_threads` threads that has its workers, and ends them whatever happens.
pub(crate) fn with_pool(n_threads: u32, body: impl FnOnce(&Pool<TestPlatform>)) {
    struct Stop<'a>(&'a Pool<TestPlatform>);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let platform = TestPlatform {
        start: Instant::now(),
        lock: Mutex::new(()),
        woken: Condvar::new(),
    };
    let pool = Pool::new(platform, n_threads);
    std::thread::scope(|scope| {
        let _stop = Stop(&pool);
        for idx in 1..n_threads {
            let pool = &pool;
            scope.spawn(move || pool.work(idx));
        }
        body(&pool);
    });
}
