//! An emulator that is killed: a typed error with its cause, then the same session and the same graph work again.
//!
//! Alone in its file: the process to kill is found as the only child.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hexloom::transport::DeathCause;
use hexloom::{DType, Fault, Graph, RunError, Session, SessionOptions, WaitError};
use hexloom_emu::{EmuOptions, EmuTransport};

#[test]
fn a_killed_emulator_is_a_lost_session_that_reopens() {
    let options = match EmuOptions::find() {
        Ok(options) => options,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let session = Session::open(Arc::new(EmuTransport::new(options)), SessionOptions::default()).unwrap();
    let kept = session.alloc("kept", 64).unwrap();
    kept.write(0, &[7; 64]).unwrap();
    let mut graph = Graph::new();
    let a = graph.input("a", DType::F32, [64, 3, 1, 1]).unwrap();
    let sum = graph.add("sum", a, a).unwrap();
    graph.output(sum);
    let mut prepared = session.prepare("twice", graph).unwrap();
    let bytes = |value: f32| value.to_le_bytes().repeat(192);
    prepared.write(a, 0, &bytes(1.5)).unwrap();
    prepared.run().unwrap();

    let child = only_child();
    assert!(Command::new("kill").args(["-KILL", &child]).status().unwrap().success());
    let start = Instant::now();
    let lost = match prepared.run() {
        Err(RunError::Wait(WaitError::Lost(lost))) => lost,
        other => panic!("not lost: {other:?}"),
    };
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(lost.batch, "twice");
    assert!(
        matches!(&lost.fault, Fault::Died(death) if death.cause == DeathCause::Signal(9)),
        "{lost}"
    );

    session.reopen().unwrap();
    assert_ne!(only_child(), child);
    prepared.write(a, 0, &bytes(2.5)).unwrap();
    prepared.run().unwrap();
    assert_eq!(prepared.floats(sum).unwrap(), [5.0; 192]);
    let mut found = [0; 64];
    kept.read(0, &mut found).unwrap();
    assert_eq!(found, [7; 64]);
}

/// The process that this one has started, whichever thread did it.
fn only_child() -> String {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let children =
        threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("children")).unwrap_or_default());
    let children: String = children.collect();
    let [child] = children.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("not one child: {children:?}");
    };
    child.to_owned()
}
