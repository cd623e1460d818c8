//! The simulator: a transport that runs hexloom's DSP half in this process, on threads of its own.
//!
//! Shared memory is memfd, mapped once for the host and a second time for the DSP side, so that addresses differ as they
//! do on a device. The DSP side has a window of limited size with first-fit placement, its scratch can be filled with
//! junk before every op, a DMA engine can stream weights, and it can be told to stall, to die or to answer garbage at a given batch and op.
//!
//! [`NullTransport`] answers every batch at once without computing, for measuring the host alone.

mod connection;
mod decode;
mod dma;
mod dsp;
mod fault;
mod memory;
mod null;
mod platform;
mod regions;
mod window;

use std::sync::Arc;

use hexloom::transport::{Connection, Core, HwInfo, SessionAt, SharedMemory, Transport, TransportError};

pub use dma::{DmaOptions, DoneCount};
pub use fault::{FaultKind, FaultPlan, Garbage};
pub use hexloom_dsp::KernelSet;
pub use null::NullTransport;

/// What the simulated DSP is like.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Architecture number that every core has; decides the largest mapping and whether there are extended ones.
    pub arch: u32,
    /// Cores.
    pub n_cores: u32,
    /// Hardware threads of a core; 0 = those of this machine.
    pub n_threads: u32,
    /// Scratch (VTCM) bytes.
    pub scratch_bytes: u64,
    /// Bytes of the 32-bit window.
    pub window_bytes: u64,
    /// Vector kernels to run; `None` = the fastest that this processor has.
    pub kernels: Option<KernelSet>,
    /// Fill scratch with junk before every op.
    pub junk_scratch: bool,
    /// The DMA engine that brings weights into scratch; `None` = kernels read them where they lie, which costs a PC less.
    pub dma: Option<DmaOptions>,
    /// What goes wrong, and when. Shared by all sessions of the transport; each entry happens once.
    pub faults: FaultPlan,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            arch: 73,
            n_cores: 4,
            n_threads: 0,
            scratch_bytes: 8 << 20,
            window_bytes: hexloom_abi::limits::WINDOW_BYTES_DEFAULT,
            kernels: None,
            junk_scratch: false,
            dma: None,
            faults: FaultPlan::default(),
        }
    }
}

/// The simulator as a transport.
#[derive(Debug, Default)]
pub struct SimTransport {
    options: SimOptions,
}

impl SimTransport {
    /// A simulator with the given hardware.
    pub fn new(options: SimOptions) -> Self {
        Self { options }
    }

    /// The kernels that its sessions run, unless they ask for the references.
    pub fn kernels(&self) -> KernelSet {
        self.options.kernels_in_use()
    }
}

impl Transport for SimTransport {
    fn name(&self) -> &str {
        "sim"
    }

    fn alloc(&self, bytes: u64) -> Result<SharedMemory, TransportError> {
        hexloom::transport::memfd::alloc(bytes)
    }

    fn cores(&self) -> Result<Vec<Core>, TransportError> {
        let cores = (0..self.options.n_cores).map(|number| Core {
            number,
            name: format!("sim{number}"),
            arch: self.options.arch,
        });
        Ok(cores.collect())
    }

    fn open(&self, at: SessionAt) -> Result<Arc<dyn Connection>, TransportError> {
        if at.core >= self.options.n_cores {
            return Err(TransportError::Call {
                call: "open",
                reason: format!(
                    "there is no core {}; the simulator has {}",
                    at.core, self.options.n_cores
                ),
                code: 0,
            });
        }
        Ok(Arc::new(connection::SimConnection::new(self.options.clone())))
    }
}

impl SimOptions {
    /// The kernels asked for, otherwise the fastest that this processor has.
    fn kernels_in_use(&self) -> KernelSet {
        self.kernels.unwrap_or_else(KernelSet::best)
    }

    fn hw_info(&self) -> HwInfo {
        let n_threads = match self.n_threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            n => n,
        };
        HwInfo {
            arch: self.arch,
            n_threads: n_threads.min(hexloom_abi::limits::MAX_THREADS),
            n_hmx: 0,
            scratch_bytes: self.scratch_bytes,
            window_bytes: self.window_bytes,
        }
    }
}
