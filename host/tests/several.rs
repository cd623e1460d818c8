//! Several sessions: buffers seen by more than one, events between them, groups, reductions, and what is refused.

mod session_support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hexloom::transport::SessionAt;
use hexloom::{Buffer, DType, Event, Graph, MapError, OpenError, PreparedGraph, Reduction, RunError, Session};
use hexloom::{SessionOptions, SubmitError, TensorId, Transport, WaitError};
use hexloom_sim::{FaultKind, FaultPlan, SimOptions, SimTransport};
use session_support::{bytes, floats, open, options};

const LEN: u32 = 96;
const NE: [u32; 4] = [LEN, 1, 1, 1];

fn transport(faults: &FaultPlan) -> Arc<dyn Transport> {
    Arc::new(SimTransport::new(SimOptions {
        scratch_bytes: 256 << 10,
        faults: faults.clone(),
        ..SimOptions::default()
    }))
}

/// Sessions of one transport at places.
fn sessions<const N: usize>(transport: &Arc<dyn Transport>, at: [(u32, u32); N]) -> [Session; N] {
    at.map(|(core, session)| {
        let options = SessionOptions {
            at: SessionAt { core, session },
            n_fences: 16,
            deadline: Duration::from_secs(10),
            ..options()
        };
        Session::open(Arc::clone(transport), options).unwrap()
    })
}

/// Multiplies what lies in `from` by `factor` into `into`, between a wait and a signal.
fn relay(
    session: &Session,
    (from, into): (&Buffer, &Buffer),
    factor: f32,
    (wait, signal): (Option<&Event>, Option<&Event>),
) -> Result<PreparedGraph, SubmitError> {
    let mut graph = Graph::new();
    let x = graph.placed("x", DType::F32, NE, from, 0)?;
    let y = graph.placed("y", DType::F32, NE, into, 0)?;
    if let Some(event) = wait {
        graph.wait_for(event)?;
    }
    let scaled = graph.scale("scaled", x, factor, 0.0)?;
    graph.cpy("store", scaled, y)?;
    if let Some(event) = signal {
        graph.signal(event)?;
    }
    session.prepare("relay", graph)
}

/// A chain over three sessions, two of them on one core, all started before anything is waited for.
#[test]
fn events_order_sessions() {
    let transport = transport(&FaultPlan::default());
    let [a, b, c] = sessions(&transport, [(0, 0), (0, 1), (1, 0)]);
    let buffers: Vec<Buffer> = (0..4)
        .map(|idx| a.alloc(&format!("stage {idx}"), u64::from(LEN) * 4).unwrap())
        .collect();
    let (first, second) = (a.event("first").unwrap(), b.event("second").unwrap());
    let mut one = relay(&a, (&buffers[0], &buffers[1]), 2.0, (None, Some(&first))).unwrap();
    let mut two = relay(&b, (&buffers[1], &buffers[2]), 3.0, (Some(&first), Some(&second))).unwrap();
    let mut three = relay(&c, (&buffers[2], &buffers[3]), 5.0, (Some(&second), None)).unwrap();
    for round in 1..50 {
        buffers[0].write(0, &bytes(&[round as f32; LEN as usize])).unwrap();
        let (one, two, three) = (one.start().unwrap(), two.start().unwrap(), three.start().unwrap());
        three.wait().unwrap();
        assert_eq!(floats(&buffers[3], LEN as usize), [30.0 * round as f32; LEN as usize]);
        one.wait().unwrap();
        two.wait().unwrap();
        assert!(second.is_reached().unwrap());
    }
}

/// The host waits for an event as a session does, and nothing promised is nothing to wait for.
#[test]
fn the_host_waits_for_an_event() {
    let session = open(SessionOptions {
        n_fences: 2,
        ..options()
    });
    let event = session.event("done").unwrap();
    event.wait(Duration::ZERO).unwrap();
    let [from, into] = ["from", "into"].map(|name| session.alloc(name, 4096).unwrap());
    let mut graph = relay(&session, (&from, &into), 2.0, (None, Some(&event))).unwrap();
    let run = graph.start().unwrap();
    event.wait(Duration::from_secs(10)).unwrap();
    run.wait().unwrap();
    assert!(event.is_reached().unwrap());
}

