//! One life of a session, with each of its calls failed in turn: the platform refuses it, it never answers, or the DSP
//! process dies at it. Each time a typed error or success comes out, everything is given back, and the next session on
//! the same transport works.

mod session_support;

use std::sync::Arc;
use std::time::Duration;

use hexloom::transport::{SessionAt, aee};
use hexloom::{DType, Graph, RunError, Session, SessionOptions, SubmitError};
use hexloom_sim::{Call, CallFault, CallName, Counts, FaultPlan, Harsh, SimOptions, SimTransport};
use session_support::{bytes, options};

/// Elements of each tensor.
const LEN: u32 = 64;

fn transport(faults: &FaultPlan, harsh: Harsh) -> Arc<SimTransport> {
    Arc::new(SimTransport::new(SimOptions {
        n_threads: 2,
        scratch_bytes: 256 << 10,
        call_timeout: Duration::from_millis(400),
        faults: faults.clone(),
        harsh,
        ..SimOptions::default()
    }))
}

fn walk_options() -> SessionOptions {
    SessionOptions {
        deadline: Duration::from_millis(300),
        n_fences: 4,
        ..options()
    }
}

/// Opens, allocates, runs a graph twice, shares a buffer with a second graph and with a session on another core that waits
/// for this one, frees buffers, closes.
fn life(transport: &Arc<SimTransport>) -> Result<(), String> {
    within_session(transport, |session| {
        run_graphs(session).and_then(|()| run_peer(transport, session))
    })
}

/// Opens, runs `body`, closes whatever came of it.
fn within_session(
    transport: &Arc<SimTransport>,
    body: impl FnOnce(&Session) -> Result<(), String>,
) -> Result<(), String> {
    let session = Session::open(Arc::clone(transport) as _, walk_options()).map_err(|error| error.to_string())?;
    let lived = body(&session);
    session.close();
    lived
}

/// A peer reads what `session` writes, after an event, and ends before it.
fn run_peer(transport: &Arc<SimTransport>, session: &Session) -> Result<(), String> {
    let text = |error: SubmitError| error.to_string();
    let options = SessionOptions {
        at: SessionAt { core: 1, session: 0 },
        ..walk_options()
    };
    let peer = Session::open(Arc::clone(transport) as _, options).map_err(|error| error.to_string())?;
    let buffer = session.alloc("between", 1 << 13).map_err(|error| error.to_string())?;
    let event = session.event("written").map_err(text)?;
    let ne = [LEN, 1, 1, 1];
    let mut graph = Graph::new();
    let x = graph.input("x", DType::F32, ne).expect("x fits");
    let into = graph.placed("into", DType::F32, ne, &buffer, 0).expect("it fits");
    graph.cpy_signal(x, into, &event).expect("CPY_FENCE is supported");
    let mut writes = session.prepare("write", graph).map_err(text)?;
    writes.write(x, 0, &bytes(&[4.0; LEN as usize])).expect("inside");
    let mut graph = Graph::new();
    graph.wait_for(&event).expect("FENCE is supported");
    let from = graph.placed("from", DType::F32, ne, &buffer, 0).expect("it fits");
    let twice = graph.scale("twice", from, 2.0, 0.0).expect("SCALE is supported");
    graph.output(twice);
    let mut reads = peer.prepare("read", graph).map_err(text)?;
    let writing = writes.start().map_err(|error| error.to_string())?;
    let read = reads.run().map_err(|error| error.to_string());
    let written = writing.wait().map_err(|error| error.to_string());
    if read.is_ok() {
        assert_eq!(reads.floats(twice).expect("dense"), [8.0; LEN as usize]);
    }
    peer.close();
    read.and(written)
}

