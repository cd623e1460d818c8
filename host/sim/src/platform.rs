//! The PC as a [`Platform`]: mappings of shared descriptors, caches as harsh as asked, futex waits, the monotonic clock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hexloom::transport::{TransportError, aee};
use hexloom_abi::control::CountedEvents;
use hexloom_abi::limits::{PMU_COUNTERS, map_bytes_max};
use hexloom_abi::{BufferDesc, Status};
use hexloom_dsp::Platform;
use hexloom_dsp::dma::Engine;
use hexloom_dsp::dma::ring::RingEngine;
use hexloom_dsp::platform::{Base, DeviceAddress, Mapped};
use rustix::thread::futex;

use crate::calls::CallName;
use crate::dma::SimDma;
use crate::fault::FaultKind;
use crate::memory::DspMapping;
use crate::process::Process;
use crate::regions::Regions;

/// The simulated machine under one session.
pub(crate) struct SimPlatform {
    process: Arc<Process>,
    regions: Arc<Regions>,
    dma: Option<RingEngine<SimDma>>,
    start: Instant,
    scratch: ScratchMemory,
    /// Address and bytes of the pinned buffer.
    pinned: (u64, u64),
    /// Batch and op being run, for faults.
    seq: AtomicU64,
    op_idx: AtomicU32,
    counters: Mutex<Counters>,
}

/// Performance counters of a model: one of event N goes on by N from one look to the next.
#[derive(Default)]
struct Counters {
    events: CountedEvents,
    counts: [u32; PMU_COUNTERS],
}

/// Where a session's scratch memory lies.
pub(crate) struct ScratchMemory {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

/// Unwinds out of the interpreter when the simulated DSP process ends.
pub(crate) struct Death(pub(crate) String);

impl SimPlatform {
    /// The machine of a process that uses the pinned buffer `pinned_fd`, at least `pinned_bytes` long.
    pub(crate) fn new(
        process: Arc<Process>,
        scratch: ScratchMemory,
        (pinned_fd, pinned_bytes): (u32, u64),
    ) -> Result<Self, TransportError> {
        let options = &process.options;
        let regions = Arc::new(Regions::new(scratch.address as u64, scratch.bytes as u64));
        let grant = process.grant_pinned(pinned_fd, pinned_bytes).ok_or_else(|| {
            let what = format!("the pinned buffer, fd {pinned_fd} of {pinned_bytes} bytes, is not mapped at once");
            aee::failed("start", aee::ENOSUCHMAP, what)
        })?;
        let mapping = DspMapping::new(grant, options.harsh.incoherent)?;
        let pinned = (mapping.address(), mapping.bytes());
        regions.insert(mapping);
        let engine = |options| SimDma::new(options, Arc::clone(&regions)).map(RingEngine::new);
        let dma = options.dma_in_use().map(engine).transpose();
        Ok(Self {
            dma: dma.map_err(|error| thread_error(&error))?,
            process,
            regions,
            start: Instant::now(),
            scratch,
            pinned,
            seq: AtomicU64::new(0),
            op_idx: AtomicU32::new(0),
            counters: Mutex::default(),
        })
    }

    /// Address and bytes of the pinned buffer.
    pub(crate) fn pinned(&self) -> (u64, u64) {
        self.pinned
    }

    /// Ends the DMA engine, so that scratch memory and mappings can go.
    pub(crate) fn stop_dma(&self) {
        if let Some(dma) = &self.dma {
            dma.hardware().stop();
        }
    }

    /// Ends every mapping, also those that could not be unmapped, as the end of a process does. Nothing may use one.
    pub(crate) fn release(&self) {
        self.regions.clear();
    }

