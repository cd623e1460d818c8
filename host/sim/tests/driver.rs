//! The simulated driver's rules, met as a host would meet them: places, maps, windows, what is refused and with which code.

use std::sync::Arc;
use std::time::Duration;

use hexloom::transport::{Connection, MapKind, SessionAt, SharedMemory, Transport, TransportError, aee};
use hexloom_abi::StartRequest;
use hexloom_sim::{Counts, Harsh, LateFree, SimOptions, SimTransport};

const MIB: u64 = 1 << 20;

fn at(core: u32, session: u32) -> SessionAt {
    SessionAt { core, session }
}

fn open(options: SimOptions) -> (SimTransport, Arc<dyn Connection>) {
    let transport = SimTransport::new(options);
    let connection = transport.open(at(0, 0)).expect("the place is free");
    (transport, connection)
}

/// The code of a refusal, whose message must have these words.
fn code<T: std::fmt::Debug>(result: Result<T, TransportError>, words: &[&str]) -> i32 {
    match result {
        Err(error @ TransportError::Call { code, .. }) => {
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text} without {words:?}");
            code
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn places_are_counted_and_given_back() {
    let transport = SimTransport::new(SimOptions {
        n_cores: 2,
        n_sessions: 3,
        ..SimOptions::default()
    });
    assert_eq!(transport.cores().expect("there are cores").len(), 2);
    let sessions: Vec<_> = [at(0, 0), at(0, 1), at(0, 2), at(1, 2)]
        .map(|at| transport.open(at).expect("the place is free"))
        .into();
    let counts = transport.counts();
    assert_eq!((counts.sessions, counts.reserved), (4, 3));
    assert_eq!(
        code(transport.open(at(2, 0)).map(drop), &["core 2", "has 2"]),
        aee::ENOSUCH
    );
    assert_eq!(
        code(transport.open(at(1, 3)).map(drop), &["session 3", "has 3"]),
        aee::ENOSESSION
    );
    assert_eq!(
        code(transport.open(at(0, 1)).map(drop), &["session 1 of core 0"]),
        aee::EITEMBUSY
    );
    sessions[1].close();
    let again = transport.open(at(0, 1)).expect("the place came back");
    // The one that was closed is dropped after the place has a new owner.
    drop(sessions);
    assert!(transport.open(at(0, 1)).is_err());
    drop(again);
    assert_eq!(transport.counts(), Counts::default());
}

#[test]
fn a_map_is_made_once_and_taken_back_once() {
    let (transport, connection) = open(SimOptions::default());
    let memory = transport.alloc(MIB).expect("there is memory");
    for kind in [MapKind::Pinned, MapKind::Lazy] {
        connection.map(&memory, kind).expect("it fits");
        assert_eq!(code(connection.map(&memory, kind), &["fd", "already"]), aee::EALREADY);
        connection.unmap(memory.fd(), memory.bytes()).expect("it is mapped");
        let again = connection.unmap(memory.fd(), memory.bytes());
        assert_eq!(code(again, &["fd", "not mapped"]), aee::ENOSUCHMAP);
    }
    let other = transport.open(at(1, 0)).expect("the place is free");
    connection.map(&memory, MapKind::Lazy).expect("it fits");
    other
        .map(&memory, MapKind::Pinned)
        .expect("another session, another window");
    assert_eq!((transport.counts().maps, transport.counts().window_bytes), (2, MIB));
    other.close();
    connection.close();
    let counts = transport.counts();
    assert_eq!(
        (counts.maps, counts.window_bytes, counts.descriptors, counts.allocations),
        (0, 0, 0, 1)
    );
}

/// A window of no size is that of the architecture; mappings outside it are there where DSP and system have them.
#[test]
fn what_an_architecture_has() {
    for (arch, window_mib, extended) in [
        (68, 3000, false),
        (73, 3000, false),
        (75, 3200, false),
        (81, 3200, true),
    ] {
        for dsp_extended in [true, false] {
            let (_transport, session) = open(SimOptions {
                arch,
                dsp_extended,
                ..SimOptions::default()
            });
            let hw = session.hw_info().expect("it is open");
            assert_eq!(hw.window_bytes, window_mib * MIB, "v{arch}");
            assert_eq!(hw.has_extended, extended && dsp_extended, "v{arch}");
        }
    }
}

/// Sizes are what an architecture takes; nothing large is touched, so nothing large is used.
#[test]
fn what_an_architecture_maps() {
    let two_gib = 2048 * MIB;
    let gib_4 = |arch| SimOptions {
        arch,
        window_bytes: 2 * two_gib,
        ..SimOptions::default()
    };
    for (arch, bytes, fits) in [
        (73, two_gib, true),
        (73, two_gib + 1, false),
        (75, two_gib + 1, true),
        (75, 2 * two_gib, true),
        (75, 2 * two_gib + 1, false),
    ] {
        let (transport, connection) = open(gib_4(arch));
        let memory = transport.alloc(bytes).expect("memory that is never touched");
        let mapped = connection.map(&memory, MapKind::Pinned);
        if fits {
            mapped.unwrap_or_else(|error| panic!("{bytes} bytes on v{arch}: {error}"));
        } else if arch == 73 {
            assert_eq!(code(mapped, &["v73", "2147487744", "2147483648"]), aee::EBADPARM);
        } else {
            assert_eq!(code(mapped, &["largest", "4294967296"]), aee::EFAILED);
        }
    }
    for (arch, known) in [(73, false), (79, false), (81, true)] {
        let (transport, connection) = open(gib_4(arch));
        let memory = transport.alloc(MIB).expect("there is memory");
        for kind in [MapKind::Extended, MapKind::ExtendedNow] {
            let mapped = connection.map(&memory, kind);
            if known {
                mapped.expect("v81 has them");
                assert_eq!(transport.counts().window_bytes, 0);
                connection.unmap(memory.fd(), memory.bytes()).expect("it is mapped");
            } else {
                assert_eq!(code(mapped, &[&format!("v{arch}"), "v81"]), aee::EUNSUPPORTED);
            }
        }
    }
}

/// What is mapped at once takes its place, and what is recorded takes none: so a budget can be measured by trial maps.
#[test]
fn a_budget_measured_by_trial_maps() {
    let (transport, connection) = open(SimOptions {
        window_bytes: 100 * MIB,
        ..SimOptions::default()
    });
    let recorded = transport.alloc(80 * MIB).expect("there is memory");
    connection.map(&recorded, MapKind::Lazy).expect("recorded only");
    let trials: Vec<SharedMemory> = (0..11)
        .map(|_| transport.alloc(10 * MIB).expect("there is memory"))
        .collect();
    let mapped = trials
        .iter()
        .map_while(|trial| connection.map(trial, MapKind::Pinned).ok())
        .count();
    assert_eq!(mapped, 10);
    let none = connection.map(&trials[10], MapKind::Pinned);
    assert_eq!(code(none, &["10485760 bytes", "104857600", "no hole"]), aee::EFAILED);
    for trial in &trials[..10] {
        connection.unmap(trial.fd(), trial.bytes()).expect("it is mapped");
    }
    assert_eq!(transport.counts().window_bytes, 0);
    connection
        .map(&trials[10], MapKind::Pinned)
        .expect("there is room again");
}

/// Sixteen buffers of 256 MiB, four live at a time, in 2 GiB whose unmaps free late: one wait at most for each.
#[test]
fn late_frees_cost_one_wait() {
    let late_free = LateFree {
        calls: u32::MAX,
        time: Duration::from_millis(30),
    };
    let (transport, connection) = open(SimOptions {
        window_bytes: 2048 * MIB,
        harsh: Harsh {
            late_free: Some(late_free),
            ..Harsh::default()
        },
        ..SimOptions::default()
    });
    let mut live = std::collections::VecDeque::new();
    let mut waits = 0;
    for _ in 0..16 {
        let memory = transport.alloc(256 * MIB).expect("memory that is never touched");
        if connection.map(&memory, MapKind::Pinned).is_err() {
            waits += 1;
            std::thread::sleep(late_free.time);
            connection
                .map(&memory, MapKind::Pinned)
                .expect("what was unmapped is free now");
        }
        live.push_back(memory);
        if live.len() == 4 {
            let oldest = live.pop_front().expect("there are four");
            connection.unmap(oldest.fd(), oldest.bytes()).expect("it is mapped");
        }
    }
    assert!(waits > 0, "nothing was late");
    assert_eq!(transport.counts().window_bytes, 3 * 256 * MIB);
}

/// The pinned buffer is in use while the DSP side runs.
#[test]
fn what_the_dsp_side_uses_is_not_unmapped() {
    let (transport, connection) = open(SimOptions::default());
    let pinned = transport.alloc(MIB).expect("there is memory");
    let start = StartRequest {
        n_threads: 2,
        queue_id: connection.create_queue(4).expect("the first queue"),
        pinned_fd: pinned.fd(),
        pinned_bytes: pinned.bytes(),
        block_bytes_max: MIB as u32,
        ..StartRequest::new(0)
    };
    assert_eq!(code(connection.create_queue(4), &["queue"]), aee::EALREADY);
    assert_eq!(
        code(connection.start(&start), &["pinned buffer", "not mapped"]),
        aee::ENOSUCHMAP
    );
    connection.map(&pinned, MapKind::Pinned).expect("it fits");
    connection.start(&start).expect("it starts");
    assert_eq!((transport.counts().threads, transport.counts().dsp_maps), (2, 1));
    let early = connection.unmap(pinned.fd(), pinned.bytes());
    assert_eq!(code(early, &["DSP side", "stop"]), aee::EBADPARM);
    connection.stop().expect("it runs");
    assert_eq!((transport.counts().threads, transport.counts().dsp_maps), (0, 0));
    connection
        .unmap(pinned.fd(), pinned.bytes())
        .expect("it is mapped and not in use");
    connection.start(&start).expect_err("it is not mapped any more");
    connection.close();
    assert_eq!(transport.counts().queues, 0);
    // A closed connection says so, and takes what is given back.
    assert!(matches!(connection.hw_info(), Err(TransportError::Dead(_))));
    assert_eq!(connection.unmap(pinned.fd(), pinned.bytes()), Ok(()));
    assert_eq!((connection.stop(), connection.forget(3)), (Ok(()), Ok(())));
}

/// Memory whose descriptor is closed under a session that has it mapped is found.
#[test]
fn a_descriptor_closed_too_early_is_told() {
    let (transport, connection) = open(SimOptions::default());
    let memory = transport.alloc(MIB).expect("there is memory");
    connection.map(&memory, MapKind::Lazy).expect("it fits");
    assert!(transport.breaches().is_empty());
    drop(memory);
    let breaches = transport.breaches();
    assert!(
        breaches.len() == 1 && breaches[0].contains("session 0 of core 0"),
        "{breaches:?}"
    );
}
