//! The one session of this process: started and stopped by calls, served by a thread of its own.
//!
//! States: *idle* -> *running* (start) -> *idle* (stop). A session whose threads are stuck or have panicked is *spent*:
//! stop leaves its threads and memory alone, and the process takes no other session.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};

use heapless::Vec;
use hexloom_abi::control::{ControlReply, ControlRequest, Method};
use hexloom_abi::limits::{MAX_THREADS, WINDOW_BYTES_DEFAULT};
use hexloom_abi::{BatchReply, StartRequest, Status};
use hexloom_dsp::interp::Packet;
use hexloom_dsp::pool::{Fork as _, Pool};
use hexloom_dsp::{KernelSet, Session, SessionLimits};
use hexloom_hexagon_sys::dsp;
use zerocopy::FromBytes;

use crate::arch::ARCH;
use crate::guarded::Guarded;
use crate::platform::QurtPlatform;
use crate::queue::{Inbox, Queue};
use crate::threads::{self, Thread};
use crate::vtcm::{self, Vtcm};
use crate::{log, power};

/// Longest wait of a call for another one, and of a call or a batch for the session.
const LOCK_TIMEOUT_US: u64 = 30_000_000;
/// How often the serving thread looks whether it shall stop.
const STOP_POLL_US: u32 = 50_000;
/// An empty queue is looked at this often, this far apart, before the VTCM is given back.
const IDLE_LOOKS: u32 = 100;
const IDLE_LOOK_US: u64 = 100;

/// Private memory for the descriptors of the largest block: 4096 ops, 8192 tensors, 16 buffers.
const DESCRIPTOR_BYTES: usize = 1040 * 1024;

static CALLS: Guarded<State> = Guarded::new(State::Idle);
static RUNNING: Guarded<Option<Running>> = Guarded::new(None);
static STOP: AtomicBool = AtomicBool::new(false);
static INBOX: Inbox = Inbox::new();
static POOL: Place<Option<Pool<QurtPlatform>>> = Place(UnsafeCell::new(None));
static DESCRIPTORS: Descriptors = Descriptors(UnsafeCell::new([0; DESCRIPTOR_BYTES]));

enum State {
    Idle,
    Running(Thread),
    Spent,
}

/// Memory for the life of a session.
struct Place<T>(UnsafeCell<T>);

// SAFETY: written by `start` and `stop` only, which hold `CALLS` and have no session running.
unsafe impl<T> Sync for Place<T> {}

#[repr(C, align(128))]
struct Descriptors(UnsafeCell<[u8; DESCRIPTOR_BYTES]>);

// SAFETY: borrowed by the session alone.
unsafe impl Sync for Descriptors {}

/// What belongs to a running session.
struct Running {
    session: Session<'static, QurtPlatform>,
    pool: &'static Pool<QurtPlatform>,
    queue: Queue,
    vtcm: Vtcm,
    workers: Workers,
    priority: u16,
}

// SAFETY: everything in it may be used from any thread, one at a time; the scratch memory that the session points to
// belongs to `vtcm` beside it.
unsafe impl Send for Running {}

/// Answers a control message.
pub(crate) fn call(message: &[u8]) -> ControlReply {
    let request = match ControlRequest::read_from_bytes(message) {
        Ok(request) => request,
        Err(_) => return ControlReply::new(Status::Truncated),
    };
    if let Err(status) = request.check() {
        return ControlReply::new(status);
    }
    let result = match request.method {
        Method::HW_INFO => return hw_info(),
        Method::START => start(&request),
        Method::STOP => stop(),
        Method::FORGET => forget(request.fd),
        // Buffers are made known by FastRPC itself, and batches come by the queue.
        _ => Err(Status::Unsupported),
    };
    ControlReply::new(result.err().unwrap_or(Status::Ok))
}

/// Whether a session keeps the process from being closed.
pub(crate) fn is_running() -> bool {
    let running = CALLS.with(LOCK_TIMEOUT_US, |state| matches!(state, State::Running(_)));
    running.unwrap_or(true)
}

fn hw_info() -> ControlReply {
    ControlReply {
        arch: ARCH,
        n_threads: threads::available(),
        scratch_bytes: u64::from(vtcm::total_bytes()),
        window_bytes: WINDOW_BYTES_DEFAULT,
        ..ControlReply::new(Status::Ok)
    }
}

fn start(request: &ControlRequest) -> Result<(), Status> {
    let start = StartRequest::read_from_bytes(request.message()).map_err(|_| Status::Truncated)?;
    start.check()?;
    let started = CALLS.with(LOCK_TIMEOUT_US, |state| {
        match state {
            State::Idle => {}
            State::Running(_) => return Err(Status::AlreadyStarted),
            State::Spent => return Err(Status::Poisoned),
        }
        let priority = threads::priority();
        let running = Running::new(&start, priority)?;
        let queue = running.queue;
        STOP.store(false, Ordering::Release);
        if RUNNING.with(LOCK_TIMEOUT_US, |place| *place = Some(running)).is_none() {
            return Err(Status::Timeout);
        }
        // SAFETY: the last serving thread was joined by `stop`, and a queue is a plain address.
        match unsafe { Thread::start(0, priority, serve, queue.into_raw()) } {
            Some(thread) => {
                *state = State::Running(thread);
                Ok(())
            }
            None => {
                end();
                Err(Status::Internal)
            }
        }
    });
    started.unwrap_or(Err(Status::Timeout))
}

