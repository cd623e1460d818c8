//! `hexloom profile` on a small model: the table, the JSON, and a timeline that a viewer takes.

mod support;

use std::collections::BTreeMap;

use serde_json::Value;
use support::{TempFile, json, output, refused, text};

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Start, end and name of what a row shows.
type Interval = (f64, f64, String);

#[test]
fn a_table_for_people_and_an_object_for_machines() {
    let model = TempFile::model();
    let text = text(&["profile", model.path(), "-n", "2", "--threads", "2"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("on sim, 2 threads, mean of 2"), "{text}");
    assert!(
        lines[1].starts_with("op ") && lines.last().unwrap().starts_with("all "),
        "{text}"
    );
    assert!(text.contains("MUL_MAT") && text.contains("FLASH_ATTN_EXT"), "{text}");
    let report = json(&["profile", model.path(), "-n", "2", "--threads", "2", "--json"]);
    let ops = report["ops"].as_array().unwrap();
    let sum: f64 = ops.iter().map(|op| number(&op["percent"])).sum();
    assert!((sum - 100.0).abs() < 1e-6, "{report}");
    assert!(
        ops.iter()
            .all(|op| number(&op["calls"]) >= 1.0 && number(&op["us"]) > 0.0),
        "{report}"
    );
    assert!(
        ops.iter().all(|op| op.get("packets").is_none()),
        "a PC counts none: {report}"
    );
    assert_eq!(
        (&report["steps"], &report["threads"], &report["device"]),
        (&2.into(), &2.into(), &"sim".into())
    );
}

#[test]
fn the_timeline_has_a_row_for_each_thread_and_the_host() {
    let model = TempFile::model();
    let file = TempFile::new("");
    let args = [
        "profile",
        model.path(),
        "-n",
        "3",
        "--threads",
        "2",
        "--json",
        "--trace",
        file.path(),
    ];
    let report = json(&args);
    assert_eq!(report["dropped_records"], 0);
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(file.path()).unwrap()).unwrap();
    assert_eq!(trace["displayTimeUnit"], "ms");
    let events = trace["traceEvents"].as_array().unwrap();
    let row = |event: &Value| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
    let mut names: BTreeMap<(u64, u64), String> = BTreeMap::new();
    let mut intervals: BTreeMap<(u64, u64), Vec<Interval>> = BTreeMap::new();
    for event in events {
        match event["ph"].as_str().unwrap() {
            "M" if event["name"] == "thread_name" => {
                names.insert(row(event), event["args"]["name"].as_str().unwrap().to_owned());
            }
            "M" => assert_eq!(event["name"], "process_name"),
            "X" => {
                let (ts, dur) = (number(&event["ts"]), number(&event["dur"]));
                assert!(ts.is_finite() && dur >= 0.0, "{event}");
                let name = event["name"].as_str().unwrap().to_owned();
                intervals.entry(row(event)).or_default().push((ts, ts + dur, name));
            }
            other => panic!("an event of phase {other}"),
        }
    }
    let rows: Vec<&str> = names.values().map(String::as_str).collect();
    assert_eq!(rows, ["host", "DSP thread 0", "DSP thread 1"]);
    assert!(
        intervals.keys().eq(names.keys()),
        "every row has a name and something in it"
    );
    let count = |row, name: &str| intervals[&row].iter().filter(|(_, _, found)| found == name).count();
    for name in ["push", "wait", "reply"] {
        assert_eq!(count((1, 0), name), 3, "one a step: {name}");
    }
    assert_eq!((count((2, 0), "map"), count((2, 0), "cache")), (3, 3));
    // Ops stand on the first thread's row; each has kernels in it.
    let ops = events.iter().filter(|event| event["cat"] == "op");
    for op in ops {
        let (from, to) = (number(&op["ts"]), number(&op["ts"]) + number(&op["dur"]));
        let inside = |(start, end, name): &(f64, f64, String)| name == "kernel" && *start >= from && *end <= to + 1.0;
        assert!(intervals[&(2, 0)].iter().any(inside), "{op}");
    }
    assert!(count((2, 1), "kernel") >= 3);
    for (row, mut intervals) in intervals {
        intervals.retain(|(_, _, name)| row.0 == 2 && name == "kernel");
        intervals.sort_by(|a, b| a.0.total_cmp(&b.0));
        let apart = intervals.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-3);
        assert!(apart, "kernels of one thread overlap");
    }
}

#[test]
fn wrong_input() {
    let model = TempFile::model();
    refused(&["profile", "nowhere.gguf"], &["nowhere.gguf", "cannot open"]);
    refused(&["profile", model.path(), "-n", "0"], &["--n-tokens", "0"]);
    refused(
        &["profile", model.path(), "--device", "null"],
        &["null", "nothing to profile"],
    );
    refused(
        &["profile", model.path(), "--device", "moon"],
        &["moon", "sim, emu, fastrpc, null"],
    );
    refused(
        &["profile", model.path(), "-p", "1000000", "-n", "2"],
        &["1000003", "256"],
    );
    refused(&["profile", model.path(), "-p", "4294967295"], &["4294967300"]);
    let folder = format!("{}/no/such/folder.json", env!("CARGO_TARGET_TMPDIR"));
    let output = output(&["profile", model.path(), "--trace", &folder]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.starts_with("hexloom: cannot write") && stderr.contains(&folder),
        "{stderr}"
    );
}