/// An event that nobody signals in time fails the batch that waits, by name, and the session goes on.
#[test]
fn a_wait_that_nobody_ends_times_out() {
    let faults = FaultPlan::default();
    let transport = transport(&faults);
    let [a, b] = sessions(&transport, [(0, 0), (1, 0)]);
    let short = SessionOptions {
        deadline: Duration::from_secs(3),
        at: SessionAt { core: 2, session: 0 },
        ..options()
    };
    let c = Session::open(Arc::clone(&transport), short).unwrap();
    let event = a.event("never").unwrap();
    let [from, into] = ["from", "into"].map(|name| a.alloc(name, 4096).unwrap());
    let mut signals = relay(&a, (&from, &into), 1.0, (None, Some(&event))).unwrap();
    let mut waits = relay(&c, (&from, &into), 1.0, (Some(&event), None)).unwrap();
    let mut other = relay(&b, (&from, &into), 1.0, (Some(&event), None)).unwrap();
    // The signaller stalls: its own deadline is 10 s, that of the waiter's fence 1.5 s.
    faults.add(1, 0, FaultKind::Stall);
    let flying = signals.start().unwrap();
    // The stall is for the first session that gets there.
    while !faults.is_spent() {
        std::thread::yield_now();
    }
    let begin = Instant::now();
    let error = waits.run().unwrap_err();
    assert!(matches!(&error, RunError::Wait(WaitError::Failed { .. })), "{error}");
    assert!(
        error.to_string().contains("never") && error.to_string().contains("deadline"),
        "{error}"
    );
    assert!(begin.elapsed() < Duration::from_secs(8));
    // Losing the signaller tells the others at once.
    let run = other.start().unwrap();
    std::thread::spawn({
        let a = a.clone();
        move || a.close()
    });
    let error = run.wait().unwrap_err();
    assert!(error.to_string().contains("peer failed"), "{error}");
    assert!(matches!(
        event.wait(Duration::from_secs(1)),
        Err(WaitError::Peer { .. })
    ));
    drop(flying);
}

/// A batch that fails before its signal signals the failure.
#[test]
fn failure_travels_with_the_fence() {
    let transport = transport(&FaultPlan::default());
    let [a, b] = sessions(&transport, [(0, 0), (1, 0)]);
    let event = a.event("bad index").unwrap();
    let table = a.alloc("table", 4096).unwrap();
    let index = a.alloc("index", 4096).unwrap();
    index.write(0, &1_000_000u32.to_le_bytes()).unwrap();
    let mut graph = Graph::new();
    let rows = graph.placed("rows", DType::F32, [16, 4, 1, 1], &table, 0).unwrap();
    let at = graph.placed("at", DType::I32, [1, 1, 1, 1], &index, 0).unwrap();
    let row = graph.get_rows("row", rows, at).unwrap();
    graph.output(row);
    graph.signal(&event).unwrap();
    let mut fails = a.prepare("fails", graph).unwrap();
    let mut waits = relay(&b, (&table, &index), 1.0, (Some(&event), None)).unwrap();
    let (fails, waits) = (fails.start().unwrap(), waits.start().unwrap());
    let error = waits.wait().unwrap_err();
    assert!(error.to_string().contains("peer failed"), "{error}");
    assert!(fails.wait().is_err());
    assert!(matches!(event.is_reached(), Err(WaitError::Peer { .. })));
}

