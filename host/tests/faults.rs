//! A DSP that dies, stalls or answers garbage: a typed error that names batch and op, within the deadline; then the
//! session is opened again and the same prepared graph gives right results.

mod session_support;

use std::time::{Duration, Instant};

use hexloom::{Fault, LostError, RunError, SessionOptions, SubmitError, WaitError};
use hexloom_sim::{FaultKind, FaultPlan, Garbage};
use session_support::{Chain, bytes, floats, open_faulty, options};

fn lost(result: Result<(), RunError>) -> LostError {
    match result {
        Err(RunError::Wait(WaitError::Lost(lost)) | RunError::Submit(SubmitError::Lost(lost))) => lost,
        other => panic!("not lost: {other:?}"),
    }
}

fn options_with(deadline: Duration) -> SessionOptions {
    SessionOptions {
        batch_ops: 4,
        deadline,
        ..options()
    }
}

/// Loses the session in the third batch that it runs, at op `op_idx`, then goes on.
fn check(kind: FaultKind, op_idx: u32, op: &str, fault: fn(&Fault) -> bool) {
    let faults = FaultPlan::default();
    let deadline = Duration::from_secs(2);
    let session = open_faulty(&faults, options_with(deadline));
    let kept = session.alloc("kept", 64).unwrap();
    kept.write(0, &bytes(&[5.0; 16])).unwrap();
    // Two batches of four ops and three.
    let mut chain = Chain::new(&session, 7);
    chain.check(1.0);
    faults.add(3, op_idx, kind);
    let start = Instant::now();
    let error = lost(chain.run(2.0));
    assert!(
        start.elapsed() < deadline + Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    assert_eq!((error.seq, error.batch.as_str()), (3, "chain"), "{error}");
    assert_eq!(error.op.as_deref(), Some(op), "{error}");
    assert!(fault(&error.fault), "{error}");
    assert!(error.to_string().contains("reopen"), "{error}");
    // Until then every run fails with the error that ended the session.
    assert_eq!(lost(chain.run(2.0)), error);
    assert!(chain.run(2.0).unwrap_err().is_lost());
    session.reopen().unwrap();
    assert_eq!(floats(&kept, 16), [5.0; 16]);
    for value in [3.0, 4.0] {
        chain.check(value);
    }
    Chain::new(&session, 2).check(9.0);
}

#[test]
fn a_dsp_that_dies() {
    check(FaultKind::Die, 0, "1 of 4, SCALE \"step 0\"", |fault| {
        matches!(fault, Fault::Died(_))
    });
    check(FaultKind::Die, 2, "3 of 4, SCALE \"step 2\"", |fault| {
        matches!(fault, Fault::Died(_))
    });
}

#[test]
fn a_dsp_that_stalls() {
    check(FaultKind::Stall, 1, "2 of 4, SCALE \"step 1\"", |fault| {
        matches!(fault, Fault::Stalled(_))
    });
}

#[test]
fn a_dsp_that_answers_garbage() {
    for garbage in [Garbage::Short, Garbage::Ones, Garbage::WrongSeq, Garbage::UnknownStatus] {
        check(FaultKind::Reply(garbage), 0, "4 of 4, SCALE \"step 3\"", |fault| {
            matches!(fault, Fault::Garbage(_))
        });
    }
}

/// The second of two batches is the one named, although the first was sent in the same run.
#[test]
fn the_right_batch_of_a_run_is_named() {
    let faults = FaultPlan::default();
    let session = open_faulty(&faults, options_with(Duration::from_secs(2)));
    let mut chain = Chain::new(&session, 7);
    faults.add(2, 1, FaultKind::Die);
    let error = lost(chain.run(1.0));
    assert_eq!(error.seq, 2);
    assert_eq!(error.op.as_deref(), Some("2 of 3, SCALE \"step 5\""));
    session.reopen().unwrap();
    chain.check(1.0);
}

/// A DSP that dies while later batches are still being sent: the batch that died is named, whichever call noticed.
#[test]
fn a_death_noticed_while_sending_is_put_where_it_was() {
    let faults = FaultPlan::default();
    let options = SessionOptions {
        batch_ops: 1,
        n_slots: 64,
        ..options()
    };
    let session = open_faulty(&faults, options);
    let mut chain = Chain::new(&session, 60);
    for round in 0..10u64 {
        faults.add(3, 0, FaultKind::Die);
        let error = lost(chain.run(round as f32));
        assert_eq!(error.seq, 3, "{error}");
        assert_eq!(error.op.as_deref(), Some("1 of 1, SCALE \"step 2\""));
        session.reopen().unwrap();
    }
    chain.check(1.0);
}

/// A fault reaches every thread that shares the session, and one re-opening serves them all.
#[test]
fn every_thread_hears_of_it() {
    let faults = FaultPlan::default();
    let session = open_faulty(&faults, options());
    // Prepared before any thread runs, because a lost session prepares nothing.
    let chains = [(); 3].map(|()| Chain::new(&session, 2));
    faults.add(20, 0, FaultKind::Die);
    std::thread::scope(|scope| {
        for mut chain in chains {
            scope.spawn(move || {
                let error = (0..1000).find_map(|run| chain.run(run as f32).err());
                assert!(error.expect("the session is lost").is_lost());
            });
        }
    });
    session.reopen().unwrap();
    Chain::new(&session, 3).check(1.0);
}

/// A run that is dropped while the DSP is dead does not panic, and the session is lost.
#[test]
fn a_dropped_run_loses_the_session_too() {
    let faults = FaultPlan::default();
    let session = open_faulty(&faults, options());
    let mut chain = Chain::new(&session, 2);
    faults.add(1, 0, FaultKind::Die);
    drop(chain.prepared.start().unwrap());
    assert_eq!(lost(chain.run(1.0)).seq, 1);
    session.reopen().unwrap();
    chain.check(2.0);
}
