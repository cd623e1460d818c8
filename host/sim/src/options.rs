//! What the simulated machine is like.

use std::time::Duration;

use hexloom::transport::HwInfo;
use hexloom_abi::limits::{MAX_THREADS, has_extended_mappings, window_bytes};
use hexloom_dsp::KernelSet;

use crate::{DmaOptions, FaultPlan, Harsh};

/// What the simulated DSP is like. The default is quick and kind.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Architecture number that every core has; decides the largest mapping and whether there are extended ones.
    pub arch: u32,
    /// Cores.
    pub n_cores: u32,
    /// Sessions that can be open on a core at a time.
    pub n_sessions: u32,
    /// Hardware threads of a core; 0 = those of this machine.
    pub n_threads: u32,
    /// Scratch (VTCM) bytes.
    pub scratch_bytes: u64,
    /// Bytes of each session's 32-bit window; 0 = those that the architecture has.
    pub window_bytes: u64,
    /// The DSP side maps buffers outside the window where the architecture can: older systems lack the call.
    pub dsp_extended: bool,
    /// Let the host unmap what the DSP side has mapped still, as some drivers do; the mapping there lives on. Otherwise that
    /// is refused.
    pub lax_unmaps: bool,
    /// Longest time that a call without a deadline of its own may take.
    pub call_timeout: Duration,
    /// Vector kernels to run; `None` = the fastest that this processor has.
    pub kernels: Option<KernelSet>,
    /// Fill scratch with junk before every op.
    pub junk_scratch: bool,
    /// The DMA engine that brings weights into scratch; `None` = kernels read them where they lie, which costs a PC less. A
    /// core with extended mappings has an engine in any case.
    pub dma: Option<DmaOptions>,
    /// Caches, windows and chance.
    pub harsh: Harsh,
    /// What goes wrong, and when. Shared by all sessions of the transport; each entry happens once.
    pub faults: FaultPlan,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            arch: 73,
            n_cores: 4,
            n_sessions: 4,
            n_threads: 0,
            scratch_bytes: 8 << 20,
            window_bytes: 0,
            dsp_extended: true,
            lax_unmaps: false,
            call_timeout: Duration::from_secs(30),
            kernels: None,
            junk_scratch: false,
            dma: None,
            harsh: Harsh::default(),
            faults: FaultPlan::default(),
        }
    }
}

impl SimOptions {
    /// Everything as harsh as it gets: [`Harsh::all`], junk in scratch, and an engine that is late and out of order.
    pub fn harsh(seed: u64) -> Self {
        Self {
            junk_scratch: true,
            dma: Some(DmaOptions::harsh()),
            harsh: Harsh::all(seed),
            ..Self::default()
        }
    }

    /// The engine asked for. Where there are extended mappings, which nothing else reaches, there is one in any case, and it
    /// takes their addresses.
    pub(crate) fn dma_in_use(&self) -> Option<DmaOptions> {
        if !has_extended_mappings(self.arch) {
            return self.dma.clone();
        }
        Some(DmaOptions {
            arch: self.arch,
            ..self.dma.clone().unwrap_or_default()
        })
    }

    /// The kernels asked for, otherwise the fastest that this processor has.
    pub(crate) fn kernels_in_use(&self) -> KernelSet {
        self.kernels.unwrap_or_else(KernelSet::best)
    }

    /// The window asked for, otherwise that of the architecture.
    pub(crate) fn window_in_use(&self) -> u64 {
        match self.window_bytes {
            0 => window_bytes(self.arch),
            bytes => bytes,
        }
    }

    /// Whether the DSP side maps buffers outside the window.
    pub(crate) fn maps_extended(&self) -> bool {
        self.dsp_extended && has_extended_mappings(self.arch)
    }

    pub(crate) fn hw_info(&self) -> HwInfo {
        let n_threads = match self.n_threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            n => n,
        };
        HwInfo {
            arch: self.arch,
            n_threads: n_threads.min(MAX_THREADS),
            n_hmx: 0,
            scratch_bytes: self.scratch_bytes,
            window_bytes: self.window_in_use(),
            has_extended: self.maps_extended(),
        }
    }
}
