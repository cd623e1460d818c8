//! The image's main loop: calls and batches in the order in which they arrive.

use heapless::Vec;
use hexloom_abi::control::{ControlReply, ControlRequest, Method};
use hexloom_abi::limits::MAX_THREADS;
use hexloom_abi::{BufferDesc, StartRequest, Status};
use hexloom_dsp::control;
use hexloom_dsp::interp::{BlockRef, Packet};
use hexloom_dsp::platform::Mapped;
use hexloom_dsp::pool::Pool;
use hexloom_dsp::{KernelSet, Platform, Session, SessionLimits, Span};
use zerocopy::{FromBytes, IntoBytes};

use crate::platform::EmuPlatform;
use crate::{sys, threads};

/// Scratch bytes that stand in for VTCM.
const SCRATCH_BYTES: u32 = 8 << 20;
/// Bytes of the guest's address space that the host may plan with; the emulator's own parts take the rest.
const WINDOW_BYTES: u64 = 2 << 30;
/// Threads that kernels may use.
const N_THREADS: u32 = 4;

/// Serves until the host closes the socket; gives the exit code.
pub(crate) fn run(socket: i32) -> i32 {
    let platform = EmuPlatform::new();
    let mut bytes = [0u8; size_of::<ControlRequest>()];
    loop {
        let (request, attached) = match next(socket, &mut bytes) {
            Next::Call(request, attached) => (request, attached),
            Next::Gone => return 0,
            Next::Bad(status) => {
                answer(socket, &ControlReply::new(status));
                continue;
            }
        };
        let reply = match request.method {
            Method::START => match start(&request) {
                Ok(start) => {
                    if !serve_session(socket, &platform, &start) {
                        return 0;
                    }
                    continue;
                }
                Err(status) => ControlReply::new(status),
            },
            _ => call(&platform, &request, attached),
        };
        answer(socket, &reply);
    }
}

enum Next {
    Call(ControlRequest, Option<i32>),
    Bad(Status),
    Gone,
}

fn next(socket: i32, bytes: &mut [u8]) -> Next {
    match sys::receive(socket, bytes) {
        Ok((0, _)) | Err(_) => Next::Gone,
        Ok((len, attached)) => {
            let request = bytes
                .get(..len)
                .and_then(|bytes| ControlRequest::read_from_bytes(bytes).ok());
            match request {
                Some(request) => match request.check() {
                    Ok(()) => Next::Call(request, attached),
                    Err(status) => Next::Bad(status),
                },
                None => Next::Bad(Status::Truncated),
            }
        }
    }
}

/// Calls that need no session.
fn call(platform: &EmuPlatform, request: &ControlRequest, attached: Option<i32>) -> ControlReply {
    match (request.method, attached) {
        (Method::HW_INFO, _) => ControlReply {
            arch: 67,
            n_threads: N_THREADS,
            scratch_bytes: u64::from(SCRATCH_BYTES),
            window_bytes: WINDOW_BYTES,
            ..ControlReply::new(Status::Ok)
        },
        (Method::MAP, Some(fd)) => status(platform.learn(request.fd, fd, request.bytes)),
        (Method::MAP, None) => ControlReply::new(Status::Invalid),
        (Method::UNMAP, _) => {
            platform.unlearn(request.fd);
            ControlReply::new(Status::Ok)
        }
        (Method::STOP | Method::FORGET | Method::BATCH | Method::COUNT, _) => ControlReply::new(Status::NotStarted),
        _ => ControlReply::new(Status::Unsupported),
    }
}

fn start(request: &ControlRequest) -> Result<StartRequest, Status> {
    let start = StartRequest::read_from_bytes(request.message()).map_err(|_| Status::Truncated)?;
    start.check()?;
    Ok(start)
}

/// Runs one session until it is stopped; false when the host is gone.
fn serve_session(socket: i32, platform: &EmuPlatform, start: &StartRequest) -> bool {
    let pinned = BufferDesc {
        bytes: start.pinned_bytes,
        fd: start.pinned_fd,
        ..BufferDesc::default()
    };
    let limits = match SessionLimits::new(start, KernelSet::best()) {
        Ok(limits) => limits,
        Err(status) => {
            answer(socket, &ControlReply::new(status));
            return true;
        }
    };
    let memory = match SessionMemory::new(platform, &pinned, start) {
        Ok(memory) => memory,
        Err(status) => {
            answer(socket, &ControlReply::new(status));
            return true;
        }
    };
    let n_threads = match start.n_threads {
        0 => N_THREADS,
        n => n.min(MAX_THREADS),
    };
    let pool = Pool::new(platform, n_threads);
    let starts: Vec<WorkerStart<'_, '_>, { MAX_THREADS as usize }> =
        (1..n_threads).map(|idx| WorkerStart { pool: &pool, idx }).collect();
    let workers = match Workers::start(&pool, &starts) {
        Ok(workers) => workers,
        Err(status) => {
            memory.release(platform);
            answer(socket, &ControlReply::new(status));
            return true;
        }
    };
    let mut session = Session::new(&pool, limits, memory.descriptors(), memory.scratch(start));
    answer(socket, &ControlReply::new(Status::Ok));
    let mut bytes = [0u8; size_of::<ControlRequest>()];
    let connected = loop {
        let (request, attached) = match next(socket, &mut bytes) {
            Next::Call(request, attached) => (request, attached),
            Next::Gone => break false,
            Next::Bad(status) => {
                answer(socket, &ControlReply::new(status));
                continue;
            }
        };
        match request.method {
            Method::BATCH => {
                let reply = session.serve(&Packet {
                    message: request.message(),
                    block: memory.block(&request, &pinned),
                });
                let _ = sys::send(socket, reply.as_bytes());
            }
            Method::FORGET => {
                session.forget(request.fd);
                answer(socket, &ControlReply::new(Status::Ok));
            }
            Method::COUNT => {
                let counted = control::events(&request).and_then(|events| session.count(&events));
                answer(socket, &status(counted));
            }
            Method::STOP => {
                answer(socket, &ControlReply::new(Status::Ok));
                break true;
            }
            Method::START => answer(socket, &ControlReply::new(Status::AlreadyStarted)),
            _ => answer(socket, &call(platform, &request, attached)),
        }
    };
    session.close();
    drop(workers);
    memory.release(platform);
    connected
}

