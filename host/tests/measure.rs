//! How much a session can map: what ended the measurement is told apart, and nothing stays mapped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hexloom::session::{MeasureEnd, Measured, measure_window};
use hexloom::transport::{Connection, Core, SessionAt, SharedMemory, Transport, TransportError, aee};
use hexloom_sim::{SimOptions, SimTransport};

const MIB: u64 = 1 << 20;
const WINDOW: u64 = 100 * MIB;

/// A simulator on a machine with so much memory left.
struct Short {
    sim: SimTransport,
    left: AtomicU64,
}

impl Short {
    fn new(left: u64) -> Self {
        let options = SimOptions {
            window_bytes: WINDOW,
            ..SimOptions::default()
        };
        Self {
            sim: SimTransport::new(options),
            left: AtomicU64::new(left),
        }
    }

    fn measure(&self, most_bytes: u64) -> Measured {
        let measured = measure_window(self, SessionAt::default(), most_bytes).expect("it opens");
        let counts = self.sim.counts();
        assert_eq!((counts.sessions, counts.maps, counts.allocations), (0, 0, 0));
        measured
    }
}

impl Transport for Short {
    fn name(&self) -> &str {
        "short"
    }

    fn alloc(&self, bytes: u64) -> Result<SharedMemory, TransportError> {
        let take = |left: u64| left.checked_sub(bytes);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => self.sim.alloc(bytes),
            Err(_) => Err(aee::failed("alloc", aee::ENOMEMORY, format!("{bytes} bytes"))),
        }
    }

    fn cores(&self) -> Result<Vec<Core>, TransportError> {
        self.sim.cores()
    }

    fn open(&self, at: SessionAt) -> Result<Arc<dyn Connection>, TransportError> {
        self.sim.open(at)
    }
}

#[test]
fn a_full_window_ends_it() {
    let measured = Short::new(u64::MAX).measure(u64::MAX);
    assert_eq!((measured.bytes, measured.end), (WINDOW, MeasureEnd::Window));
}

#[test]
fn no_more_is_allocated_than_was_allowed() {
    // Trials that the window has no room for take nothing for long: the machine has enough for each in turn.
    let short = Short::new(u64::MAX);
    let measured = short.measure(40 * MIB + 1);
    assert_eq!((measured.bytes, measured.end), (40 * MIB, MeasureEnd::Bound));
    assert_eq!(u64::MAX - short.left.load(Ordering::Relaxed), 40 * MIB, "allocated");
}

/// Memory of the host that runs out is no small window.
#[test]
fn memory_that_runs_out_is_told() {
    let measured = Short::new(24 * MIB).measure(u64::MAX);
    assert_eq!(measured.bytes, 24 * MIB);
    assert!(matches!(measured.end, MeasureEnd::Memory(error) if error.is_code(aee::ENOMEMORY)));
}
