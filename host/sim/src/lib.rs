//! The simulator: a transport that runs hexloom's DSP half in this process, on threads of its own.
//!
//! Shared memory is memfd, mapped once for the host and a second time for the DSP side, so that addresses differ as they
//! do on a device. A session is a DSP process with a window of limited size, first-fit placement and, if asked, a DMA
//! engine. It can be told to stall, to die or to answer garbage at a given batch and op, any call can be made to fail
//! ([`FaultPlan`]), and the machine can be made as harsh as a device and harsher ([`Harsh`]). Everything that is taken is
//! counted ([`Counts`]).
//!
//! [`NullTransport`] answers every batch at once without computing, for measuring the host alone.

mod calls;
mod channel;
mod connection;
mod decode;
mod dma;
mod driver;
mod dsp;
mod fault;
mod harsh;
mod memory;
mod null;
mod options;
mod platform;
mod process;
mod regions;
mod shadow;
mod tally;
mod window;

use std::sync::Arc;

use hexloom::transport::{Connection, Core, SessionAt, SharedMemory, Transport, TransportError};

pub use calls::{Call, CallName};
pub use dma::{DmaOptions, DoneCount};
pub use fault::{CallFault, FaultKind, FaultPlan, Garbage};
pub use harsh::{Harsh, LateFree};
pub use hexloom_dsp::{KernelSet, control, rpc};
pub use null::NullTransport;
pub use options::SimOptions;
pub use tally::Counts;

use connection::SimConnection;
use driver::Driver;

/// The simulator as a transport.
pub struct SimTransport {
    driver: Arc<Driver>,
}

impl SimTransport {
    /// A simulator with the given hardware.
    pub fn new(options: SimOptions) -> Self {
        Self {
            driver: Arc::new(Driver::new(options)),
        }
    }

    /// The kernels that its sessions run, unless they ask for the references.
    pub fn kernels(&self) -> KernelSet {
        self.driver.options.kernels_in_use()
    }

    /// What its sessions and allocations hold now.
    pub fn counts(&self) -> Counts {
        self.driver.tally.counts()
    }

    /// Calls until now, those of the DSP side to its system among them. Numbers for [`FaultPlan::fail_call`].
    pub fn n_calls(&self) -> u64 {
        self.driver.calls.n()
    }

    /// Begins an empty log of calls, or ends it.
    pub fn log_calls(&self, keep: bool) {
        self.driver.calls.keep_log(keep);
    }

    /// The calls since the log began, in the order in which they began; empty without a log.
    pub fn calls(&self) -> Vec<Call> {
        self.driver.calls.log()
    }

    /// Rules that were broken without any call having failed: descriptors closed while a session had them mapped.
    pub fn breaches(&self) -> Vec<String> {
        self.driver.breaches()
    }

    /// Ends every DSP process, as a restart of the whole DSP does.
    pub fn restart(&self) {
        self.driver.restart("the simulated DSP restarted");
    }
}

impl Transport for SimTransport {
    fn name(&self) -> &str {
        "sim"
    }

    fn alloc(&self, bytes: u64) -> Result<SharedMemory, TransportError> {
        self.driver.alloc(bytes)
    }

    fn cores(&self) -> Result<Vec<Core>, TransportError> {
        self.driver.cores()
    }

    fn open(&self, at: SessionAt) -> Result<Arc<dyn Connection>, TransportError> {
        let process = self.driver.open(at)?;
        Ok(Arc::new(SimConnection::new(Arc::clone(&self.driver), process)))
    }
}

impl Default for SimTransport {
    fn default() -> Self {
        Self::new(SimOptions::default())
    }
}

impl std::fmt::Debug for SimTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimTransport({:?})", self.counts())
    }
}