/// What a session owns beside its mappings.
struct SessionMemory {
    pinned: Mapped,
    descriptors: (u32, u32),
    scratch: u32,
}

impl SessionMemory {
    fn new(platform: &EmuPlatform, pinned: &BufferDesc, start: &StartRequest) -> Result<Self, Status> {
        let none = |_| Status::MapFailed;
        let pinned = platform.map(pinned)?;
        let bytes = start.block_bytes_max.max(4096);
        let descriptors = (sys::map(None, bytes).map_err(none)?, bytes);
        let scratch = sys::map(None, SCRATCH_BYTES).map_err(none)?;
        Ok(Self {
            pinned,
            descriptors,
            scratch,
        })
    }

    fn descriptors(&self) -> &'static mut [u8] {
        let (start, bytes) = self.descriptors;
        // SAFETY: fresh private memory, handed out once, taken back after the session has ended.
        unsafe { core::slice::from_raw_parts_mut(start as usize as *mut u8, bytes as usize) }
    }

    fn scratch(&self, start: &StartRequest) -> Span<'static, u8> {
        let bytes = match start.scratch_bytes_max {
            0 => SCRATCH_BYTES,
            max => u32::try_from(max).unwrap_or(u32::MAX).min(SCRATCH_BYTES),
        };
        // SAFETY: fresh private memory of at least that size, taken back after the session has ended.
        unsafe { Span::new(self.scratch as usize as *mut u8, bytes as usize) }
    }

    fn block(&self, request: &ControlRequest, pinned: &BufferDesc) -> Option<BlockRef> {
        let end = request.offset.checked_add(request.bytes)?;
        let inside = request.fd == pinned.fd && end <= self.pinned.bytes;
        inside.then_some(BlockRef {
            fd: request.fd,
            offset: request.offset,
            bytes: request.bytes,
            address: self.pinned.address()? + request.offset,
        })
    }

    fn release(self, platform: &EmuPlatform) {
        platform.unmap(0, self.pinned);
        // SAFETY: the session that used them has ended.
        unsafe { sys::unmap(self.descriptors.0, self.descriptors.1) };
        // SAFETY: as above.
        unsafe { sys::unmap(self.scratch, SCRATCH_BYTES) };
    }
}

/// Worker threads of one session. Dropping it waits for them, so that nothing they borrow goes first.
struct Workers<'a, 'p> {
    pool: &'a Pool<&'p EmuPlatform>,
    n_started: usize,
}

/// What a worker thread is given.
struct WorkerStart<'a, 'p> {
    pool: &'a Pool<&'p EmuPlatform>,
    idx: u32,
}

impl<'a, 'p> Workers<'a, 'p> {
    fn start(pool: &'a Pool<&'p EmuPlatform>, starts: &'a [WorkerStart<'a, 'p>]) -> Result<Self, Status> {
        let mut workers = Self { pool, n_started: 0 };
        for (idx, start) in starts.iter().enumerate() {
            // SAFETY: `starts` outlives `workers`, whose drop waits until the thread has ended.
            let started = unsafe { threads::spawn(idx, worker, core::ptr::from_ref(start).cast()) };
            if !started {
                return Err(Status::Internal);
            }
            workers.n_started += 1;
        }
        Ok(workers)
    }
}

impl Drop for Workers<'_, '_> {
    fn drop(&mut self) {
        self.pool.stop();
        (0..self.n_started).for_each(threads::join);
    }
}

extern "C" fn worker(arg: *const ()) {
    // SAFETY: `Workers::start` passes a live `WorkerStart`.
    let start = unsafe { &*arg.cast::<WorkerStart<'_, '_>>() };
    start.pool.work(start.idx);
}

fn status(result: Result<(), Status>) -> ControlReply {
    ControlReply::new(result.err().unwrap_or(Status::Ok))
}

fn answer(socket: i32, reply: &ControlReply) {
    // A host that is gone is noticed by the next receive.
    let _ = sys::send(socket, reply.as_bytes());
}
