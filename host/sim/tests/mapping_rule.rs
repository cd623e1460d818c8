//! The DSP's mapping table against the host's model of it: equal random sessions over equal windows whose space comes back
//! late, compared after every call.

use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, MutexGuard};

use hexloom::abi::{BufferDesc, Status};
use hexloom::plan::buffers::BufferLimits;
use hexloom::plan::window::{Call, HistoryOptions, Making, Need, Replay, Table, Way, Window};
use hexloom_dsp::mapping::{MappingTable, PinnedBuffer};
use hexloom_dsp::platform::{Base, Mapped, Platform};

const WINDOW_BYTES: u64 = hexloom::abi::limits::WINDOW_BYTES_DEFAULT;
const HISTORIES: u64 = 40;
/// Space comes back up to so many calls after an unmap.
const LATE_CALLS: u64 = 12;

/// The session's own buffer, not in the window: the model has none.
const PINNED: PinnedBuffer = PinnedBuffer {
    fd: u32::MAX,
    address: 1 << 40,
    bytes: 4096,
};

/// A machine with the model's window.
struct Machine(Mutex<Window>);

impl Machine {
    fn window(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap()
    }
}

impl Platform for Machine {
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        let start = self.window().map(buffer.bytes).ok_or(Status::WindowFull)?;
        Ok(Mapped::window(start, buffer.bytes))
    }
    fn unmap(&self, _fd: u32, mapped: Mapped) {
        self.window().unmap(mapped.address().unwrap());
    }
    fn settle(&self, _timeout_us: u32) -> bool {
        self.window().wait()
    }
    fn clean(&self, _: u64, _: u64) {}
    fn invalidate(&self, _: u64, _: u64) {}
    fn cycles(&self) -> u64 {
        0
    }
    fn nanos(&self) -> u64 {
        0
    }
    fn wait(&self, _: &AtomicU32, _: u32, _: u32) {}
    fn wake(&self, _: &AtomicU32) {}
}

/// Model and table side by side.
struct Both {
    model: Table,
    table: MappingTable,
    machine: Machine,
}

impl Both {
    fn new(seed: u64) -> Self {
        let window = Window::new(WINDOW_BYTES).with_late_frees(LATE_CALLS, seed);
        Self {
            model: Table::new(window.clone(), Making::Stretch),
            table: MappingTable::new(WINDOW_BYTES),
            machine: Machine(Mutex::new(window)),
        }
    }

    fn resolve(&mut self, batch: &[Need]) {
        let buffers: Vec<BufferDesc> = batch.iter().map(|need| desc(need.id, need.bytes)).collect();
        assert!(self.model.resolve(batch), "the model refuses {batch:?}");
        let bases = self.table.resolve(&self.machine, &buffers, PINNED).unwrap();
        for (base, buffer) in bases.iter().zip(&buffers) {
            assert_eq!(Some(*base), self.table.base_of(buffer, PINNED));
        }
        self.compare();
    }

    fn forget(&mut self, id: u32) {
        self.model.forget(&[id]);
        self.table.forget(&self.machine, id);
        self.compare();
    }

    /// Equal mappings at equal places, from equally many maps, and equal holes with what is on its way back.
    fn compare(&self) {
        let mappings = self.model.mappings();
        for &(id, start, bytes) in &mappings {
            let base = self.table.base_of(&desc(id, bytes), PINNED);
            assert_eq!(base, Some(Base::Window(start)), "buffer {id}");
        }
        assert_eq!(self.table.len(), mappings.len());
        assert_eq!(u64::from(self.table.n_maps()), self.model.costs().maps);
        assert_eq!(self.machine.window().holes(), self.model.window().holes());
    }
}

fn desc(fd: u32, bytes: u64) -> BufferDesc {
    BufferDesc {
        fd,
        bytes,
        generation: 1,
        ..BufferDesc::default()
    }
}

/// Replays histories on both; gives defragmentations, evictions and waits.
fn replay(options: HistoryOptions, way: Way) -> (u64, u64, u64) {
    let mut sums = (0, 0, 0);
    for seed in 1..=HISTORIES {
        let window = Window::new(WINDOW_BYTES).with_late_frees(LATE_CALLS, seed);
        let mut calls = Replay::new(window, way).with_calls();
        let mut both = Both::new(seed);
        for event in options.history(seed) {
            calls.step(&event).unwrap();
            for call in calls.take_calls() {
                match call {
                    // Copies of caches that together are larger than the window.
                    Call::Resolve(batch) if batch.iter().map(|need| need.bytes).sum::<u64>() > WINDOW_BYTES => (),
                    Call::Resolve(batch) => both.resolve(&batch),
                    Call::Forget(ids) => ids.iter().for_each(|&id| both.forget(id)),
                }
            }
        }
        let costs = both.model.costs();
        sums.0 += costs.defragmentations;
        sums.1 += costs.evictions;
        sums.2 += costs.waits;
    }
    sums
}

#[test]
fn sessions_that_fit() {
    let way = Way::Hexloom(BufferLimits::new(79, WINDOW_BYTES));
    let (defragmentations, _, waits) = replay(HistoryOptions::new(WINDOW_BYTES), way);
    assert!(defragmentations > 20 && waits > 20, "{defragmentations} and {waits}");
}

#[test]
fn sessions_larger_than_the_window() {
    let options = HistoryOptions {
        live_permille: 1500,
        ..HistoryOptions::new(WINDOW_BYTES)
    };
    let way = Way::FirstFit {
        cap_bytes: 256 << 20,
        making: Making::Stretch,
    };
    let (defragmentations, evictions, _) = replay(options, way);
    assert!(
        defragmentations > 20 && evictions > 1000,
        "{defragmentations} and {evictions}"
    );
}
