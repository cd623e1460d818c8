//! Every function of the driver library that the transport calls: with success, and with each code that it is documented to
//! fail with. What comes of a failure is in the table: an error with call, code and remedy, the end of the session, or a
//! documented way around it. After each, the same walk works.

use std::sync::Arc;
use std::time::Duration;

use cdsprpc::load::Loaded;
use hexloom::transport::{BlockRef, Connection, MapKind, SessionAt, SharedMemory, Transport, TransportError, aee};
use hexloom_abi::control::CountedEvents;
use hexloom_abi::{BatchReply, StartRequest, Status};
use hexloom_fastrpc::calls::CALLS;
use hexloom_fastrpc::{FastRpcOptions, FastRpcTransport};

const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(20);
/// What the driver tells when nothing is left of any session.
const NOTHING_HELD: &str = "sessions 0 queues 0 maps 0 dsp_maps 0 allocations 0 threads 0";

/// What comes of a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// An error that has the call, the code, and a remedy.
    Fails,
    /// The same with another code, as the function gives none.
    FailsAs(i32),
    /// The session is dead.
    Dies,
    /// It works without.
    Works,
}

use Then::{Dies, Fails, FailsAs, Works};

/// A function or a request of one, how many calls of it go well first, the session in which it is called, the codes, and
/// what comes of them.
const FAILURES: &[(&str, u32, u32, &[i32], Then)] = &[
    ("rpcmem_alloc2", 0, 0, &[1], FailsAs(aee::ENOMEMORY)),
    ("rpcmem_to_fd", 0, 0, &[1], FailsAs(aee::EINVALIDFD)),
    ("remote_system_request", 0, 0, &[1, 0x0e, 0x14], Works),
    ("remote_handle_control", 0, 0, &[0x0e, 0x14, 0x39, 0x6c, 0x72], Fails),
    ("unsigned_module", 0, 0, &[0x0e, 0x14, 0x39, 0x6c], Fails),
    ("get_effective_domain_id", 0, 0, &[0x0e, 0x6c, 0x8a], Works),
    ("reserve_new_session", 0, 1, &[0x0e, 0x14, 0x6c, 0x8a], Fails),
    ("status_notifications", 0, 0, &[0x0e, 0x14, 0x6c], Works),
    ("get_uri", 0, 0, &[0x0e, 0x4d, 0x6c], Works),
    ("get_uri", 0, 1, &[0x4d], Works),
    ("session_close", 0, 0, &[0x01, 0x0e, 0x27], Works),
    (
        "remote_handle64_open",
        0,
        0,
        &[
            0x01,
            0x02,
            0x0e,
            0x14,
            0x3b,
            0x3e,
            0x43,
            0x4e,
            0x57,
            0x68,
            0x6b,
            0x72,
            0x200,
            -13,
            -110,
            on_dsp(0x06),
            on_dsp(0x14),
            on_dsp(0x16),
            on_dsp(0x42),
            on_dsp(0x52),
            on_dsp(0x81),
            on_dsp(0x82),
            on_dsp(0x200),
        ],
        Fails,
    ),
    ("remote_handle64_control", 0, 0, &[0x0e, 0x14, 0x6c], Works),
    ("fastrpc_mmap", 0, 0, &[0x01, 0x02, 0x0e, 0x14, 0x1a, 0x39, -12], Fails),
    ("fastrpc_mmap", 0, 0, &[0x68, 0x2e, -104], Dies),
    ("dspqueue_create", 0, 0, &[0x01, 0x02, 0x0e, 0x14], Fails),
    ("dspqueue_create", 0, 0, &[0x68], Dies),
    ("dspqueue_export", 0, 0, &[0x01, 0x0e], Fails),
    // The walk calls the library to ask what there is, to start, to forget and to stop.
    (
        "remote_handle64_invoke",
        0,
        0,
        &[0x01, 0x0e, 0x14, 0x2c, 0x200, on_dsp(0x0e), on_dsp(0x14)],
        Fails,
    ),
    (
        "remote_handle64_invoke",
        1,
        0,
        &[0x01, 0x02, 0x4e, 0x200, on_dsp(0x02)],
        Fails,
    ),
    ("remote_handle64_invoke", 2, 0, &[0x0e, 0x200], Fails),
    ("remote_handle64_invoke", 3, 0, &[0x0e, 0x200], Fails),
    (
        "remote_handle64_invoke",
        0,
        0,
        &[0x68, 0x2e, on_dsp(0x2e), on_dsp(0x0d), -1, -104, -108],
        Dies,
    ),
    ("remote_handle64_invoke", 1, 0, &[on_dsp(0x0d)], Dies),
    ("dspqueue_write", 0, 0, &[0x01, 0x0e, 0x48], Fails),
    ("dspqueue_write", 0, 0, &[0x0d, 0x2e, 0x68], Dies),
    ("dspqueue_write", 0, 0, &[0x0c, 0x204], Works),
    ("dspqueue_read", 0, 0, &[0x01, 0x0e, 0x26], Fails),
    ("dspqueue_read", 0, 0, &[0x0d, 0x2e, 0x68], Dies),
    ("dspqueue_read", 0, 0, &[0x0c, 0x204], Works),
    ("fastrpc_munmap", 0, 0, &[0x01, 0x0e, 0x14, 0x3a, 0x48], Fails),
    ("fastrpc_munmap", 0, 0, &[0x68], Works),
    ("remote_handle64_close", 0, 0, &[0x01, 0x20, 0x2c, 0x68], Works),
];

