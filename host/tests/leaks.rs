//! Opening, closing, losing and opening again leaves no descriptor and no mapping behind. Alone in its process, because
//! other tests would open some.

mod session_support;

use std::sync::Arc;
use std::time::Duration;

use hexloom::{Session, SessionOptions};
use hexloom_sim::{Counts, FaultKind, FaultPlan, Garbage, Harsh, SimOptions, SimTransport};
use session_support::{Chain, options};

/// Open descriptors, and mappings of shared memory.
fn open_things() -> [usize; 2] {
    let fds = std::fs::read_dir("/proc/self/fd").expect("Linux").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    [fds, maps.lines().filter(|line| line.contains("memfd:hexloom")).count()]
}

fn cycle(round: usize) {
    let faults = FaultPlan::default();
    let transport = Arc::new(SimTransport::new(SimOptions {
        scratch_bytes: 256 << 10,
        faults: faults.clone(),
        // Copies and late frees, too, are given back.
        harsh: if round.is_multiple_of(2) {
            Harsh::default()
        } else {
            Harsh::all(round as u64)
        },
        ..SimOptions::default()
    }));
    live(round, &transport, &faults);
    assert_eq!(transport.counts(), Counts::default(), "round {round}");
    assert_eq!(transport.breaches(), [""; 0], "round {round}");
}

fn live(round: usize, transport: &Arc<SimTransport>, faults: &FaultPlan) {
    let deadline = Duration::from_millis(300);
    let options = SessionOptions { deadline, ..options() };
    let session = Session::open(Arc::clone(transport) as _, options).unwrap();
    let buffer = session.alloc("buffer", 1 << 16).unwrap();
    let mut chain = Chain::new(&session, 5);
    chain.check(1.0);
    let kinds = [
        FaultKind::Die,
        FaultKind::Stall,
        FaultKind::Reply(Garbage::Ones),
        FaultKind::Reply(Garbage::Short),
    ];
    faults.add(2, 0, kinds[round % 4]);
    assert!(chain.run(2.0).unwrap_err().is_lost());
    match round % 3 {
        // Dropped while lost.
        0 => return,
        1 => session.reopen().unwrap(),
        _ => {
            session.reopen().unwrap();
            chain.check(3.0);
            session.close();
        }
    }
    drop(session);
    drop(buffer);
    drop(chain);
}

#[test]
fn nothing_is_left_behind() {
    // What the first rounds allocate for good (thread-local memory, standard streams) is not counted.
    (0..4).for_each(cycle);
    let before = open_things();
    (0..24).for_each(cycle);
    assert_eq!(open_things(), before);
    assert_eq!(before[1], 0, "mappings of shared memory without a session");
}