/// A later batch of a run whose first batch failed runs nothing and signals the failure.
#[test]
fn failure_crosses_batches() {
    let transport = transport(&FaultPlan::default());
    let [_, b] = sessions(&transport, [(1, 1), (1, 0)]);
    let a = Session::open(
        Arc::clone(&transport),
        SessionOptions {
            n_fences: 2,
            batch_ops: 1,
            ..options()
        },
    );
    let a = a.unwrap();
    let event = a.event("second batch").unwrap();
    let [table, index, result] = ["table", "index", "result"].map(|name| a.alloc(name, 4096).unwrap());
    index.write(0, &1_000_000u32.to_le_bytes()).unwrap();
    let mut graph = Graph::new();
    let rows = graph.placed("rows", DType::F32, [16, 4, 1, 1], &table, 0).unwrap();
    let at = graph.placed("at", DType::I32, [1, 1, 1, 1], &index, 0).unwrap();
    let into = graph.placed("into", DType::F32, [16, 1, 1, 1], &result, 0).unwrap();
    let row = graph.get_rows("row", rows, at).unwrap();
    graph.output(row);
    let nb = graph.shape(rows).nb;
    let first = graph.view("first row", rows, [16, 1, 1, 1], nb, 0).unwrap();
    graph.cpy("never", first, into).unwrap();
    graph.signal(&event).unwrap();
    let mut fails = a.prepare("fails", graph).unwrap();
    assert_eq!(fails.n_batches(), 3);
    let mut waits = relay(&b, (&table, &index), 1.0, (Some(&event), None)).unwrap();
    for _ in 0..2 {
        result.write(0, &bytes(&[7.0; 16])).unwrap();
        let (fails, waits) = (fails.start().unwrap(), waits.start().unwrap());
        assert!(waits.wait().unwrap_err().is_from_peer());
        let error = fails.wait().unwrap_err();
        assert!(error.to_string().contains("GET_ROWS"), "{error}");
        assert_eq!(floats(&result, 16), [7.0; 16]);
    }
    // The next run is another one.
    index.write(0, &1u32.to_le_bytes()).unwrap();
    let (fails, waits) = (fails.start().unwrap(), waits.start().unwrap());
    waits.wait().unwrap();
    fails.wait().unwrap();
}

/// After a re-opening of either side, the next run binds again and works.
#[test]
fn events_survive_a_re_opening() {
    let transport = transport(&FaultPlan::default());
    let [a, b] = sessions(&transport, [(0, 0), (1, 0)]);
    let event = a.event("hand-over").unwrap();
    let buffers = [0, 1, 2].map(|idx| a.alloc(&format!("{idx}"), 4096).unwrap());
    let mut one = relay(&a, (&buffers[0], &buffers[1]), 2.0, (None, Some(&event))).unwrap();
    let mut two = relay(&b, (&buffers[1], &buffers[2]), 3.0, (Some(&event), None)).unwrap();
    for round in 0..9 {
        match round % 3 {
            1 => a.reopen().unwrap(),
            2 => b.reopen().unwrap(),
            _ => {}
        }
        buffers[0].write(0, &bytes(&[round as f32; LEN as usize])).unwrap();
        let (one, two) = (one.start().unwrap(), two.start().unwrap());
        one.wait().unwrap();
        two.wait().unwrap();
        assert_eq!(floats(&buffers[2], LEN as usize), [6.0 * round as f32; LEN as usize]);
    }
}

/// A copy into another session's buffer signals when it is there.
#[test]
fn copies_between_sessions() {
    let transport = transport(&FaultPlan::default());
    for places in [[(0, 0), (0, 1)], [(0, 0), (1, 0)]] {
        let [a, b] = sessions(&transport, places);
        let event = a.event("copied").unwrap();
        let source = a.alloc("source", 4096).unwrap();
        let target = b.alloc("target", 4096).unwrap();
        let result = b.alloc("result", 4096).unwrap();
        let mut graph = Graph::new();
        let from = graph.placed("from", DType::F32, NE, &source, 0).unwrap();
        let into = graph.placed("into", DType::F32, NE, &target, 0).unwrap();
        graph.cpy_signal(from, into, &event).unwrap();
        let mut copies = a.prepare("copy", graph).unwrap();
        let mut reads = relay(&b, (&target, &result), 2.0, (Some(&event), None)).unwrap();
        for value in [1.0, 2.0, 3.0] {
            source.write(0, &bytes(&[value; LEN as usize])).unwrap();
            let (copies, reads) = (copies.start().unwrap(), reads.start().unwrap());
            reads.wait().unwrap();
            copies.wait().unwrap();
            assert_eq!(floats(&result, LEN as usize), [2.0 * value; LEN as usize]);
        }
    }
}

