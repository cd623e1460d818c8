//! What a session can be told when it is opened.

use std::time::Duration;

use hexloom_abi::control::CountedEvents;
use hexloom_abi::fence::MAX_MEMBERS;
use hexloom_abi::layout::{BlockCounts, BlockLayout};
use hexloom_abi::limits::{MAX_BUFFERS, MAX_OPS, MAX_TENSORS, MAX_THREADS, MAX_TRACE_RECORDS, PMU_COUNTERS};

use crate::device::Device;
use crate::error::OpenError;
use crate::transport::SessionAt;

/// Options of a session; `Default` fits a language model.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The core, and which session on it.
    pub at: SessionAt,
    /// More cores, in the same session number: a group, in which every core computes a part of each op's rows.
    pub more_cores: Vec<u32>,
    /// DSP threads; 0 = all there are.
    pub n_threads: u32,
    /// Run the plain reference kernels, which the simulator has.
    pub reference: bool,
    /// Whether the DSP's matrix unit is used.
    pub matrix_unit: MatrixUnit,
    /// Queue slots. A prepared graph owns one for each of its batches for life; what is left serves one-shot graphs.
    pub n_slots: u32,
    /// Ops that a batch holds at most.
    pub batch_ops: u32,
    /// Tensors that a batch holds at most.
    pub batch_tensors: u32,
    /// Fence slots behind the queue slots.
    pub n_fences: u32,
    /// Longest wait for a reply.
    pub deadline: Duration,
    /// Bytes of the 32-bit window to use; 0 = what the DSP reports.
    pub window_bytes: u64,
    /// Scratch bytes to use at most; 0 = all there is.
    pub scratch_bytes_max: u64,
    /// Map weights outside the 32-bit window, where only DMA reaches them (v81 and later). Refused at the opening where the
    /// DSP's architecture or system has no such mappings.
    pub extended_weights: bool,
    /// Largest buffer that tensors are packed into.
    pub buffer_bytes_max: u64,
    /// Trace records of each DSP thread that a slot has room for; with any, profiled runs are traced.
    pub trace_records: u32,
    /// Events that the DSP's performance counters count, by their numbers on its architecture; 0 = nothing. Profiled runs
    /// carry the counts in [`crate::prepared::OpCost::pmu`].
    pub counters: [u16; PMU_COUNTERS],
}

/// Whether products of many rows and attention run on the DSP's matrix unit (v73 and later).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MatrixUnit {
    /// Where the DSP has one.
    #[default]
    Auto,
    /// Never; vector kernels serve everything.
    Off,
    /// Where the DSP has one, and elsewhere its software model: the same rounding, slowly.
    Model,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            at: SessionAt::default(),
            more_cores: Vec::new(),
            extended_weights: false,
            n_threads: 0,
            reference: false,
            matrix_unit: MatrixUnit::Auto,
            n_slots: 16,
            batch_ops: 1024,
            batch_tensors: 4096,
            n_fences: 512,
            deadline: Duration::from_secs(60),
            window_bytes: 0,
            scratch_bytes_max: 0,
            buffer_bytes_max: 1 << 30,
            trace_records: 0,
            counters: [0; PMU_COUNTERS],
        }
    }
}

impl SessionOptions {
    /// The same on a device of a list.
    pub fn on(&self, device: &Device) -> Self {
        Self {
            at: device.at,
            more_cores: device.more_cores.clone(),
            ..self.clone()
        }
    }

    /// Refuses numbers outside the wire's limits.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let within = |option, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(OpenError::Option {
                option,
                value,
                allowed: format!("{low} to {high}"),
            })
        };
        let cores: Vec<u32> = std::iter::once(self.at.core)
            .chain(self.more_cores.iter().copied())
            .collect();
        if let Some((_, &core)) = cores
            .iter()
            .enumerate()
            .find(|&(idx, core)| cores[..idx].contains(core))
        {
            return Err(OpenError::Option {
                option: "more_cores",
                value: core.into(),
                allowed: "every core once".to_owned(),
            });
        }
        within(
            "more_cores",
            self.more_cores.len() as u64,
            0,
            u64::from(MAX_MEMBERS) - 1,
        )?;
        within("n_threads", self.n_threads.into(), 0, MAX_THREADS.into())?;
        within("n_slots", self.n_slots.into(), 1, 1024)?;
        within("batch_ops", self.batch_ops.into(), 1, MAX_OPS.into())?;
        within("batch_tensors", self.batch_tensors.into(), 14, MAX_TENSORS.into())?;
        within("trace_records", self.trace_records.into(), 0, MAX_TRACE_RECORDS.into())?;
        let event = self.counters.into_iter().max().unwrap_or(0);
        within("counters", event.into(), 0, CountedEvents::MAX.into())?;
        within("n_fences", self.n_fences.into(), 0, 65_535)?;
        within("buffer_bytes_max", self.buffer_bytes_max, 4096, u64::from(u32::MAX) + 1)
    }

    /// Bytes of one queue slot: a block at full capacity with profile and trace records.
    pub(crate) fn slot_bytes(&self) -> u64 {
        let counts = BlockCounts {
            n_buffers: MAX_BUFFERS,
            n_tensors: self.batch_tensors,
            n_ops: self.batch_ops,
            profiled: true,
            n_traces: self.trace_records,
            n_threads: if self.trace_records > 0 { MAX_THREADS } else { 0 },
        };
        BlockLayout::new(&counts).map_or(0, |layout| layout.bytes)
    }
}