fn stop() -> Result<(), Status> {
    let stopped = CALLS.with(LOCK_TIMEOUT_US, |state| {
        let State::Running(thread) = core::mem::replace(state, State::Idle) else {
            return Err(Status::NotStarted);
        };
        STOP.store(true, Ordering::Release);
        thread.join();
        if !end() {
            *state = State::Spent;
        }
        Ok(())
    });
    stopped.unwrap_or(Err(Status::Timeout))
}

/// Takes down what `Running::new` has set up; false when that has to be left standing.
fn end() -> bool {
    let taken = RUNNING.with(LOCK_TIMEOUT_US, Option::take).flatten();
    let Some(running) = taken else { return false };
    if running.pool.is_poisoned() {
        // Threads that are stuck still use the pool, their stacks and the scratch memory.
        core::mem::forget(running);
        return false;
    }
    running.close();
    true
}

fn forget(fd: u32) -> Result<(), Status> {
    let done = RUNNING.with(LOCK_TIMEOUT_US, |running| {
        let running = running.as_mut().ok_or(Status::NotStarted)?;
        running.session.forget(fd);
        Ok(())
    });
    done.unwrap_or(Err(Status::Timeout))
}

/// The serving thread: sleeps on the queue, and takes the session while there is something in it.
unsafe extern "C" fn serve(queue: *mut c_void) {
    // SAFETY: `start` passes its queue, which is closed only after this thread has been joined.
    let queue = unsafe { Queue::from_raw(queue) };
    while !STOP.load(Ordering::Acquire) {
        match queue.wait(STOP_POLL_US) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => return log::line(log::ERROR, "the queue is gone", "", 0),
        }
        let drained = RUNNING.with(LOCK_TIMEOUT_US, |running| running.as_mut().map(Running::drain));
        if drained.is_none() {
            log::line(log::ERROR, "the session is not to be had", "", 0);
        }
        if RUNNING.is_wanted() {
            // SAFETY: takes a number only.
            unsafe { dsp::qurt_sleep(IDLE_LOOK_US) };
        }
    }
}

impl Running {
    fn new(start: &StartRequest, priority: u16) -> Result<Self, Status> {
        let n_threads = match start.n_threads {
            0 => threads::available(),
            n => n.min(threads::available()),
        };
        let vtcm = Vtcm::reserve()?;
        let queue = Queue::import(start.queue_id)?;
        // SAFETY: no session runs, so nobody refers to the last pool.
        let pool = unsafe { &mut *POOL.0.get() }.insert(Pool::new(QurtPlatform, n_threads));
        let pool: &'static Pool<QurtPlatform> = pool;
        let workers = match Workers::start(pool, n_threads, priority) {
            Ok(workers) => workers,
            Err(status) => {
                queue.close();
                return Err(status);
            }
        };
        // SAFETY: no session runs, so nobody else borrows the memory.
        let descriptors = unsafe { &mut *DESCRIPTORS.0.get() };
        let limits = SessionLimits::new(start, KernelSet::best());
        let session = Session::new(pool, limits, descriptors, vtcm.span(start.scratch_bytes_max));
        power::up();
        Ok(Self {
            session,
            pool,
            queue,
            vtcm,
            workers,
            priority,
        })
    }

    /// Serves what is in the queue and what comes soon after, then lets go of the VTCM.
    fn drain(&mut self) {
        let mut n_empty = 0;
        while n_empty < IDLE_LOOKS && !STOP.load(Ordering::Acquire) {
            let taken = self.vtcm.take(self.priority);
            let (session, queue) = (&mut self.session, self.queue);
            // SAFETY: only this thread serves.
            let served = unsafe { queue.next(&INBOX, |packet| answer(session, queue, packet, taken)) };
            if served {
                n_empty = 0;
            } else {
                n_empty += 1;
                // SAFETY: takes a number only.
                unsafe { dsp::qurt_sleep(IDLE_LOOK_US) };
            }
            if self.vtcm.is_wanted() || RUNNING.is_wanted() {
                break;
            }
        }
        self.vtcm.give();
    }

    fn close(mut self) {
        self.session.close();
        drop(self.workers);
        self.queue.close();
        power::down();
    }
}

/// One packet, one reply.
fn answer(session: &mut Session<'_, QurtPlatform>, queue: Queue, packet: &Packet<'_>, taken: Result<(), Status>) {
    let reply: BatchReply = match taken {
        Ok(()) => session.serve(packet),
        Err(status) => session.refuse(packet, status),
    };
    if queue.reply(&reply).is_err() {
        log::line(log::ERROR, "no room for a reply", "sequence", reply.seq as u32);
    }
}

/// Worker threads of a pool; dropping them waits for their end.
struct Workers {
    pool: &'static Pool<QurtPlatform>,
    threads: Vec<Thread, { MAX_THREADS as usize }>,
}

impl Workers {
    fn start(pool: &'static Pool<QurtPlatform>, n_threads: u32, priority: u16) -> Result<Self, Status> {
        let mut workers = Self {
            pool,
            threads: Vec::new(),
        };
        for idx in 1..n_threads as usize {
            // SAFETY: the threads of the last pool have been joined; the argument is a number.
            let thread = unsafe { Thread::start(idx, priority, work, idx as *mut c_void) };
            let thread = thread.ok_or(Status::Internal)?;
            // There are no more threads than the list has room for.
            let _ = workers.threads.push(thread);
        }
        Ok(workers)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.pool.stop();
        while let Some(thread) = self.threads.pop() {
            thread.join();
        }
    }
}

unsafe extern "C" fn work(idx: *mut c_void) {
    // SAFETY: `Workers::start` runs after the pool was put in its place, and that stays until the workers were joined.
    if let Some(pool) = unsafe { &*POOL.0.get() } {
        pool.work(idx as usize as u32);
    }
}