/// What a group of two computes, and after losing a member and re-opening computes again, is what one session does.
#[test]
fn a_group_computes_as_one_session() {
    let faults = FaultPlan::default();
    let transport = transport(&faults);
    let chain = |more_cores: Vec<u32>| {
        let at = SessionAt {
            core: 0,
            session: more_cores.len() as u32,
        };
        let options = SessionOptions {
            at,
            more_cores,
            n_fences: 8,
            deadline: Duration::from_secs(10),
            ..options()
        };
        let session = Session::open(Arc::clone(&transport), options).unwrap();
        let mut graph = Graph::new();
        let x = graph.input("x", DType::F32, [64, 7, 1, 1]).unwrap();
        let normed = graph.rms_norm("norm", x, 1e-5).unwrap();
        let soft = graph.soft_max("soft", normed, None, None, 1.5, 0.0).unwrap();
        let sum = graph.add("sum", soft, x).unwrap();
        graph.output(sum);
        let prepared = session.prepare("rows", graph).unwrap();
        (session, prepared, x, sum)
    };
    let run = |prepared: &mut PreparedGraph, x: TensorId, y: TensorId, seed: u32| {
        let data: Vec<f32> = (0..64 * 7u32)
            .map(|idx| ((idx * 37 + seed) % 101) as f32 / 50.0 - 1.0)
            .collect();
        prepared.write(x, 0, &bytes(&data)).unwrap();
        prepared.run().map(|()| prepared.floats(y).unwrap().to_vec())
    };
    let (_single, mut alone, x, y) = chain(vec![]);
    let (session, mut group, gx, gy) = chain(vec![1, 2]);
    for seed in 0..20 {
        if seed == 10 {
            faults.add(11, 2, FaultKind::Die);
            assert!(run(&mut group, gx, gy, seed).unwrap_err().is_lost());
            session.reopen().unwrap();
        }
        let wanted = run(&mut alone, x, y, seed).unwrap();
        assert_eq!(run(&mut group, gx, gy, seed).unwrap(), wanted, "seed {seed}");
    }
}

/// The sum over three sessions is bit for bit what one session gets that adds in rank order, and an addend after them.
#[test]
fn reductions_add_in_rank_order() {
    const ADDEND: u64 = 2048;
    let transport = transport(&FaultPlan::default());
    let ranks = sessions(&transport, [(0, 0), (1, 0), (2, 0)]);
    let parts: Vec<Buffer> = ranks.iter().map(|rank| rank.alloc("part", 4096).unwrap()).collect();
    for with_add in [false, true] {
        let reduction = Reduction::new("sum", &ranks).unwrap();
        let mut graphs: Vec<PreparedGraph> = (0..3)
            .map(|rank| {
                let mut graph = Graph::new();
                let mut place = |part, offset| graph.placed("part", DType::F32, NE, part, offset).unwrap();
                let tensors: Vec<TensorId> = parts.iter().map(|part| place(part, 0)).collect();
                let addend = place(&parts[rank], ADDEND);
                if with_add {
                    graph.all_reduce_add("sum", &reduction, rank, &tensors, addend).unwrap();
                } else {
                    graph.all_reduce("sum", &reduction, rank, &tensors).unwrap();
                }
                ranks[rank].prepare("reduce", graph).unwrap()
            })
            .collect();
        for round in 0..30u32 {
            let value = |rank: u32, idx: u32| ((idx * 7919 + rank * 104_729 + round * 31) % 1000) as f32 * 1.1e-3 + 0.1;
            let row = |rank: u32| -> Vec<f32> { (0..LEN).map(|idx| value(rank, idx)).collect() };
            for (rank, part) in (0..).zip(&parts) {
                part.write(0, &bytes(&row(rank))).unwrap();
                part.write(ADDEND, &bytes(&row(3))).unwrap();
            }
            let runs: Vec<_> = graphs.iter_mut().map(|graph| graph.start().unwrap()).collect();
            runs.into_iter().for_each(|run| run.wait().unwrap());
            let sum = |idx: u32| value(0, idx) + value(1, idx) + value(2, idx);
            let wanted: Vec<f32> = (0..LEN)
                .map(|idx| sum(idx) + if with_add { value(3, idx) } else { 0.0 })
                .collect();
            for part in &parts {
                assert_eq!(floats(part, LEN as usize), wanted);
            }
        }
    }
}

/// A buffer outlives the session that allocated it, and a session outlives a buffer that it saw.
#[test]
fn clones_of_a_buffer_end_on_their_own() {
    let transport = transport(&FaultPlan::default());
    let [a, b] = sessions(&transport, [(0, 0), (0, 1)]);
    let [from, into] = ["from", "into"].map(|name| a.alloc(name, 4096).unwrap());
    let mut graph = relay(&b, (&from, &into), 2.0, (None, None)).unwrap();
    assert!(b.known_bytes() >= 2 * 4096);
    drop(a);
    from.write(0, &bytes(&[4.0; LEN as usize])).unwrap();
    graph.run().unwrap();
    assert_eq!(floats(&into, LEN as usize), [8.0; LEN as usize]);
    drop((from, into));
    graph.run().unwrap();
    let before = b.known_bytes();
    drop(graph);
    assert!(
        b.known_bytes() + 2 * 8192 <= before,
        "{before} bytes before, {} after",
        b.known_bytes()
    );
}

