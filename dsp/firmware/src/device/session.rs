//! The one session of this process: started and stopped by calls, made, served and taken down by a thread of its own,
//! whose stack is known to be large enough; that of a calling thread is not.
//!
//! States: *idle* -> *running* (start) -> *idle* (stop). A session whose threads are stuck is *spent*: its threads and
//! memory are left alone, and the process takes no other session.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use heapless::Vec;
use hexloom_abi::code::StatusCode;
use hexloom_abi::control::{ControlReply, CountedEvents, REPLY_EXTENDED};
use hexloom_abi::limits::{MAX_THREADS, window_bytes};
use hexloom_abi::{BatchReply, StartRequest, Status};
use hexloom_dsp::control::Control;
use hexloom_dsp::hmx::MatrixUse;
use hexloom_dsp::idle::{Governor, Level};
use hexloom_dsp::interp::Packet;
use hexloom_dsp::pool::{Fork as _, Pool};
use hexloom_dsp::{KernelSet, Session, SessionLimits};
use hexloom_hexagon_sys::dsp;

use crate::arch::ARCH;
use crate::guarded::Guarded;
use crate::platform::{self, QurtPlatform};
use crate::queue::{Inbox, Queue};
use crate::threads::{self, Thread};
use crate::vtcm::{self, Vtcm};
use crate::{arch, log, power};

/// Longest wait of a call for another one, and of a call or a batch for the session.
const LOCK_TIMEOUT_US: u64 = 30_000_000;
/// Longest time that a session takes to be set up.
const START_TIMEOUT_US: u64 = 10_000_000;
/// How often the serving thread looks whether it shall stop.
const STOP_POLL_US: u32 = 50_000;
/// An empty queue is looked at this often, this far apart, before the VTCM is given back.
const IDLE_LOOKS: u32 = 100;
const IDLE_LOOK_US: u64 = 100;

/// Private memory for the descriptors of the largest block: 4096 ops, 8192 tensors, 16 buffers.
const DESCRIPTOR_BYTES: usize = 1040 * 1024;

/// Held for the length of a call, so that there is one at a time.
static CALLS: Guarded<State> = Guarded::new(State::Idle);
static RUNNING: Guarded<Option<Running>> = Guarded::new(None);
static STOP: AtomicBool = AtomicBool::new(false);
/// What `start` hands to the serving thread.
static ORDER: Guarded<Option<Order>> = Guarded::new(None);
/// How the set-up has ended: a status, or 0 while it goes on.
static OUTCOME: AtomicU32 = AtomicU32::new(0);
/// Threads are stuck.
static SPENT: AtomicBool = AtomicBool::new(false);
static INBOX: Inbox = Inbox::new();
static POOL: Place<Option<Pool<QurtPlatform>>> = Place(UnsafeCell::new(None));
static DESCRIPTORS: Descriptors = Descriptors(UnsafeCell::new([0; DESCRIPTOR_BYTES]));

enum State {
    Idle,
    Running(Thread),
}

/// A session to be set up.
struct Order {
    start: StartRequest,
    priority: u16,
}

/// Memory for the life of a session.
struct Place<T>(UnsafeCell<T>);

// SAFETY: written by a serving thread before it starts workers only, and there is one serving thread at a time.
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
    governor: Governor,
}

// SAFETY: everything in it may be used from any thread, one at a time; the scratch memory that the session points to
// belongs to `vtcm` beside it.
unsafe impl Send for Running {}

/// This process, as control messages see it.
pub(crate) struct Process;

impl Control for Process {
    fn hw_info(&self) -> ControlReply {
        ControlReply {
            flags: if platform::has_extended() { REPLY_EXTENDED } else { 0 },
            arch: ARCH,
            n_threads: threads::available(),
            scratch_bytes: u64::from(vtcm::total_bytes()),
            window_bytes: window_bytes(ARCH),
            ..ControlReply::new(Status::Ok)
        }
    }

    fn start(&self, start: &StartRequest) -> Result<(), Status> {
        self::start(*start)
    }

    fn stop(&self) -> Result<(), Status> {
        self::stop()
    }

    fn forget(&self, fd: u32) -> Result<(), Status> {
        with_session(|session| {
            session.forget(fd);
            Ok(())
        })
    }

    fn count(&self, events: &CountedEvents) -> Result<(), Status> {
        with_session(|session| session.count(events))
    }
}

/// Whether a session keeps the process from being closed.
pub(crate) fn is_running() -> bool {
    let running = CALLS.with(LOCK_TIMEOUT_US, |state| matches!(state, State::Running(_)));
    running.unwrap_or(true)
}

fn start(start: StartRequest) -> Result<(), Status> {
    let started = CALLS.with(LOCK_TIMEOUT_US, |state| {
        if matches!(state, State::Running(_)) {
            return Err(Status::AlreadyStarted);
        }
        if SPENT.load(Ordering::Acquire) {
            return Err(Status::Poisoned);
        }
        let priority = threads::priority();
        let order = Order { start, priority };
        ORDER
            .with(LOCK_TIMEOUT_US, |place| *place = Some(order))
            .ok_or(Status::Timeout)?;
        STOP.store(false, Ordering::Release);
        OUTCOME.store(0, Ordering::Release);
        // SAFETY: the last serving thread has been joined; this one takes no argument.
        let thread = unsafe { Thread::start(0, priority, serve, core::ptr::null_mut()) };
        let thread = thread.ok_or(Status::Internal)?;
        match wait_for_outcome() {
            Status::Ok => {
                *state = State::Running(thread);
                Ok(())
            }
            status => {
                STOP.store(true, Ordering::Release);
                thread.join();
                Err(status)
            }
        }
    });
    started.unwrap_or(Err(Status::Timeout))
}

