//! The FastRPC transport over the driver library made of the simulator: the case list, messages that no host would send, and
//! sessions that wait for each other, as on the simulator itself.

use std::sync::Arc;

use cdsprpc::load::Loaded;
use hexloom::transport::{MapKind, SessionAt, Transport, aee};
use hexloom::{OpenError, Session, SessionOptions};
use hexloom_conformance::{Runner, Suite, cases};
use hexloom_fastrpc::{FastRpcOptions, FastRpcTransport};
use hexloom_sim::{SimOptions, SimTransport};

fn driver(statements: &str) -> Loaded {
    Loaded::new(statements, &[]).expect("the library was built with this test")
}

fn transport(driver: &Loaded) -> Arc<FastRpcTransport> {
    let options = FastRpcOptions {
        library: Some(driver.path()),
        ..FastRpcOptions::default()
    };
    Arc::new(FastRpcTransport::open(options).expect("the library opens"))
}

/// Everything was given back, and no rule was broken.
fn check_clean(driver: &Loaded) {
    assert_eq!(driver.tell("breaches"), Ok(String::new()));
    let counts = driver.tell("counts").expect("counts");
    assert_eq!(counts, "sessions 0 queues 0 maps 0 dsp_maps 0 allocations 0 threads 0");
}

/// The runners of the simulator's own test, each over a driver of its own, compared bit for bit with the simulator: which
/// cases run and which are refused is the same.
#[test]
fn every_case_as_on_the_simulator() {
    let settings = [(1, 8 << 20), (2, 8 << 20), (5, 8 << 20), (3, 256 << 10)];
    let drivers: Vec<Loaded> = settings
        .iter()
        .map(|(threads, scratch)| {
            driver(&format!(
                "option threads={threads}; option scratch={scratch}; option junk=1"
            ))
        })
        .collect();
    let open = |name: String, transport: Arc<dyn Transport>, reference| {
        let options = SessionOptions {
            reference,
            ..SessionOptions::default()
        };
        Runner::open(name, transport, options)
    };
    let suite = || -> Result<Suite, OpenError> {
        let sim = |name: &str, n_threads, scratch_bytes, reference| {
            let options = SimOptions {
                n_threads,
                scratch_bytes,
                ..SimOptions::default()
            };
            open(name.to_owned(), Arc::new(SimTransport::new(options)), reference)
        };
        let mut runners = vec![
            sim("sim", 2, 8 << 20, false)?,
            sim("sim 256 KiB scratch", 3, 256 << 10, false)?,
        ];
        for (driver, (threads, scratch)) in drivers.iter().zip(settings) {
            let name = format!("fastrpc {threads} threads, {} KiB", scratch >> 10);
            runners.push(open(name, transport(driver), false)?);
        }
        Ok(Suite::new(sim("sim reference", 1, 8 << 20, true)?, runners))
    };
    let report = suite().expect("simulators and drivers open").check(&cases::all(), 2000);
    let count = |name: &str| {
        report
            .counts
            .iter()
            .find(|(found, _)| found.starts_with(name))
            .map(|(_, count)| *count)
    };
    let (large, little) = (count("sim"), count("sim 256"));
    for name in ["fastrpc 1", "fastrpc 2", "fastrpc 5"] {
        assert_eq!(
            count(name).map(|count| count.ran),
            count("fastrpc 2").map(|count| count.ran)
        );
    }
    assert!(large.is_some() && little == count("fastrpc 3"), "{report}");
    drivers.iter().for_each(check_clean);
}

/// Cores and sessions of one driver: fences between them, memory that both have.
#[test]
fn sessions_that_wait_for_each_other() {
    let driver = driver("option threads=2; option cores=4");
    let transport: Arc<dyn Transport> = transport(&driver);
    hexloom_conformance::peers::run(&transport);
    drop(transport);
    check_clean(&driver);
}