const fn on_dsp(code: i32) -> i32 {
    aee::DSP_OFFSET + code
}

fn transport(driver: &Loaded) -> FastRpcTransport {
    let options = FastRpcOptions {
        library: Some(driver.path()),
        ..FastRpcOptions::default()
    };
    FastRpcTransport::open(options).expect("the library opens")
}

/// A session's whole life: every function of the library once.
fn walk(transport: &FastRpcTransport, session: u32) -> Result<(), TransportError> {
    let pinned = transport.alloc(MIB)?;
    let connection = transport.open(SessionAt { core: 0, session })?;
    let done = use_session(&*connection, &pinned);
    connection.close();
    done
}

fn use_session(connection: &dyn Connection, pinned: &SharedMemory) -> Result<(), TransportError> {
    connection.hw_info()?;
    connection.map(pinned, MapKind::Pinned)?;
    let mapped = use_queue(connection, pinned);
    // As the session does it: back on the DSP first, whatever went wrong before.
    let stopped = connection.stop();
    let unmapped = connection.unmap(pinned.fd(), pinned.bytes());
    mapped?;
    stopped?;
    unmapped
}

/// Starts the session over a queue for four, and gives a block in the pinned buffer.
fn started(connection: &dyn Connection, pinned: &SharedMemory) -> Result<BlockRef, TransportError> {
    let start = StartRequest {
        n_threads: 1,
        queue_id: connection.create_queue(4)?,
        pinned_fd: pinned.fd(),
        pinned_bytes: pinned.bytes(),
        block_bytes_max: MIB as u32,
        ..StartRequest::new(0)
    };
    connection.start(&start)?;
    Ok(BlockRef {
        fd: pinned.fd(),
        offset: 0,
        bytes: 4096,
    })
}

fn use_queue(connection: &dyn Connection, pinned: &SharedMemory) -> Result<(), TransportError> {
    let block = started(connection, pinned)?;
    connection.write(b"no batch", block, SOON)?;
    let mut reply = [0; size_of::<BatchReply>()];
    assert_eq!(connection.read(&mut reply, SOON)?, reply.len());
    connection.forget(pinned.fd())
}

/// Events are counted in a started session; the library refuses what no counter can be told.
#[test]
fn counters_of_a_session() {
    let driver = Loaded::new("option threads=1", &[]).expect("a driver");
    let transport = transport(&driver);
    let pinned = transport.alloc(MIB).expect("memory");
    let connection = transport.open(SessionAt::default()).expect("it opens");
    connection.map(&pinned, MapKind::Pinned).expect("it fits");
    let mut events = CountedEvents { numbers: [0x3ff; 8] };
    let refused = |status| Err(TransportError::Refused(status));
    assert_eq!(connection.count(&events), refused(Status::NotStarted));
    started(&*connection, &pinned).expect("it starts");
    assert_eq!(connection.count(&events), Ok(()));
    events.numbers[3] = 0x400;
    assert_eq!(connection.count(&events), refused(Status::Invalid));
    assert_eq!(connection.count(&CountedEvents::default()), Ok(()));
    assert_eq!(connection.stop(), Ok(()));
    assert_eq!(connection.count(&CountedEvents::default()), refused(Status::NotStarted));
    connection.close();
    assert!(matches!(connection.count(&events), Err(TransportError::Dead(_))));
}