fn run_graphs(session: &Session) -> Result<(), String> {
    let text = |error: RunError| error.to_string();
    let shared = session.alloc("shared", 1 << 14).map_err(|error| error.to_string())?;
    let freed = session.alloc("freed", 1 << 13).map_err(|error| error.to_string())?;
    for (buffer, value) in [(&shared, 1.0), (&freed, 2.0)] {
        buffer.write(0, &bytes(&[value; LEN as usize])).expect("inside");
    }
    let ne = [LEN, 1, 1, 1];
    let mut graph = Graph::new();
    let a = graph.placed("a", DType::F32, ne, &shared, 0).expect("a fits");
    let b = graph.placed("b", DType::F32, ne, &freed, 0).expect("b fits");
    let sum = graph.add("sum", a, b).expect("ADD is supported");
    graph.output(sum);
    let mut prepared = session
        .prepare("sum", graph)
        .map_err(|error| text(RunError::Submit(error)))?;
    for _ in 0..2 {
        prepared.run().map_err(text)?;
        assert_eq!(prepared.floats(sum).expect("dense"), [3.0; LEN as usize]);
    }
    drop(prepared);
    drop(freed);
    let mut graph = Graph::new();
    let a = graph.placed("a", DType::F32, ne, &shared, 0).expect("a fits");
    let twice = graph.scale("twice", a, 2.0, 0.0).expect("SCALE is supported");
    graph.output(twice);
    let prepared = session.run("twice", graph).map_err(text)?;
    assert_eq!(prepared.floats(twice).expect("dense"), [2.0; LEN as usize]);
    Ok(())
}

/// What must hold after each life.
fn check_end(transport: &Arc<SimTransport>, what: &str) {
    assert_eq!(transport.counts(), Counts::default(), "{what}");
    assert_eq!(transport.breaches(), [""; 0], "{what}");
}

#[test]
fn every_call_fails_in_turn() {
    let faults = FaultPlan::default();
    let counted = transport(&faults, Harsh::default());
    counted.log_calls(true);
    life(&counted).expect("without a fault it works");
    let calls = counted.calls();
    let n_calls = counted.n_calls();
    check_end(&counted, "without a fault");
    for name in [
        CallName::Alloc,
        CallName::Open,
        CallName::HwInfo,
        CallName::Map,
        CallName::Unmap,
        CallName::CreateQueue,
        CallName::Start,
        CallName::Stop,
        CallName::Forget,
        CallName::Write,
        CallName::Read,
        CallName::Close,
        CallName::DspMap,
        CallName::DspUnmap,
        CallName::DspThread,
    ] {
        assert!(calls.iter().any(|call| call.name == name), "{name:?} is not walked");
    }
    let kinds = [CallFault::Code(aee::EFAILED), CallFault::Timeout, CallFault::Death];
    let failed = kinds.map(|kind| walk(n_calls, kind, |_| Harsh::default()));
    // Most deaths and silences are noticed; a map that fails is tried again, and giving back cannot fail.
    assert!(
        failed[0] >= 8 && failed[1] >= 8 && failed[2] >= n_calls / 3,
        "{failed:?} of {n_calls}"
    );
}

/// Deaths at every call of a machine that is as harsh as it gets.
#[test]
fn every_call_is_a_death_on_a_harsh_machine() {
    let counted = transport(&FaultPlan::default(), Harsh::all(0));
    life(&counted).expect("without a fault it works");
    let n_calls = counted.n_calls();
    assert!(walk(n_calls, CallFault::Death, Harsh::all) >= n_calls / 3);
}

/// Lives with a fault at each of the calls; gives how many ended with an error.
fn walk(n_calls: u64, kind: CallFault, harsh: impl Fn(u64) -> Harsh) -> u64 {
    let faults = FaultPlan::default();
    let mut n_failed = 0;
    for n in 1..=n_calls {
        let transport = transport(&faults, harsh(n));
        transport.log_calls(true);
        faults.fail_call(n, kind);
        let lived = life(&transport);
        let met = transport.calls().into_iter().find(|call| call.fault.is_some());
        let what = format!("{kind:?} at call {n} of {n_calls}, {met:?}: {lived:?}");
        assert!(met.is_some() || !faults.is_spent(), "{what}");
        faults.clear();
        n_failed += u64::from(lived.is_err());
        check_end(&transport, &what);
        life(&transport).unwrap_or_else(|error| panic!("{what}; then: {error}"));
        check_end(&transport, &what);
    }
    n_failed
}

/// Two sessions at two places and one of them lost: the other goes on.
#[test]
fn a_death_is_a_matter_of_one_session() {
    let faults = FaultPlan::default();
    let transport = transport(&faults, Harsh::default());
    let other = SessionOptions {
        at: hexloom::transport::SessionAt { core: 0, session: 1 },
        ..walk_options()
    };
    let other = Session::open(Arc::clone(&transport) as _, other).expect("the second place is free");
    for n in 1..=8 {
        faults.fail_call(transport.n_calls() + n, CallFault::Death);
        let lived = life(&transport);
        assert!(faults.is_spent(), "call {n}: {lived:?}");
        // The first call, the opening, is one of the transport: a death there is a restart of all.
        match run_graphs(&other) {
            Ok(()) => assert!(n > 1),
            Err(error) => {
                assert!(n == 1 || n == 3, "call {n}: {error}");
                other.reopen().expect("it opens again");
            }
        }
    }
    run_graphs(&other).expect("the other session works");
    other.close();
    check_end(&transport, "at the end");
}

