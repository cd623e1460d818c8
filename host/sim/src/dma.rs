//! The simulated DMA engine: a thread that reads descriptors as the hardware does, and is harsher than it.
//!
//! It knows memory by addresses of its own, in the window, so it reads only what is mapped at that moment, past whatever
//! the DSP side holds as a cache. Bytes are read when a transfer completes and not when it is pushed; until then its target
//! is junk. It can be slow, late, out of order or stalled. Misuse, such as a target that another transfer in flight
//! writes, stops it with a fault, as does a descriptor that names memory which is not there.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hexloom_abi::limits::MAX_THREADS;
use hexloom_dsp::dma::DmaError;
use hexloom_dsp::dma::descriptor::{Arch, Place};
use hexloom_dsp::dma::ring::Hardware;

use crate::decode::{Row, rows};
use crate::platform::lock;
use crate::regions::Regions;

/// What a target holds until its transfer is done.
const JUNK: u8 = 0xdb;

/// What the simulated engine is like.
#[derive(Clone, Debug)]
pub struct DmaOptions {
    /// Architecture version whose descriptors it reads, for instance 73.
    pub arch: u32,
    /// What each transfer takes at least.
    pub transfer_time: Duration,
    /// Looks at its channel that a transfer outlasts: nothing is done before it was asked for so often.
    pub late_looks: u32,
    /// Of the transfers that a channel has, carry out the last one first.
    pub reorder: bool,
    /// Longest wait for a transfer.
    pub deadline: Duration,
    /// Counts what is done.
    pub done: DoneCount,
}

/// Descriptors carried out. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct DoneCount(Arc<AtomicU64>);

/// The engine of one session.
pub(crate) struct SimDma {
    options: DmaOptions,
    shared: Arc<Shared>,
    start: Instant,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    regions: Arc<Regions>,
    state: Mutex<State>,
    changed: Condvar,
    /// Looks at each channel.
    looks: [AtomicU32; MAX_THREADS as usize],
    fault: AtomicBool,
}

#[derive(Default)]
struct State {
    channels: [ChannelState; MAX_THREADS as usize],
    stalled: bool,
    stopping: bool,
}

#[derive(Default)]
struct ChannelState {
    queue: VecDeque<Linked>,
    /// Address of the descriptor that was linked last; 0 before the first.
    tail: usize,
}

/// A descriptor in flight.
#[derive(Clone)]
struct Linked {
    place: PlacePtr,
    rows: Vec<Row>,
    /// Looks at the channel from which on it may be done.
    done_from: u32,
}

#[derive(Clone, Copy)]
struct PlacePtr(*const Place);

// SAFETY: a place is made of atomics, and `Hardware::link` promises that it stays until it is done.
unsafe impl Send for PlacePtr {}

impl Default for DmaOptions {
    fn default() -> Self {
        Self {
            arch: 73,
            transfer_time: Duration::ZERO,
            late_looks: 0,
            reorder: false,
            deadline: Duration::from_secs(5),
            done: DoneCount::default(),
        }
    }
}

impl DmaOptions {
    /// Late and out of order.
    pub fn harsh() -> Self {
        Self {
            late_looks: 3,
            reorder: true,
            ..Self::default()
        }
    }
}