#[test]
fn each_documented_failure_of_each_call() {
    let driver = Loaded::new("option threads=1; option sessions=8", &[]).expect("the library was built with this test");
    let mut n_codes = 0;
    for &(call, skip, session, codes, then) in FAILURES {
        for &code in codes {
            n_codes += 1;
            // A transport asks for a session once and keeps it.
            let transport = transport(&driver);
            let case = format!("{call} after {skip}, session {session}, code {code:#x}");
            driver.tell(&format!("fail {call} {skip} {code}")).expect("a plan");
            let result = walk(&transport, session);
            assert_eq!(driver.tell("clear").as_deref(), Ok("0"), "{case}: never called");
            match (then, result) {
                (Works, Ok(())) => {}
                (Dies, Err(TransportError::Dead(death))) => {
                    let text = death.to_string();
                    let number = aee::decode(code).name;
                    assert!(text.contains(call) && text.contains(number), "{case}: {text}");
                }
                (Fails | FailsAs(_), Err(error)) => {
                    let wanted = if let FailsAs(other) = then { other } else { code };
                    let text = error.to_string();
                    assert!(error.is_code(wanted), "{case}: {text}");
                    let function = if CALLS.iter().any(|info| info.name == call) {
                        call
                    } else {
                        "remote_session_control"
                    };
                    let remedy = aee::decode_of(function, wanted).remedy.trim_end_matches('.');
                    assert!(text.contains(function) && text.contains(remedy), "{case}: {text}");
                }
                (then, result) => panic!("{case}: {result:?}, wanted {then:?}"),
            }
            assert_eq!(walk(&transport, session), Ok(()), "after {case}");
            assert_eq!(driver.tell("breaches"), Ok(String::new()), "{case}");
        }
    }
    println!("{n_codes} failures of {} functions and requests", FAILURES.len());
    assert_eq!(driver.tell("breaches"), Ok(String::new()));
    assert_eq!(driver.tell("counts").as_deref(), Ok(NOTHING_HELD));
}

/// A queue that does not close is closed once its process has ended, and does not keep the next one from opening.
#[test]
fn a_queue_that_does_not_close() {
    let driver = Loaded::new("option threads=1", &[]).expect("a driver");
    let transport = transport(&driver);
    for code in [0x01, 0x0e] {
        driver.tell(&format!("fail dspqueue_close 0 {code}")).expect("a plan");
        assert_eq!(walk(&transport, 0), Ok(()));
        assert_eq!(
            driver.tell("clear; counts").as_deref(),
            Ok(&*format!("0{NOTHING_HELD}"))
        );
        assert_eq!(walk(&transport, 0), Ok(()));
    }
    assert_eq!(driver.tell("breaches"), Ok(String::new()));
    // Even then the driver does not take it: it has nothing for the queues of another process.
    driver
        .tell("fail dspqueue_close 0 1; fail dspqueue_close 0 1")
        .expect("a plan");
    assert_eq!(walk(&transport, 0), Ok(()));
    assert!(walk(&transport, 0).is_err_and(|error| error.to_string().contains("dspqueue_create")));
}

/// Calls of a session's life, and how many of each go well first. None comes back by itself.
const HANGS: &[(&str, u32)] = &[
    ("remote_handle64_open", 0),
    ("remote_handle64_control", 0),
    ("remote_handle64_invoke", 0),
    ("remote_handle64_invoke", 1),
    ("remote_handle64_invoke", 2),
    ("remote_handle64_invoke", 3),
    ("fastrpc_mmap", 0),
    ("dspqueue_create", 0),
    ("dspqueue_export", 0),
    ("dspqueue_close", 0),
    ("fastrpc_munmap", 0),
    ("remote_handle64_close", 0),
    ("session_close", 0),
];

