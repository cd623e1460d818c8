//! The PC as a [`Platform`]: mappings of shared descriptors, a coherent cache, futex waits, the monotonic clock.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hexloom::transport::TransportError;
use hexloom_abi::{BufferDesc, Status};
use hexloom_dsp::Platform;
use hexloom_dsp::dma::Engine;
use hexloom_dsp::dma::ring::RingEngine;
use hexloom_dsp::platform::Mapped;
use rustix::thread::futex;

use crate::SimOptions;
use crate::dma::SimDma;
use crate::fault::{FaultKind, FaultPlan};
use crate::memory::DspMapping;
use crate::regions::Regions;
use crate::window::Window;

/// What the kernel driver knows of a session's memory: descriptors by number, with their sizes.
pub(crate) type KnownMemory = Arc<Mutex<HashMap<u32, (Arc<OwnedFd>, u64)>>>;

/// The simulated machine under one session.
pub(crate) struct SimPlatform {
    known: KnownMemory,
    window: Mutex<Window>,
    regions: Arc<Regions>,
    dma: Option<RingEngine<SimDma>>,
    start: Instant,
    faults: FaultPlan,
    scratch: ScratchMemory,
    junk: bool,
    /// Batch and op being run, for faults.
    seq: AtomicU64,
    op_idx: AtomicU32,
    /// Ends stalls.
    pub(crate) stopping: AtomicBool,
}

/// Where a session's scratch memory lies.
pub(crate) struct ScratchMemory {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

/// Unwinds out of the interpreter when the simulated DSP process ends.
pub(crate) struct Death(pub(crate) String);

impl SimPlatform {
    pub(crate) fn new(
        known: KnownMemory,
        options: &SimOptions,
        scratch: ScratchMemory,
    ) -> Result<Self, TransportError> {
        let regions = Arc::new(Regions::new(scratch.address as u64, scratch.bytes as u64));
        let engine = |options| SimDma::new(options, Arc::clone(&regions)).map(RingEngine::new);
        let dma = options.dma.clone().map(engine).transpose();
        Ok(Self {
            known,
            window: Mutex::new(Window::new(options.window_bytes)),
            dma: dma.map_err(|error| TransportError::Call {
                call: "thread",
                reason: error.to_string(),
                code: error.raw_os_error().unwrap_or(0),
            })?,
            regions,
            start: Instant::now(),
            faults: options.faults.clone(),
            scratch,
            junk: options.junk_scratch,
            seq: AtomicU64::new(0),
            op_idx: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
        })
    }

    /// Ends the DMA engine, so that scratch memory and mappings can go.
    pub(crate) fn stop_dma(&self) {
        if let Some(dma) = &self.dma {
            dma.hardware().stop();
        }
    }

    /// Tells which batch runs next.
    pub(crate) fn begin_batch(&self, seq: u64) {
        self.seq.store(seq, Ordering::Relaxed);
        self.op_idx.store(0, Ordering::Relaxed);
    }
}

impl Platform for SimPlatform {
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        let (fd, bytes) = lock(&self.known).get(&buffer.fd).cloned().ok_or(Status::MapFailed)?;
        if buffer.bytes > bytes {
            return Err(Status::MapFailed);
        }
        let place = lock(&self.window).place(buffer.bytes).ok_or(Status::WindowFull)?;
        let Ok(mapping) = DspMapping::new(&fd, buffer.bytes) else {
            lock(&self.window).free(place);
            return Err(Status::MapFailed);
        };
        let mapped = Mapped::window(mapping.address(), mapping.bytes());
        self.regions.insert(mapping, place);
        Ok(mapped)
    }

    fn unmap(&self, _fd: u32, mapped: Mapped) {
        if let Some(place) = mapped.address().and_then(|address| self.regions.remove(address)) {
            lock(&self.window).free(place);
        }
    }

    fn clean(&self, _address: u64, _bytes: u64) {}

    fn invalidate(&self, _address: u64, _bytes: u64) {}

    fn cycles(&self) -> u64 {
        self.nanos()
    }

    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn dma(&self) -> Option<&dyn Engine> {
        self.dma.as_ref().map(|engine| engine as &dyn Engine)
    }

    fn wait(&self, word: &AtomicU32, expected: u32, timeout_us: u32) {
        let timeout = futex::Timespec {
            tv_sec: i64::from(timeout_us / 1_000_000),
            tv_nsec: i64::from(timeout_us % 1_000_000) * 1000,
        };
        // Every outcome (woken, changed, timed out, interrupted) means: look again.
        let _ = futex::wait(word, futex::Flags::PRIVATE, expected, Some(&timeout));
    }

    fn relax(&self) {
        if self.stopping.load(Ordering::Acquire) {
            die("stopped while it waited for a fence".to_owned());
        }
        std::thread::yield_now();
    }

    fn wake(&self, word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    fn disturb_scratch(&self, bytes: usize) {
        let (seq, op_idx) = (
            self.seq.load(Ordering::Relaxed),
            self.op_idx.fetch_add(1, Ordering::Relaxed),
        );
        match self.faults.at_op(seq, op_idx) {
            Some(FaultKind::Die) => die(format!("the simulated DSP died in batch {seq}, op {op_idx}")),
            Some(FaultKind::Stall) => {
                while !self.stopping.load(Ordering::Acquire) {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                die("stopped while stalled".to_owned());
            }
            Some(FaultKind::DmaStall) => {
                if let Some(dma) = &self.dma {
                    dma.hardware().stall();
                }
            }
            Some(FaultKind::Reply(_)) | None => {}
        }
        if self.junk {
            let bytes = bytes.min(self.scratch.bytes);
            // SAFETY: the scratch memory belongs to this session's main thread, which calls this between two ops, and these
            // bytes are no stream's; its owner outlives the session.
            unsafe { std::ptr::write_bytes(self.scratch.address as *mut u8, 0xa5 ^ op_idx as u8, bytes) };
        }
    }
}

fn die(why: String) -> ! {
    std::panic::resume_unwind(Box::new(Death(why)))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
