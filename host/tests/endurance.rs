//! Batches without end, with a death and a re-opening every thousand: nothing grows. Alone in its process, because other
//! tests would open descriptors and mappings.

mod session_support;

use std::sync::Arc;
use std::time::Duration;

use hexloom::{Session, SessionOptions};
use hexloom_sim::{Counts, FaultKind, FaultPlan, SimOptions, SimTransport};
use session_support::{Chain, options};

/// Batches between two deaths.
const ROUND: u64 = 1000;
/// Rounds; the first ten warm up what is allocated once.
const ROUNDS: u64 = 100;
const WARM_UP: u64 = 10;
/// Bytes by which the process may have grown: the allocator's own habits.
const GROWTH: u64 = 4 << 20;

/// Open descriptors, mappings, resident bytes.
fn process_holds() -> (usize, usize, u64) {
    let fds = std::fs::read_dir("/proc/self/fd").expect("Linux").count();
    let maps = std::fs::read_to_string("/proc/self/maps")
        .expect("Linux")
        .lines()
        .count();
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    (fds, maps, 4096 * pages.expect("a number of pages"))
}

#[test]
fn a_hundred_thousand_batches() {
    let faults = FaultPlan::default();
    let transport = Arc::new(SimTransport::new(SimOptions {
        n_threads: 2,
        scratch_bytes: 256 << 10,
        faults: faults.clone(),
        ..SimOptions::default()
    }));
    let options = SessionOptions {
        deadline: Duration::from_secs(10),
        ..options()
    };
    let session = Session::open(Arc::clone(&transport) as _, options).expect("the simulator opens");
    let mut chain = Chain::new(&session, 2);
    let mut first: Option<((usize, usize, u64), Counts)> = None;
    for round in 0..ROUNDS {
        if round > 0 {
            session.reopen().expect("it opens again");
        }
        for batch in 0..ROUND - 1 {
            chain.run(batch as f32).expect("the run ends well");
        }
        chain.check(round as f32);
        if round + 1 >= WARM_UP {
            let now = (process_holds(), transport.counts());
            let first = first.get_or_insert(now);
            assert_eq!((now.0.0, now.1), (first.0.0, first.1), "round {round}");
            // Thread stacks may or may not be merged with their neighbours in the list of mappings.
            assert!(
                now.0.1 <= first.0.1 + 8,
                "round {round}: {} mappings, {} before",
                now.0.1,
                first.0.1
            );
            assert!(
                now.0.2 <= first.0.2 + GROWTH,
                "round {round}: {} bytes, {} before",
                now.0.2,
                first.0.2
            );
        }
        faults.add(ROUND + 1, 1, FaultKind::Die);
        assert!(chain.run(0.0).expect_err("it dies").is_lost());
    }
    drop(chain);
    session.close();
    assert_eq!(transport.counts(), Counts::default());
}