/// A call that hangs has its process killed, so that everything is given back and the same session opens again.
#[test]
fn each_call_that_does_not_come_back() {
    for session in [0, 1] {
        let driver = Loaded::new("option threads=1", &[]).expect("a driver");
        let call_timeout = Duration::from_millis(300);
        let options = FastRpcOptions {
            library: Some(driver.path()),
            call_timeout,
            ..FastRpcOptions::default()
        };
        let transport = FastRpcTransport::open(options).expect("the library opens");
        for &(call, skip) in HANGS {
            let case = format!("{call} after {skip}, session {session}");
            driver.tell(&format!("hang {call} {skip}")).expect("a plan");
            let walked = walk(&transport, session);
            assert_eq!(driver.tell("clear").as_deref(), Ok("0"), "{case}: never called");
            let is_told = matches!(
                walked,
                Err(TransportError::Timeout(_) | TransportError::Dead(_)) | Ok(())
            );
            assert!(is_told, "{case}: {walked:?}");
            // What comes after the walk's last call is part of closing, and nobody is told of it.
            let is_closing = [
                "dspqueue_close",
                "fastrpc_munmap",
                "remote_handle64_close",
                "session_close",
            ]
            .contains(&call);
            assert!(walked.is_err() || is_closing, "{case}: {walked:?}");
            assert_eq!(driver.tell("counts").as_deref(), Ok(NOTHING_HELD), "{case}");
            assert_eq!(walk(&transport, session), Ok(()), "after {case}");
            assert_eq!(driver.tell("breaches"), Ok(String::new()), "{case}");
        }
    }
}