fn wait_for_outcome() -> Status {
    let end = arch::nanos().saturating_add(START_TIMEOUT_US * 1000);
    loop {
        match OUTCOME.load(Ordering::Acquire) {
            0 if arch::nanos() >= end => return Status::Timeout,
            // SAFETY: takes a number only.
            0 => unsafe { dsp::qurt_sleep(IDLE_LOOK_US) },
            number => return Status::try_from(StatusCode(number)).unwrap_or(Status::Internal),
        }
    }
}

fn stop() -> Result<(), Status> {
    let stopped = CALLS.with(LOCK_TIMEOUT_US, |state| {
        let State::Running(thread) = core::mem::replace(state, State::Idle) else {
            return Err(Status::NotStarted);
        };
        STOP.store(true, Ordering::Release);
        thread.join();
        Ok(())
    });
    stopped.unwrap_or(Err(Status::Timeout))
}

/// Does something with the running session, between two batches.
fn with_session(action: impl FnOnce(&mut Session<'static, QurtPlatform>) -> Result<(), Status>) -> Result<(), Status> {
    let done = RUNNING.with(LOCK_TIMEOUT_US, |running| {
        let running = running.as_mut().ok_or(Status::NotStarted)?;
        action(&mut running.session)
    });
    done.unwrap_or(Err(Status::Timeout))
}

/// The serving thread: sets the session up, serves until it shall stop, takes the session down.
unsafe extern "C" fn serve(_: *mut c_void) {
    let order = ORDER.with(LOCK_TIMEOUT_US, Option::take).flatten();
    let running = order.ok_or(Status::Internal).and_then(|order| Running::new(&order));
    let running = match running {
        Ok(running) => running,
        Err(status) => return OUTCOME.store(status.number(), Ordering::Release),
    };
    let queue = running.queue;
    // Nobody else takes the session while there is none, so that it is free.
    let _ = RUNNING.with(LOCK_TIMEOUT_US, |place| *place = Some(running));
    OUTCOME.store(Status::Ok.number(), Ordering::Release);
    while !STOP.load(Ordering::Acquire) {
        match queue.wait(STOP_POLL_US) {
            Ok(true) => {}
            Ok(false) => {
                // A session that cannot be had now is at work.
                let _ = RUNNING.with(0, |running| running.as_mut().map(Running::rest));
                continue;
            }
            Err(_) => break,
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
    if let Some(running) = RUNNING.with(LOCK_TIMEOUT_US, Option::take).flatten() {
        running.close();
    }
}

impl Running {
    fn new(order: &Order) -> Result<Self, Status> {
        let Order { start, priority } = order;
        let priority = *priority;
        let n_threads = match start.n_threads {
            0 => threads::available(),
            n => n.min(threads::available()),
        };
        let limits = SessionLimits::new(start, KernelSet::best())?;
        let vtcm = Vtcm::reserve(limits.matrix != MatrixUse::Off)?;
        let matrix_unit = vtcm.has_matrix_unit();
        let queue = Queue::import(start.queue_id)?;
        // SAFETY: no session runs, so nobody refers to the last pool.
        let pool = unsafe { &mut *POOL.0.get() }.insert(Pool::new(QurtPlatform { matrix_unit }, n_threads));
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
        let session = Session::new(pool, limits, descriptors, vtcm.span(start.scratch_bytes_max));
        Ok(Self {
            session,
            pool,
            queue,
            vtcm,
            workers,
            priority,
            governor: Governor::new(),
        })
    }

    /// There is no work: what was asked of the DSP's power eases with time.
    fn rest(&mut self) {
        let from = self.governor.level();
        if let Some(to) = self.governor.rest(arch::nanos()) {
            power::set(from, to, self.vtcm.has_matrix_unit());
        }
    }

    /// There is work: at full speed from now on.
    fn work(&mut self) {
        let from = self.governor.level();
        if let Some(to) = self.governor.work(arch::nanos()) {
            power::set(from, to, self.vtcm.has_matrix_unit());
        }
    }

    /// Serves what is in the queue and what comes soon after, then lets go of the VTCM.
    fn drain(&mut self) {
        self.work();
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
        self.work();
        self.vtcm.give();
        platform::release_vectors();
    }

    fn close(mut self) {
        if self.pool.is_poisoned() {
            // Threads that are stuck still use the pool, their stacks and the scratch memory.
            SPENT.store(true, Ordering::Release);
            core::mem::forget(self);
            return;
        }
        let (matrix_unit, level) = (self.vtcm.has_matrix_unit(), self.governor.level());
        self.session.close();
        platform::stop_counting();
        drop(self.workers);
        self.queue.close();
        if level != Level::Off {
            power::set(level, Level::Off, matrix_unit);
        }
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
