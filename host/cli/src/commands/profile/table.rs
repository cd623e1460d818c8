//! The per-op table: kinds of ops with what they cost in one decode step.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use hexloom::prepared::OpCost;
use serde::Serialize;

use crate::output::grouped;

/// What a profile says.
#[derive(Serialize)]
pub(super) struct Report {
    device: &'static str,
    threads: u32,
    /// Recorded decode steps.
    steps: u32,
    /// DSP time of one step.
    total_us: f64,
    /// By kind of op, most time first.
    ops: Vec<OpKind>,
    /// Trace records for which there was no room; the timeline has gaps then.
    dropped_records: u64,
    #[serde(skip)]
    kinds: BTreeMap<&'static str, Sums>,
}

/// All ops of a kind in one decode step.
#[derive(Serialize)]
struct OpKind {
    op: &'static str,
    calls: f64,
    us: f64,
    /// Of the step's DSP time.
    percent: f64,
    /// Instruction packets of all threads; absent where they cannot be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<f64>,
    /// Deltas of the performance counters; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pmu: Option<[f64; 8]>,
}

#[derive(Default)]
struct Sums {
    calls: u64,
    ns: u64,
    packets: u64,
    pmu: [u64; 8],
}

impl Report {
    pub(super) fn new(device: &'static str, threads: u32) -> Self {
        Self {
            device,
            threads,
            steps: 0,
            total_us: 0.0,
            ops: Vec::new(),
            dropped_records: 0,
            kinds: BTreeMap::new(),
        }
    }

    /// Adds the ops of one step.
    pub(super) fn add(&mut self, costs: &[OpCost]) {
        self.steps += 1;
        for cost in costs {
            let sums = self
                .kinds
                .entry(cost.opcode.map_or("unknown", |opcode| opcode.name()))
                .or_default();
            sums.calls += 1;
            sums.ns += u64::from(cost.elapsed_ns);
            sums.packets += u64::from(cost.packets);
            for (sum, counter) in sums.pmu.iter_mut().zip(cost.pmu) {
                *sum += u64::from(counter);
            }
        }
    }

    /// Makes means of the sums.
    pub(super) fn finish(&mut self, dropped_records: u64) {
        let per_step = |sum: u64| sum as f64 / f64::from(self.steps.max(1));
        let total_ns: u64 = self.kinds.values().map(|sums| sums.ns).sum();
        let of = |(&op, sums): (&&'static str, &Sums)| OpKind {
            op,
            calls: per_step(sums.calls),
            us: per_step(sums.ns) / 1e3,
            percent: 100.0 * sums.ns as f64 / total_ns.max(1) as f64,
            packets: (sums.packets != 0).then(|| per_step(sums.packets)),
            pmu: (sums.pmu != [0; 8]).then(|| sums.pmu.map(per_step)),
        };
        let mut ops: Vec<OpKind> = self.kinds.iter().map(of).collect();
        ops.sort_by(|a, b| b.us.total_cmp(&a.us));
        self.total_us = per_step(total_ns) / 1e3;
        self.ops = ops;
        self.dropped_records = dropped_records;
    }

    /// The table for people.
    pub(super) fn text(&self, trace: Option<&Path>) -> String {
        let mut text = String::new();
        let has_packets = self.ops.iter().any(|op| op.packets.is_some());
        let _ = writeln!(
            text,
            "decode step on {}, {} threads, mean of {}\n{:<20} {:>7} {:>12} {:>7}{}",
            self.device,
            self.threads,
            self.steps,
            "op",
            "calls",
            "us",
            "%",
            if has_packets {
                format!(" {:>14}", "packets")
            } else {
                String::new()
            },
        );
        for op in &self.ops {
            let _ = write!(
                text,
                "{:<20} {:>7.0} {:>12.1} {:>7.1}",
                op.op, op.calls, op.us, op.percent
            );
            if has_packets {
                let _ = write!(text, " {:>14}", grouped(op.packets.unwrap_or(0.0) as u64));
            }
            if let Some(pmu) = op.pmu {
                let _ = write!(text, "  pmu {}", pmu.map(|counter| grouped(counter as u64)).join(" "));
            }
            text.push('\n');
        }
        let calls: f64 = self.ops.iter().map(|op| op.calls).sum();
        let _ = write!(
            text,
            "{:<20} {calls:>7.0} {:>12.1} {:>7.1}",
            "all", self.total_us, 100.0
        );
        if has_packets {
            let packets: f64 = self.ops.iter().filter_map(|op| op.packets).sum();
            let _ = write!(text, " {:>14}", grouped(packets as u64));
        }
        text.push('\n');
        if let Some(path) = trace {
            let _ = writeln!(text, "timeline in {}, for ui.perfetto.dev", path.display());
        }
        if self.dropped_records > 0 {
            let _ = writeln!(
                text,
                "{} trace records had no room: the timeline has gaps",
                self.dropped_records
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use hexloom::abi::Opcode;

    use super::*;

    fn cost(opcode: Opcode, ns: u32, packets: u32) -> OpCost {
        OpCost {
            name: "x".to_owned(),
            opcode: Some(opcode),
            elapsed_ns: ns,
            cycles_start: 0,
            cycles: 0,
            packets,
            pmu: [0; 8],
        }
    }

    #[test]
    fn means_shares_and_packets() {
        let mut report = Report::new("emu", 4);
        for _ in 0..2 {
            report.add(&[
                cost(Opcode::Add, 1000, 10),
                cost(Opcode::MulMat, 5000, 1_000_000),
                cost(Opcode::Add, 2000, 20),
            ]);
        }
        report.finish(3);
        let wanted = "\
decode step on emu, 4 threads, mean of 2
op                     calls           us       %        packets
MUL_MAT                    1          5.0    62.5      1,000,000
ADD                        2          3.0    37.5             30
all                        3          8.0   100.0      1,000,030
timeline in t.json, for ui.perfetto.dev
3 trace records had no room: the timeline has gaps
";
        assert_eq!(report.text(Some(Path::new("t.json"))), wanted);
    }

    #[test]
    fn no_column_without_packets() {
        let mut report = Report::new("sim", 1);
        report.add(&[cost(Opcode::Add, 1500, 0)]);
        report.finish(0);
        let text = report.text(None);
        assert!(
            !text.contains("packets") && !text.contains("timeline") && text.contains("1.5"),
            "{text}"
        );
    }
}