/// Where the driver refuses to kill a process, or knows no such request, its place is lost until the call comes back after
/// all; then what waits behind it is given back.
#[test]
fn a_process_that_cannot_be_killed() {
    for code in [0x0e, 0x6c, 0x200] {
        let driver = Loaded::new("option threads=1; option arch=73", &[]).expect("a driver");
        let options = FastRpcOptions {
            library: Some(driver.path()),
            call_timeout: Duration::from_millis(300),
            ..FastRpcOptions::default()
        };
        let transport = FastRpcTransport::open(options).expect("the library opens");
        let plan = format!("hang remote_handle64_invoke 1; fail process_kill 0 {code}");
        driver.tell(&plan).expect("a plan");
        assert_eq!(
            walk(&transport, 0),
            Err(TransportError::Timeout(Duration::from_millis(300)))
        );
        assert!(walk(&transport, 0).is_err(), "the process is there still");
        assert_eq!(driver.tell("clear").as_deref(), Ok("0"));
        let end = std::time::Instant::now() + SOON;
        while driver.tell("counts").as_deref() != Ok(NOTHING_HELD) {
            assert!(std::time::Instant::now() < end, "{:?}", driver.tell("counts"));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(walk(&transport, 0), Ok(()));
    }
}

/// Sessions beside the first, closed and opened again in another order, on drivers that take a session back when its process
/// ends and on such that do not: each has a process of its own.
#[test]
fn sessions_that_come_and_go() {
    for takes_back in [0, 1] {
        let statements = format!("option threads=1; option sessions=3; option cores=1; option takes_back={takes_back}");
        let driver = Loaded::new(&statements, &[]).expect("a driver");
        let transport = transport(&driver);
        let open = |session| transport.open(SessionAt { core: 0, session });
        let first = open(1).expect("it opens");
        let second = open(2).expect("it opens");
        let refused = open(3).map(drop);
        assert!(refused.is_err_and(|error| error.is_code(aee::ENOSESSION)));
        first.close();
        let third = open(3).expect("there is room again");
        assert!(open(1).map(drop).is_err_and(|error| error.is_code(aee::ENOSESSION)));
        second.close();
        let first = open(1).expect("it opens again");
        for connection in [&first, &third] {
            connection.hw_info().expect("it works");
        }
        first.close();
        third.close();
        for session in [2, 1, 2, 1] {
            assert_eq!(walk(&transport, session), Ok(()), "takes back: {takes_back}");
        }
        assert_eq!(driver.tell("breaches"), Ok(String::new()));
    }
}

/// What a failed `mmap` gives is no memory, though it is not null.
#[test]
fn memory_that_there_is_none_of() {
    let driver = Loaded::new("option map_failed=1", &[]).expect("a driver");
    let transport = transport(&driver);
    driver.tell("fail rpcmem_alloc2 0 1").expect("a plan");
    let refused = transport.alloc(MIB).map(drop);
    assert!(refused.is_err_and(|error| error.is_code(aee::ENOMEMORY)));
}

/// Every optional call missing alone: what the table of calls says is done without it.
#[test]
fn a_driver_that_lacks_a_call() {
    for call in CALLS.iter().filter(|call| call.fallback.is_some()) {
        // Without requests about sessions there are no processes that take unsigned libraries.
        let driver = Loaded::new("option threads=1; option signed=1", &[call.name]).expect("a driver");
        let transport = transport(&driver);
        assert_eq!(transport.missing_calls(), [call.name]);
        let walked = walk(&transport, 0);
        match call.name {
            "remote_handle_control" => {
                let error = walked.expect_err("the architecture is not known").to_string();
                assert!(error.contains("name it with an option"), "{error}");
                let options = FastRpcOptions {
                    library: Some(driver.path()),
                    arch: Some(73),
                    ..FastRpcOptions::default()
                };
                let named = FastRpcTransport::open(options).expect("the library opens");
                assert_eq!(walk(&named, 0), Ok(()));
            }
            name if name.starts_with("dspqueue") && name != "dspqueue_read_noblock" => {
                let error = walked.expect_err("there is no queue").to_string();
                assert!(error.contains("no packet queue") && error.contains("Update"), "{error}");
            }
            name => assert_eq!(walked, Ok(()), "{name}"),
        }
        if call.name == "remote_session_control" {
            assert!(transport.facts().expect("cores").iter().all(|core| !core.unsigned));
            let error = walk(&transport, 1).expect_err("there is one session only");
            assert!(error.is_code(aee::EUNSUPPORTEDAPI), "{error}");
        }
        if call.name == "rpcmem_alloc2" {
            let error = transport.alloc(1 << 31).expect_err("too large for the older call");
            assert!(error.to_string().contains("2 GiB"), "{error}");
            driver.tell("fail rpcmem_alloc 0 1").expect("a plan");
            assert!(transport.alloc(4096).is_err_and(|error| error.is_code(aee::ENOMEMORY)));
        }
    }
}

#[test]
fn a_driver_that_lacks_what_nothing_works_without() {
    for call in CALLS.iter().filter(|call| call.fallback.is_none()) {
        let driver = Loaded::new("", &[call.name]).expect("a driver");
        let options = FastRpcOptions {
            library: Some(driver.path()),
            ..FastRpcOptions::default()
        };
        let error = FastRpcTransport::open(options).expect_err("it is needed").to_string();
        assert!(error.contains(call.name) && error.contains("update"), "{error}");
    }
}

/// The look for a reply that is there already takes the call that does not wait.
#[test]
fn a_look_does_not_wait() {
    let driver = Loaded::new("option threads=1", &[]).expect("a driver");
    let transport = transport(&driver);
    let connection = transport.open(SessionAt::default()).expect("it opens");
    connection.create_queue(2).expect("a queue");
    let mut reply = [0; 64];
    let nothing = connection.read(&mut reply, Duration::ZERO);
    assert_eq!(nothing, Err(TransportError::Timeout(Duration::ZERO)));
}

/// A process that takes no packet: replies do not come, then there is no room for requests.
#[test]
fn a_queue_that_never_answers() {
    let driver = Loaded::new("option threads=1", &[]).expect("a driver");
    let transport = transport(&driver);
    let pinned = transport.alloc(MIB).expect("memory");
    let connection = transport.open(SessionAt::default()).expect("it opens");
    connection.map(&pinned, MapKind::Pinned).expect("it fits");
    driver.tell("deaf 0 0 2").expect("a plan");
    let result = use_queue_shortly(&*connection, &pinned);
    assert_eq!(result, Err(TransportError::Timeout(Duration::from_millis(30))));
    // Without a stop of its own.
    connection.close();
    drop(pinned);
    assert_eq!(driver.tell("breaches"), Ok(String::new()));
}

fn use_queue_shortly(connection: &dyn Connection, pinned: &SharedMemory) -> Result<(), TransportError> {
    let block = started(connection, pinned)?;
    let short = Duration::from_millis(30);
    connection.write(b"one", block, short)?;
    connection.write(b"two", block, short)?;
    let full = connection.write(b"three", block, short);
    assert_eq!(full, Err(TransportError::Timeout(short)));
    connection.read(&mut [0; 256], short).map(drop)
}

/// The DSP restarts under a session: whoever waits hears of it with the driver's own word for it, what is given back is
/// taken, and the next session works.
#[test]
fn a_restart_of_the_dsp() {
    let told = "the whole DSP has restarted";
    for (notices, session, words) in [
        ("effective", 0, told),
        ("effective", 1, told),
        ("core", 0, told),
        ("core", 1, told),
        ("none", 0, "the driver does not say why"),
    ] {
        let driver = Loaded::new(&format!("option threads=1; option notices={notices}"), &[]).expect("a driver");
        let transport = transport(&driver);
        let pinned = transport.alloc(MIB).expect("memory");
        let at = SessionAt { core: 0, session };
        let connection: Arc<dyn Connection> = transport.open(at).expect("it opens");
        connection.map(&pinned, MapKind::Pinned).expect("it fits");
        use_queue(&*connection, &pinned).expect("it works");
        let waiting = std::thread::spawn({
            let connection = Arc::clone(&connection);
            move || connection.read(&mut [0; 256], SOON)
        });
        std::thread::sleep(Duration::from_millis(20));
        driver.tell("restart").expect("it restarts");
        let Ok(Err(TransportError::Dead(death))) = waiting.join() else {
            panic!("it is dead")
        };
        assert!(death.to_string().contains(words), "{death}");
        assert!(matches!(connection.hw_info(), Err(TransportError::Dead(_))));
        assert_eq!((connection.stop(), connection.forget(pinned.fd())), (Ok(()), Ok(())));
        assert_eq!(connection.unmap(pinned.fd(), pinned.bytes()), Ok(()));
        connection.close();
        assert_eq!(walk(&transport, session), Ok(()));
        drop(pinned);
        assert_eq!(driver.tell("breaches"), Ok(String::new()));
    }
}

/// A wrong library for the DSP, or one that is not signed, is told with what to do.
#[test]
fn libraries_that_the_dsp_does_not_take() {
    let driver = Loaded::new("option threads=1; option arch=75", &[]).expect("a driver");
    let open = |arch, unsigned| {
        let options = FastRpcOptions {
            library: Some(driver.path()),
            arch,
            unsigned,
            ..FastRpcOptions::default()
        };
        let transport = FastRpcTransport::open(options).expect("the library opens");
        transport
            .open(SessionAt::default())
            .map(drop)
            .expect_err("it is refused")
            .to_string()
    };
    let text = open(Some(73), Some(true));
    assert!(
        text.contains("libhexloom-v73.so") && text.contains("DSP_LIBRARY_PATH"),
        "{text}"
    );
    let text = open(None, Some(false));
    assert!(
        text.contains("libhexloom-v75.so") && text.contains("xtask sign"),
        "{text}"
    );
}

/// Which kind of process is opened: as asked for, else unsigned, else what the driver takes.
#[test]
fn processes_are_of_the_kind_that_the_driver_takes() {
    for (signed, takes_unsigned, asked, is_unsigned, opens) in [
        (0, 1, None, true, true),
        (1, 1, None, true, true),
        (1, 0, None, false, true),
        (0, 0, None, false, false),
        (1, 1, Some(false), false, true),
        (0, 1, Some(false), false, false),
        (1, 0, Some(true), true, false),
    ] {
        let statements = format!("option threads=1; option signed={signed}; option unsigned={takes_unsigned}");
        let driver = Loaded::new(&statements, &[]).expect("a driver");
        let options = FastRpcOptions {
            library: Some(driver.path()),
            unsigned: asked,
            ..FastRpcOptions::default()
        };
        let transport = FastRpcTransport::open(options).expect("the library opens");
        let facts = transport.facts().expect("there are cores");
        assert!(
            facts
                .iter()
                .all(|core| core.unsigned == is_unsigned && core.takes_unsigned == Some(takes_unsigned == 1))
        );
        let opened = walk(&transport, 0);
        assert_eq!(opened.is_ok(), opens, "{statements}, {asked:?}: {opened:?}");
    }
}