    /// Tells which batch runs next.
    pub(crate) fn begin_batch(&self, seq: u64) {
        self.seq.store(seq, Ordering::Relaxed);
        self.op_idx.store(0, Ordering::Relaxed);
    }
}

impl Platform for SimPlatform {
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        if !self.process.enter_on_dsp(CallName::DspMap, buffer.fd) {
            return Err(Status::MapFailed);
        }
        let grant = self.process.grant(buffer)?;
        let mapping = DspMapping::new(grant, self.process.options.harsh.incoherent);
        let mapping = mapping.map_err(|_| Status::MapFailed)?;
        let mapped = match mapping.is_extended() {
            true => Mapped::extended(DeviceAddress::new(mapping.device_address()), mapping.bytes()),
            false => Mapped::window(mapping.address(), mapping.bytes()),
        };
        self.regions.insert(mapping);
        Ok(mapped)
    }

    fn unmap(&self, fd: u32, mapped: Mapped) {
        if self.process.enter_on_dsp(CallName::DspUnmap, fd) {
            self.regions.remove(match mapped.base {
                Base::Window(address) => address,
                Base::Extended(address) => address.source(),
            });
        }
    }

    fn settle(&self, timeout_us: u32) -> bool {
        self.process.settle(Duration::from_micros(timeout_us.into()))
    }

    fn window_place(&self, address: u64) -> u64 {
        self.regions.to_device(address).unwrap_or(address)
    }

    fn map_bytes_max(&self) -> u64 {
        map_bytes_max(self.process.options.arch)
    }

    fn has_extended(&self) -> bool {
        self.process.options.maps_extended()
    }

    fn clean(&self, address: u64, bytes: u64) {
        if self.process.options.harsh.incoherent {
            self.regions.clean(address, bytes);
        }
    }

    fn invalidate(&self, address: u64, bytes: u64) {
        if self.process.options.harsh.incoherent {
            self.regions.invalidate(address, bytes);
        }
    }

    fn cycles(&self) -> u64 {
        self.nanos()
    }

    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn count(&self, events: &CountedEvents) -> Result<(), Status> {
        lock(&self.counters).events = *events;
        Ok(())
    }

    fn counters(&self) -> [u32; PMU_COUNTERS] {
        let Counters { events, counts } = &mut *lock(&self.counters);
        for (count, event) in counts.iter_mut().zip(events.numbers) {
            *count = count.wrapping_add(event.into());
        }
        *counts
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

    fn wake(&self, word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// Between two looks at a fence; whoever waits does not outlast the process.
    fn relax(&self) {
        if self.process.is_stopping() {
            die("stopped while it waited for another session".to_owned());
        }
        std::thread::yield_now();
    }

    fn disturb_scratch(&self, bytes: usize) {
        let (seq, op_idx) = (
            self.seq.load(Ordering::Relaxed),
            self.op_idx.fetch_add(1, Ordering::Relaxed),
        );
        let (options, dice) = (&self.process.options, &self.process.dice);
        if self.process.is_killed() {
            die("ended by somebody else".to_owned());
        }
        match options.faults.at_op(seq, op_idx) {
            Some(FaultKind::Die) => die(format!("the simulated DSP died in batch {seq}, op {op_idx}")),
            Some(FaultKind::Stall) => self.process.stall(),
            Some(FaultKind::DmaStall) => {
                if let Some(dma) = &self.dma {
                    dma.hardware().stall();
                }
            }
            Some(FaultKind::Reply(_)) | None => {}
        }
        options.harsh.pause(dice);
        if options.harsh.incoherent {
            self.regions.evict(options.harsh.evictions, dice);
        }
        if options.junk_scratch {
            let bytes = bytes.min(self.scratch.bytes);
            // SAFETY: the scratch memory belongs to this session's main thread, which calls this between two ops, and these
            // bytes are no stream's; its owner outlives the session.
            unsafe { std::ptr::write_bytes(self.scratch.address as *mut u8, 0xa5 ^ op_idx as u8, bytes) };
        }
    }
}

/// Ends the simulated DSP process, whose main thread this is.
pub(crate) fn die(why: String) -> ! {
    std::panic::resume_unwind(Box::new(Death(why)))
}

pub(crate) fn thread_error(error: &std::io::Error) -> TransportError {
    TransportError::Call {
        call: "thread",
        reason: error.to_string(),
        code: error.raw_os_error().unwrap_or(0),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