impl DoneCount {
    /// Descriptors that engines with this count have carried out.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl SimDma {
    pub(crate) fn new(options: DmaOptions, regions: Arc<Regions>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            regions,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            looks: std::array::from_fn(|_| AtomicU32::new(0)),
            fault: AtomicBool::new(false),
        });
        let (engine, engine_options) = (Arc::clone(&shared), options.clone());
        let thread = std::thread::Builder::new()
            .name("dsp-dma".to_owned())
            .spawn(move || engine.run(&engine_options))?;
        Ok(Self {
            options,
            shared,
            start: Instant::now(),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Nothing is done from now on.
    pub(crate) fn stall(&self) {
        lock(&self.shared.state).stalled = true;
    }

    /// Ends the engine; when this returns it touches no memory any more.
    pub(crate) fn stop(&self) {
        lock(&self.shared.state).stopping = true;
        self.shared.changed.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic of the engine has left its transfers undone, which their deadline has told.
            let _ = thread.join();
        }
    }

    /// Takes a descriptor, or stops with a fault if something is wrong with it.
    fn take(&self, channel: usize, tail: usize, next: &Place) {
        let rows = rows(Arch::of(self.options.arch), next.words());
        let mut state = lock(&self.shared.state);
        let in_flight = || state.channels.iter().flat_map(|channel| &channel.queue);
        let wrong = if state.channels[channel].tail != tail {
            Some("linked to another descriptor than the channel's last")
        } else if next.is_done() || in_flight().any(|linked| std::ptr::eq(linked.place.0, next)) {
            Some("a descriptor that is in use, or done before it was begun")
        } else if in_flight().any(|linked| linked.rows.iter().any(|a| rows.iter().any(|b| a.disturbs(b)))) {
            Some("a target that another transfer reads or writes")
        } else if !rows
            .iter()
            .all(|row| self.shared.regions.fill(row.target, row.bytes, JUNK))
        {
            Some("a target that is no memory")
        } else {
            None
        };
        state.channels[channel].tail = next.address();
        if let Some(what) = wrong {
            drop(state);
            return self.shared.fault(what);
        }
        let done_from = self.shared.looks[channel]
            .load(Ordering::Relaxed)
            .wrapping_add(self.options.late_looks);
        state.channels[channel].queue.push_back(Linked {
            place: PlacePtr(next),
            rows,
            done_from,
        });
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Hardware for SimDma {
    fn arch(&self) -> Arch {
        Arch::of(self.options.arch)
    }

    fn address(&self, memory: u64) -> Option<u64> {
        self.shared.regions.to_device(memory)
    }

    unsafe fn start(&self, channel: usize, first: &Place) {
        self.take(channel, 0, first);
    }

    unsafe fn link(&self, channel: usize, tail: &Place, next: &Place) {
        self.take(channel, tail.address(), next);
    }

    fn poll(&self, channel: usize) -> Result<(), DmaError> {
        if self.shared.fault.load(Ordering::Acquire) {
            return Err(DmaError::Fault);
        }
        self.shared.looks[channel].fetch_add(1, Ordering::Relaxed);
        if self.options.late_looks > 0 {
            self.shared.changed.notify_all();
        }
        std::thread::yield_now();
        Ok(())
    }

    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn deadline_ns(&self) -> u64 {
        self.options.deadline.as_nanos() as u64
    }
}

impl Drop for SimDma {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// The engine's thread.
    fn run(&self, options: &DmaOptions) {
        while let Some((channel, linked)) = self.next(options.reorder) {
            if !options.transfer_time.is_zero() {
                std::thread::sleep(options.transfer_time);
            }
            let mut state = lock(&self.state);
            if state.stopping {
                return;
            }
            if state.stalled {
                continue;
            }
            let copied = linked.rows.iter().all(|row| self.regions.copy(row));
            state.channels[channel]
                .queue
                .retain(|other| !std::ptr::eq(other.place.0, linked.place.0));
            if copied {
                // SAFETY: `Hardware::link` promises that the place stays until it is done, which it is not yet; the engine
                // is stopped before it is dropped.
                unsafe { &*linked.place.0 }.set_done();
                options.done.0.fetch_add(1, Ordering::Relaxed);
            } else {
                drop(state);
                self.fault("a source or a target that is no memory");
            }
        }
    }

    /// The next transfer that may be done; sleeps until there is one. `None` when the engine ends.
    fn next(&self, reorder: bool) -> Option<(usize, Linked)> {
        let mut state = lock(&self.state);
        loop {
            if state.stopping {
                return None;
            }
            let channels = state.channels.iter().zip(&self.looks).enumerate();
            for (idx, (channel, looks)) in channels.filter(|_| !state.stalled) {
                let looks = looks.load(Ordering::Relaxed);
                let ready = |linked: &&Linked| looks.wrapping_sub(linked.done_from).cast_signed() >= 0;
                let found = match reorder {
                    true => channel.queue.iter().rev().find(ready),
                    false => channel.queue.front().filter(ready),
                };
                if let Some(linked) = found {
                    return Some((idx, linked.clone()));
                }
            }
            // Looks are counted outside the lock, so a wake-up may be missed.
            let waited = self.changed.wait_timeout(state, Duration::from_millis(1));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn fault(&self, what: &str) {
        log::error!("the simulated DMA engine met {what}");
        self.fault.store(true, Ordering::Release);
    }
}
