//! The timeline in Chrome's trace event format: one row for the host, one for each DSP thread.
//!
//! Times are microseconds from the first push. The DSP's clock is its own: a batch's cycles are spread over the
//! microseconds that it says it took, which end when the host has the reply.

use std::time::Instant;

use hexloom::prepared::{BatchTrace, OpCost};
use serde::Serialize;

/// Process numbers of the two rows of processes.
const HOST: u32 = 1;
const DSP: u32 = 2;

/// A file's content.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TraceEvents<'a> {
    trace_events: &'a [Event],
    display_time_unit: &'static str,
}

/// One event: a name for a row (`ph` "M") or an interval (`ph` "X").
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Event {
    ph: &'static str,
    pid: u32,
    tid: u32,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: Detail,
}

#[derive(Serialize, Clone, PartialEq, Debug, Default)]
struct Detail {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    op: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<u32>,
}

/// Events so far.
pub(super) struct Timeline {
    events: Vec<Event>,
    start: Option<Instant>,
    dropped: u64,
}

impl Timeline {
    pub(super) fn new(n_threads: u32) -> Self {
        let mut events = vec![
            name("process_name", HOST, 0, "host"),
            name("thread_name", HOST, 0, "host"),
            name("process_name", DSP, 0, "DSP"),
        ];
        events.extend((0..n_threads).map(|thread| name("thread_name", DSP, thread, &format!("DSP thread {thread}"))));
        Self {
            events,
            start: None,
            dropped: 0,
        }
    }

    /// Adds one run.
    pub(super) fn add(&mut self, costs: &[OpCost], batches: &[BatchTrace]) {
        for batch in batches {
            self.batch(batch, costs.get(batch.ops.clone()).unwrap_or_default());
        }
    }

    /// Records for which there was no room.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The file.
    pub(super) fn file(&self) -> TraceEvents<'_> {
        TraceEvents {
            trace_events: &self.events,
            display_time_unit: "ms",
        }
    }

    fn batch(&mut self, batch: &BatchTrace, costs: &[OpCost]) {
        let start = *self.start.get_or_insert(batch.push.0);
        let at = |time: Instant| time.saturating_duration_since(start).as_nanos() as f64 / 1e3;
        for (what, (from, to)) in [("push", batch.push), ("wait", batch.wait)] {
            self.interval(HOST, 0, "host", what, at(from), at(to) - at(from), Detail::default());
        }
        let reply = at(batch.wait.1);
        self.interval(HOST, 0, "host", "reply", reply, 0.0, Detail::default());
        let elapsed = f64::from(batch.elapsed_us);
        let (begin, per_cycle) = (reply - elapsed, elapsed / batch.cycles.max(1) as f64);
        for cost in costs {
            let since = cost.cycles_start.saturating_sub(batch.cycles_start).min(batch.cycles) as f64;
            let detail = Detail {
                op: Some(cost.name.clone()),
                packets: (cost.packets != 0).then_some(cost.packets),
                ..Detail::default()
            };
            let (ts, dur) = (begin + since * per_cycle, cost.cycles as f64 * per_cycle);
            self.interval(DSP, 0, "op", opcode(cost), ts, dur, detail);
        }
        for (thread, trace) in (0..).zip(&batch.threads) {
            self.dropped += u64::from(trace.dropped);
            for interval in &trace.intervals {
                let op = costs.get(interval.op_idx as usize);
                let detail = Detail {
                    op: op.map(|cost| format!("{} {}", opcode(cost), cost.name)),
                    ..Detail::default()
                };
                let ts = begin + interval.start as f64 * per_cycle;
                let dur = (interval.stop - interval.start) as f64 * per_cycle;
                self.interval(DSP, thread, "thread", interval.activity.name(), ts, dur, detail);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of an event")]
    fn interval(&mut self, pid: u32, tid: u32, cat: &'static str, name: &str, ts: f64, dur: f64, args: Detail) {
        self.events.push(Event {
            ph: "X",
            pid,
            tid,
            name: name.to_owned(),
            cat: Some(cat),
            ts: Some(ts),
            dur: Some(dur),
            args,
        });
    }
}

fn opcode(cost: &OpCost) -> &'static str {
    cost.opcode.map_or("unknown", |opcode| opcode.name())
}

fn name(what: &str, pid: u32, tid: u32, name: &str) -> Event {
    Event {
        ph: "M",
        pid,
        tid,
        name: what.to_owned(),
        cat: None,
        ts: None,
        dur: None,
        args: Detail {
            name: Some(name.to_owned()),
            ..Detail::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hexloom::abi::Opcode;
    use hexloom::prepared::{Activity, Interval, ThreadTrace};

    use super::*;

    /// Two threads, one op, a wait for DMA in it.
    fn example() -> Timeline {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let interval = |activity, start, stop| Interval {
            activity,
            op_idx: 0,
            start,
            stop,
        };
        let batch = BatchTrace {
            push: (at(0), at(5)),
            wait: (at(6), at(120)),
            cycles_start: 1000,
            cycles: 1000,
            elapsed_us: 100,
            ops: 0..1,
            threads: vec![
                ThreadTrace {
                    intervals: vec![interval(Activity::Dma, 200, 300), interval(Activity::Kernel, 100, 900)],
                    dropped: 0,
                },
                ThreadTrace {
                    intervals: vec![interval(Activity::Kernel, 110, 800)],
                    dropped: 2,
                },
            ],
        };
        let cost = OpCost {
            name: "blk.0.attn_q".to_owned(),
            opcode: Some(Opcode::MulMat),
            elapsed_ns: 90_000,
            cycles_start: 1050,
            cycles: 900,
            packets: 7,
            pmu: [0; 8],
        };
        let mut timeline = Timeline::new(2);
        timeline.add(&[cost], &[batch]);
        timeline
    }

    #[test]
    fn golden() {
        let timeline = example();
        assert_eq!(timeline.dropped(), 2);
        let text = serde_json::to_string_pretty(&timeline.file()).unwrap();
        assert_eq!(text + "\n", include_str!("timeline.golden.json"));
    }
}