#[test]
fn fences_run_out_with_numbers() {
    let session = open(SessionOptions {
        n_fences: 3,
        ..options()
    });
    let events: Vec<Event> = (0..3).map(|idx| session.event(&format!("{idx}")).unwrap()).collect();
    let error = session.event("one more").unwrap_err();
    let wanted = SubmitError::NoFence {
        needed: 1,
        free: 0,
        longest: 0,
        total: 3,
    };
    assert_eq!(error, wanted);
    drop(events);
    session.event("again").unwrap();
}

#[test]
fn groups_and_extended_weights_are_checked() {
    let sim: Arc<dyn Transport> = Arc::new(SimTransport::default());
    let open = |options: SessionOptions| Session::open(Arc::clone(&sim), options).map(|_| ());
    let more_cores = vec![0];
    let twice = open(SessionOptions {
        more_cores,
        ..options()
    })
    .unwrap_err();
    assert!(
        matches!(
            twice,
            OpenError::Option {
                option: "more_cores",
                ..
            }
        ),
        "{twice}"
    );
    let more_cores = vec![1];
    let bare = open(SessionOptions {
        more_cores,
        n_fences: 1,
        ..options()
    })
    .unwrap_err();
    assert!(matches!(bare, OpenError::Option { option: "n_fences", .. }), "{bare}");
    let more_cores = vec![9];
    let absent = open(SessionOptions {
        more_cores,
        n_fences: 8,
        ..options()
    })
    .unwrap_err();
    assert!(absent.to_string().contains("core 9"), "{absent}");
    let extended = open(SessionOptions {
        extended_weights: true,
        ..options()
    })
    .unwrap_err();
    assert_eq!(
        extended,
        OpenError::NoExtendedMappings {
            at: SessionAt::default(),
            arch: 73
        }
    );
    let old_system: Arc<dyn Transport> = Arc::new(SimTransport::new(SimOptions {
        arch: 81,
        dsp_extended: false,
        ..SimOptions::default()
    }));
    let extended = Session::open(
        old_system,
        SessionOptions {
            extended_weights: true,
            ..options()
        },
    );
    assert_eq!(
        extended.map(drop).unwrap_err(),
        OpenError::NoExtendedOnDsp {
            at: SessionAt::default(),
            arch: 81
        }
    );
}

/// Sizes at every edge are a buffer or an error that names the buffer, its size and the limit.
#[test]
fn sizes_at_the_edges() {
    const BUDGET: u64 = 3_355_443_200;
    for (arch, map_max) in [(73, 1u64 << 31), (75, u64::MAX)] {
        let sim = SimOptions {
            arch,
            window_bytes: BUDGET,
            ..SimOptions::default()
        };
        let session = session_support::open_with(sim, options());
        let limit = map_max.min(session.window_bytes()) / 4096 * 4096;
        assert_eq!(session.window_bytes(), BUDGET - session.pinned_bytes());
        let sizes = [
            0,
            1,
            268_435_456,
            268_435_457,
            556_236_800,
            (1 << 31) - 4096,
            (1 << 31) - 1,
            1 << 31,
            (1 << 31) + 1,
            1 << 32,
            BUDGET,
            BUDGET + 1,
            limit - 4096,
            limit,
            limit + 1,
            u64::MAX - 4096,
            u64::MAX,
        ];
        for bytes in sizes {
            match session.alloc("tensor x", bytes) {
                Ok(buffer) => {
                    assert!(bytes <= limit);
                    assert_eq!(buffer.bytes(), bytes);
                }
                Err(error) => {
                    assert!(bytes > limit);
                    let wanted = MapError::TooLarge {
                        name: "tensor x".into(),
                        bytes,
                        limit,
                        arch,
                    };
                    assert_eq!(error, wanted);
                    let text = error.to_string();
                    assert!(
                        text.contains("tensor x")
                            && text.contains(&bytes.to_string())
                            && text.contains(&limit.to_string())
                    );
                }
            }
        }
    }
}