#[test]
fn cores_are_listed_in_every_way() {
    for (listing, lacking, wanted) in [
        ("new", &[][..], vec!["cdsp", "cdsp1", "cdsp2"]),
        ("old", &[], vec!["cdsp", "cdsp1", "cdsp2"]),
        ("none", &[], vec!["cdsp", "cdsp1"]),
        ("new", &["remote_system_request"], vec!["cdsp", "cdsp1"]),
    ] {
        let driver = Loaded::new(
            &format!("option listing={listing}; option cores=3; option arch=79"),
            lacking,
        );
        let driver = driver.expect("a driver");
        let transport = transport(&driver);
        let cores = transport.cores().expect("there are cores");
        let names: Vec<&str> = cores.iter().map(|core| core.name.as_str()).collect();
        assert_eq!(names, wanted, "{listing} {lacking:?}");
        assert!(
            cores
                .iter()
                .zip(0..)
                .all(|(core, number)| core.number == number && core.arch == 79)
        );
        for number in 0..cores.len() as u32 {
            let at = SessionAt {
                core: number,
                session: 0,
            };
            let hw = transport
                .open(at)
                .and_then(|session| session.hw_info())
                .expect("each core has a session");
            assert_eq!((hw.arch, hw.n_hmx), (79, 1));
        }
        let none = SessionAt { core: 9, session: 0 };
        assert!(transport.open(none).is_err_and(|error| error.is_code(aee::ENOSUCH)));
        check_clean(&driver);
    }
}

/// Sessions beside the first are set aside once, and come back after they were closed.
#[test]
fn sessions_are_reserved_and_reopened() {
    let driver = driver("option threads=1; option sessions=3");
    let transport = transport(&driver);
    let at = |session| SessionAt { core: 0, session };
    for _ in 0..3 {
        let open: Vec<_> = (0..3)
            .map(|session| transport.open(at(session)).expect("it is free"))
            .collect();
        assert!(open.iter().all(|session| session.hw_info().is_ok()));
    }
    let open: Vec<_> = (0..3).map(|session| transport.open(at(session))).collect();
    let none = transport.open(at(7)).map(drop);
    assert!(none.is_err_and(|error| error.is_code(aee::ENOSESSION) && error.to_string().contains("Close a session")));
    drop((transport, open));
    check_clean(&driver);
}

#[test]
fn extended_maps_are_probed() {
    for (statements, wanted) in [
        ("option arch=81", Ok(())),
        (
            "option arch=81; option extended_flags=0",
            Err("the driver has no mappings outside"),
        ),
        ("option arch=79", Err("v79 has no mappings outside")),
    ] {
        let driver = driver(statements);
        let transport = transport(&driver);
        let session = transport.open(SessionAt::default()).expect("it opens");
        let memory = transport.alloc(1 << 20).expect("memory");
        for kind in [MapKind::Extended, MapKind::ExtendedNow] {
            match (session.map(&memory, kind), wanted) {
                (Ok(()), Ok(())) => session.unmap(memory.fd(), memory.bytes()).expect("it is mapped"),
                (Err(error), Err(words)) => {
                    assert!(
                        error.is_code(aee::EUNSUPPORTED) && error.to_string().contains(words),
                        "{error}"
                    );
                }
                (found, _) => panic!("{statements}: {found:?}"),
            }
        }
        drop((session, memory));
        check_clean(&driver);
    }
}

/// A whole session as programs open it, on a v81 with its weights outside the window.
#[test]
fn a_session_with_extended_weights() {
    let driver = driver("option arch=81; option threads=2");
    let options = SessionOptions {
        extended_weights: true,
        ..SessionOptions::default()
    };
    let session = Session::open(transport(&driver), options).expect("it opens");
    assert_eq!(session.hw().arch, 81);
    session.close();
    drop(session);
    check_clean(&driver);
}

/// A v81 whose system lacks the call: the session says so when it is opened, not with its first batch.
#[test]
fn extended_weights_are_refused_where_the_dsp_does_not_map_them() {
    let driver = driver("option arch=81; option threads=2; option dsp_extended=0");
    let at = SessionAt::default();
    let open = |extended_weights| {
        let options = SessionOptions {
            extended_weights,
            ..SessionOptions::default()
        };
        Session::open(transport(&driver), options)
    };
    let refused = open(true).map(drop).unwrap_err();
    assert_eq!(refused, OpenError::NoExtendedOnDsp { at, arch: 81 });
    assert!(refused.to_string().contains("without extended_weights"), "{refused}");
    check_clean(&driver);
    let session = open(false).expect("it opens");
    assert!(!session.hw().has_extended);
    session.close();
    drop(session);
    check_clean(&driver);
}