fn positions(calls: &[Call], name: CallName) -> Vec<(usize, Option<u32>)> {
    let named = calls.iter().enumerate().filter(|(_, call)| call.name == name);
    named.map(|(idx, call)| (idx, call.fd)).collect()
}

/// The documented order of start and stop.
#[test]
fn start_and_stop_keep_their_order() {
    let transport = transport(&FaultPlan::default(), Harsh::default());
    transport.log_calls(true);
    within_session(&transport, run_graphs).expect("it works");
    let calls = transport.calls();
    let first = |name| positions(&calls, name)[0].0;
    let starting = [
        CallName::Open,
        CallName::HwInfo,
        CallName::Alloc,
        CallName::Map,
        CallName::CreateQueue,
        CallName::Start,
        CallName::DspThread,
        CallName::Write,
    ];
    assert!(starting.map(first).is_sorted(), "{calls:?}");
    let (stop, close) = (first(CallName::Stop), first(CallName::Close));
    let unmaps = positions(&calls, CallName::Unmap);
    let releases = positions(&calls, CallName::Release);
    let forgets = positions(&calls, CallName::Forget);
    assert!(!unmaps.is_empty() && unmaps.iter().all(|&(idx, _)| idx < close));
    for &(idx, fd) in &unmaps {
        // What goes while the session runs is forgotten on the DSP side first; what goes at the end, after the stop.
        let forgotten = forgets.iter().any(|&(at, forgotten)| forgotten == fd && at < idx);
        assert!(forgotten || idx > stop, "unmap at {idx}: {calls:?}");
        // Every descriptor is closed after its unmap.
        assert!(
            releases.iter().any(|&(at, released)| released == fd && at > idx),
            "{calls:?}"
        );
    }
    // On the DSP side, too, everything is unmapped, before the host unmaps it.
    for (at, fd) in positions(&calls, CallName::DspMap) {
        let gone = positions(&calls, CallName::DspUnmap)
            .into_iter()
            .find(|&(gone, unmapped)| unmapped == fd && gone > at);
        let gone = gone.expect("the DSP side unmaps").0;
        assert!(
            unmaps.iter().any(|&(idx, unmapped)| unmapped == fd && idx > gone),
            "{calls:?}"
        );
    }
    assert!(positions(&calls, CallName::Close).len() == 1 && stop < close);
}

/// A peer that takes nothing: the reply, or the room for a request, does not come in time.
#[test]
fn a_peer_that_never_takes_a_packet() {
    for room in [0, 1] {
        let faults = FaultPlan::default();
        let transport = transport(&faults, Harsh::default());
        faults.deafen(walk_options().at, room);
        let session = Session::open(Arc::clone(&transport) as _, walk_options()).expect("it opens");
        let error = run_graphs(&session).unwrap_err();
        assert!(error.contains("no reply within 300ms"), "{error}");
        session.close();
        drop(session);
        check_end(&transport, &format!("room for {room}"));
        life(&transport).expect("the next one works");
        check_end(&transport, "at the end");
    }
}

/// The same walk's life on a machine that is as harsh as it gets, for several seeds.
#[test]
fn a_harsh_life() {
    for seed in 0..12 {
        let transport = transport(&FaultPlan::default(), Harsh::all(seed));
        for _ in 0..4 {
            life(&transport).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            check_end(&transport, &format!("seed {seed}"));
        }
    }
}

/// A restart of the whole DSP loses a session, which opens again.
#[test]
fn a_restart_of_the_dsp() {
    let transport = transport(&FaultPlan::default(), Harsh::default());
    let session = Session::open(Arc::clone(&transport) as _, walk_options()).expect("it opens");
    run_graphs(&session).expect("it works");
    transport.restart();
    let error = run_graphs(&session).unwrap_err();
    assert!(error.contains("restarted"), "{error}");
    session.reopen().expect("it opens again");
    run_graphs(&session).expect("it works again");
    session.close();
    check_end(&transport, "at the end");
}
