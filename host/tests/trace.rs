//! Traces and counters of runs on the simulator: what is in them, what has no room, and when there is none.

mod session_support;

use hexloom::prepared::{Activity, BatchTrace};
use hexloom::{OpenError, Session, SessionOptions};
use hexloom_sim::SimTransport;
use session_support::{Chain, open, options};

fn traced(trace_records: u32) -> Chain {
    let session = open(SessionOptions {
        batch_ops: 4,
        trace_records,
        ..options()
    });
    let mut chain = Chain::new(&session, 6);
    chain.prepared.set_profile(true);
    chain
}

fn n_of(batch: &BatchTrace, thread: usize, activity: Activity) -> usize {
    let intervals = batch.threads[thread].intervals.iter();
    intervals.filter(|interval| interval.activity == activity).count()
}

#[test]
fn each_batch_has_its_ops_and_threads() {
    let mut chain = traced(64);
    for _ in 0..2 {
        chain.check(1.0);
        let batches = chain.prepared.trace();
        assert_eq!(
            batches.iter().map(|batch| batch.ops.clone()).collect::<Vec<_>>(),
            [0..4, 4..6]
        );
        for batch in batches {
            assert_eq!(batch.threads.len(), 2);
            assert!(batch.push.0 <= batch.push.1 && batch.wait.0 <= batch.wait.1 && batch.push.1 <= batch.wait.1);
            // A hundred elements are one thread's work.
            let kernels = [0, 1].map(|thread| n_of(batch, thread, Activity::Kernel));
            assert_eq!(kernels, [batch.ops.len(), 0]);
            assert_eq!((n_of(batch, 0, Activity::Map), n_of(batch, 0, Activity::Cache)), (1, 1));
            for interval in &batch.threads[0].intervals {
                assert!(
                    interval.start <= interval.stop && interval.stop <= batch.cycles,
                    "{interval:?}"
                );
                assert!((interval.op_idx as usize) < batch.ops.len());
            }
            assert!(batch.threads.iter().all(|thread| thread.dropped == 0));
        }
    }
    chain.prepared.set_profile(false);
    chain.check(1.0);
    assert!(chain.prepared.trace().is_empty());
}

#[test]
fn records_without_room_are_counted() {
    let mut chain = traced(5);
    chain.check(1.0);
    let batch = &chain.prepared.trace()[0];
    // A start and a stop each: the map, four kernels, the cache.
    assert_eq!(batch.threads[0].dropped, 12 - 5);
    assert_eq!(batch.threads[0].intervals.len(), 3);
    assert_eq!(batch.threads[1].dropped, 0);
}

#[test]
fn no_trace_without_room_for_one() {
    let mut chain = traced(0);
    chain.check(1.0);
    assert!(chain.prepared.trace().is_empty());
    assert_eq!(chain.prepared.costs().len(), 6);
    let options = SessionOptions {
        trace_records: 65_537,
        ..options()
    };
    let error = Session::open(std::sync::Arc::new(SimTransport::default()), options).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Option {
                option: "trace_records",
                ..
            }
        ),
        "{error}"
    );
}

/// The simulator's counter of event N goes on by N from one look to the next, so that each op is said to take N.
#[test]
fn counters_count_the_events_of_the_session() {
    let events = [3, 0, 0x3ff, 1, 0, 0, 0, 2];
    for (counters, wanted) in [(events, events.map(u32::from)), ([0; 8], [0; 8])] {
        let session = open(SessionOptions { counters, ..options() });
        let mut chain = Chain::new(&session, 6);
        chain.prepared.set_profile(true);
        chain.check(1.0);
        assert!(chain.prepared.costs().iter().all(|cost| cost.pmu == wanted));
        // A session that is opened again counts again.
        session.reopen().unwrap();
        chain.check(1.0);
        assert!(chain.prepared.costs().iter().all(|cost| cost.pmu == wanted));
    }
    let options = SessionOptions {
        counters: [0x400; 8],
        ..options()
    };
    let error = Session::open(std::sync::Arc::new(SimTransport::default()), options).unwrap_err();
    assert!(error.to_string().contains("counters"), "{error}");
}
