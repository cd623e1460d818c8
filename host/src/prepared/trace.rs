//! Traces of a run: what each DSP thread did and when, and when the host sent each batch and had its reply.
//!
//! The DSP writes starts and stops; here they become intervals. Bytes of the DSP are not trusted: unknown numbers and stops
//! without a start are left out, a start without a stop ends with its batch.

use std::time::Instant;

use hexloom_abi::profile::{TRACE_CACHE, TRACE_DMA, TRACE_FENCE, TRACE_KERNEL, TRACE_MAP, TRACE_STOP};
use hexloom_abi::{BatchReply, BlockLayout, TraceRecord};

use crate::batch::TraceSize;
use crate::session::{Slot, record};

/// What happened in one batch of the last traced run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchTrace {
    /// When the host began and ended to hand the request over.
    pub push: (Instant, Instant),
    /// When the host began to wait and when it had the reply.
    pub wait: (Instant, Instant),
    /// Value of the DSP's cycle counter when it took the request.
    pub cycles_start: u64,
    /// Cycles from then to the reply.
    pub cycles: u64,
    /// The same in microseconds.
    pub elapsed_us: u32,
    /// Where the batch's ops begin in the run's costs, and how many there are.
    pub ops: std::ops::Range<usize>,
    /// By DSP thread.
    pub threads: Vec<ThreadTrace>,
}

/// What one DSP thread did in a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTrace {
    /// In order of their ends.
    pub intervals: Vec<Interval>,
    /// Records for which there was no room.
    pub dropped: u32,
}

/// Something a thread did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// What.
    pub activity: Activity,
    /// Index of the op in the batch.
    pub op_idx: u32,
    /// Cycles from the batch's start.
    pub start: u64,
    /// Cycles from the batch's start.
    pub stop: u64,
}

/// What a thread can be at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Running its part of a kernel.
    Kernel,
    /// Mapping and resolving buffers.
    Map,
    /// Cache maintenance.
    Cache,
    /// Waiting for a fence.
    Fence,
    /// Waiting for a transfer by DMA.
    Dma,
}

impl Activity {
    /// Name in timelines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Map => "map",
            Self::Cache => "cache",
            Self::Fence => "fence",
            Self::Dma => "dma wait",
        }
    }

    fn of(id: u16) -> Option<Self> {
        Some(match id {
            TRACE_KERNEL => Self::Kernel,
            TRACE_MAP => Self::Map,
            TRACE_CACHE => Self::Cache,
            TRACE_FENCE => Self::Fence,
            TRACE_DMA => Self::Dma,
            _ => return None,
        })
    }
}

/// Reads the rows of a batch.
pub(super) fn read_threads(slot: &Slot, layout: &BlockLayout, reply: &BatchReply, size: TraceSize) -> Vec<ThreadTrace> {
    let row = |(thread, &count): (u64, &u32)| {
        let start = layout.traces_offset + thread * layout.trace_row_bytes;
        let mut bytes = vec![0; size.n_records.min(count) as usize * size_of::<TraceRecord>()];
        slot.read(start, &mut bytes);
        let records = bytes.chunks_exact(size_of::<TraceRecord>());
        ThreadTrace {
            intervals: intervals(records.filter_map(record), reply),
            dropped: count.saturating_sub(size.n_records),
        }
    };
    (0..)
        .zip(&reply.n_traces)
        .take(size.n_threads as usize)
        .map(row)
        .collect()
}

fn intervals(records: impl Iterator<Item = TraceRecord>, reply: &BatchReply) -> Vec<Interval> {
    let end = reply.cycles_stop.wrapping_sub(reply.cycles_start);
    let since_start = |cycles: u32| u64::from(cycles.wrapping_sub(reply.cycles_start as u32)).min(end);
    let mut open: Vec<Interval> = Vec::new();
    let mut done = Vec::new();
    for record in records {
        let Some(activity) = Activity::of(record.id) else {
            continue;
        };
        let at = since_start(record.cycles);
        if record.info & TRACE_STOP == 0 {
            open.push(Interval {
                activity,
                op_idx: record.info.into(),
                start: at,
                stop: end,
            });
        } else if let Some(idx) = open.iter().rposition(|interval| interval.activity == activity) {
            let interval = open.remove(idx);
            done.push(Interval {
                stop: at.max(interval.start),
                ..interval
            });
        }
    }
    done.extend(open.into_iter().rev());
    done
}

#[cfg(test)]
mod tests {
    use hexloom_abi::Status;

    use super::*;

    fn reply(start: u64, stop: u64) -> BatchReply {
        BatchReply {
            cycles_start: start,
            cycles_stop: stop,
            ..BatchReply::new(1, Status::Ok)
        }
    }

    fn found(records: &[(u32, u16, u16)], reply: &BatchReply) -> Vec<(Activity, u32, u64, u64)> {
        let records = records
            .iter()
            .map(|&(cycles, id, info)| TraceRecord { cycles, id, info });
        let intervals = intervals(records, reply).into_iter();
        intervals
            .map(|found| (found.activity, found.op_idx, found.start, found.stop))
            .collect()
    }

    #[test]
    fn starts_and_stops_become_intervals() {
        let records = [
            (110, TRACE_KERNEL, 2),
            (120, TRACE_DMA, 2),
            (130, TRACE_DMA, TRACE_STOP | 2),
            (150, TRACE_KERNEL, TRACE_STOP | 2),
            (160, TRACE_KERNEL, 3),
        ];
        let wanted = [
            (Activity::Dma, 2, 20, 30),
            (Activity::Kernel, 2, 10, 50),
            (Activity::Kernel, 3, 60, 200),
        ];
        assert_eq!(found(&records, &reply(100, 300)), wanted);
    }

    #[test]
    fn the_low_half_of_the_counter_wraps() {
        let base = 0x7_ffff_fff0;
        let records = [(0xffff_fff8, TRACE_MAP, 0), (0x10, TRACE_MAP, TRACE_STOP)];
        let wanted = [(Activity::Map, 0, 8, 0x20)];
        assert_eq!(found(&records, &reply(base, base + 0x100)), wanted);
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let records = [
            (10, TRACE_KERNEL, TRACE_STOP),
            (10, 999, 0),
            (50, TRACE_CACHE, 1),
            (20, TRACE_CACHE, TRACE_STOP | 1),
            (1 << 30, TRACE_FENCE, 1),
        ];
        let wanted = [(Activity::Cache, 1, 50, 50), (Activity::Fence, 1, 100, 100)];
        assert_eq!(found(&records, &reply(0, 100)), wanted);
    }
}
