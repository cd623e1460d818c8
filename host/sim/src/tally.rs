//! What is taken and not given back, counted where it is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What sessions and allocations of a transport hold at this moment. All zero when everything was given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Connections that are open.
    pub sessions: u64,
    /// Those of them that were reserved: sessions above number 0 of a core.
    pub reserved: u64,
    /// Queues.
    pub queues: u64,
    /// Maps that the host made, recorded ones included.
    pub maps: u64,
    /// Mappings on the DSP side, the pinned buffer's among them.
    pub dsp_maps: u64,
    /// Bytes of all windows that are taken. What an unmap frees late counts as free.
    pub window_bytes: u64,
    /// Shared allocations.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Descriptors that the simulated driver keeps of its own.
    pub descriptors: u64,
    /// Threads of DSP processes.
    pub threads: u64,
}

/// Live counters behind [`Counts`].
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sessions: Counter,
    pub(crate) reserved: Counter,
    pub(crate) queues: Counter,
    pub(crate) maps: Counter,
    pub(crate) dsp_maps: Counter,
    pub(crate) window_bytes: Counter,
    pub(crate) allocations: Counter,
    pub(crate) allocated_bytes: Counter,
    pub(crate) descriptors: Counter,
    pub(crate) threads: Counter,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<AtomicU64>);

/// A part of a counter, given back when dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    counter: Counter,
    amount: u64,
}

impl Tally {
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            sessions: self.sessions.get(),
            reserved: self.reserved.get(),
            queues: self.queues.get(),
            maps: self.maps.get(),
            dsp_maps: self.dsp_maps.get(),
            window_bytes: self.window_bytes.get(),
            allocations: self.allocations.get(),
            allocated_bytes: self.allocated_bytes.get(),
            descriptors: self.descriptors.get(),
            threads: self.threads.get(),
        }
    }
}

impl Counter {
    pub(crate) fn take(&self, amount: u64) -> Counted {
        self.0.fetch_add(amount, Ordering::AcqRel);
        Counted {
            counter: self.clone(),
            amount,
        }
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counter.0.fetch_sub(self.amount, Ordering::AcqRel);
    }
}
