//! A session's life without faults: batches and their limits, slots, patches, threads, profiles.

mod session_support;

use hexloom::{Buffer, DType, Graph, MapError, OpenError, RunError, Session, SessionOptions, SubmitError};
use session_support::{Chain, bytes, floats, open, options};

#[test]
fn a_prepared_graph_runs_a_thousand_times() {
    let session = open(options());
    let mut chain = Chain::new(&session, 5);
    for run in 0..1000 {
        chain.check(run as f32);
    }
}

/// Sum of `n` placed tensors, each in its own buffer, together with the buffer of the graph's own.
fn sum_of(session: &Session, buffers: &[Buffer]) -> (usize, f32) {
    let mut graph = Graph::new();
    let ne = [8, 1, 1, 1];
    let placed: Vec<_> = (0..)
        .zip(buffers)
        .map(|(idx, buffer)| {
            buffer.write(0, &bytes(&[idx as f32 + 1.0; 8])).unwrap();
            graph
                .placed(&format!("placed {idx}"), DType::F32, ne, buffer, 0)
                .unwrap()
        })
        .collect();
    let mut sum = graph.cont("start", placed[0]).unwrap();
    for (idx, &other) in placed.iter().enumerate().skip(1) {
        sum = graph.add(&format!("add {idx}"), sum, other).unwrap();
    }
    graph.output(sum);
    let prepared = session.run("sum", graph).unwrap();
    (prepared.n_batches(), prepared.floats(sum).unwrap()[3])
}

#[test]
fn sixteen_buffers_are_one_batch_and_seventeen_two() {
    let session = open(options());
    let buffers: Vec<Buffer> = (0..40)
        .map(|idx| session.alloc(&format!("b{idx}"), 4096).unwrap())
        .collect();
    // One buffer more is the graph's own.
    for (n, n_batches) in [(1, 1), (14, 1), (15, 1), (16, 2), (30, 2), (31, 3), (40, 3)] {
        let total = (n * (n + 1) / 2) as f32;
        assert_eq!(sum_of(&session, &buffers[..n]), (n_batches, total), "{n} buffers");
    }
}

#[test]
fn batches_are_cut_at_their_limit_of_ops() {
    let session = open(SessionOptions {
        batch_ops: 4,
        ..options()
    });
    for (n_ops, n_batches) in [(1, 1), (4, 1), (5, 2), (16, 4)] {
        let mut chain = Chain::new(&session, n_ops);
        assert_eq!(chain.prepared.n_batches(), n_batches);
        chain.check(3.0);
    }
}

#[test]
fn slots_that_are_owned_are_counted() {
    let session = open(SessionOptions {
        batch_ops: 4,
        ..options()
    });
    let mut three = Chain::new(&session, 12);
    let refused = |n_ops, wanted: [usize; 4]| {
        let Err(RunError::Submit(SubmitError::NoSlot {
            needed,
            owned,
            in_flight,
            total,
        })) = Chain::try_new(&session, n_ops).map(|_| ())
        else {
            panic!("not refused");
        };
        assert_eq!([needed, owned, in_flight, total], wanted);
    };
    refused(8, [2, 3, 0, 4]);
    let one = Chain::new(&session, 1);
    refused(1, [1, 4, 0, 4]);
    drop(one);
    // What was refused has given back what it had.
    Chain::new(&session, 4).check(1.0);
    three.check(2.0);
    let flying = three.prepared.start().unwrap();
    drop(flying);
    Chain::new(&session, 4).check(5.0);
}

#[test]
fn a_graph_over_more_slots_than_there_are_says_so() {
    let session = open(SessionOptions {
        batch_ops: 1,
        ..options()
    });
    let error = Chain::try_new(&session, 9).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("needs 9") && error.contains("0 of 4"), "{error}");
}

#[test]
fn a_run_whose_guard_is_leaked_is_waited_for() {
    let session = open(options());
    let mut chain = Chain::new(&session, 3);
    chain
        .prepared
        .write(chain.x, 0, &bytes(&[1.0; Chain::LEN as usize]))
        .unwrap();
    std::mem::forget(chain.prepared.start().unwrap());
    let error = chain.prepared.floats(chain.y).unwrap_err().to_string();
    assert!(error.contains("in flight"), "{error}");
    chain.check(7.0);
    std::mem::forget(chain.prepared.start().unwrap());
    drop(chain);
    Chain::new(&session, 3).check(1.0);
}

#[test]
fn a_view_is_patched_between_runs() {
    let session = open(options());
    let cache = session.alloc("cache", 4 * 64 * 8).unwrap();
    let rows: Vec<f32> = (0..64 * 8).map(|idx| (idx / 8) as f32).collect();
    cache.write(0, &bytes(&rows)).unwrap();
    let mut graph = Graph::new();
    let whole = graph.placed("cache", DType::F32, [8, 64, 1, 1], &cache, 0).unwrap();
    let view = graph.view("view", whole, [8, 4, 1, 1], [4, 32, 2048, 2048], 0).unwrap();
    graph.patchable(view);
    let out = graph.input("out", DType::F32, [8, 64, 1, 1]).unwrap();
    let into = graph.view("into", out, [8, 4, 1, 1], [4, 32, 2048, 2048], 0).unwrap();
    graph.patchable(into);
    graph.cpy("copy", view, into).unwrap();
    let mut prepared = session.prepare("patched", graph).unwrap();
    for n in [4, 64, 1, 17, 63] {
        prepared.write(out, 0, &bytes(&[-1.0; 512])).unwrap();
        prepared.patch(&[(view, [8, n, 1, 1]), (into, [8, n, 1, 1])]).unwrap();
        prepared.run().unwrap();
        let got = prepared.floats(out).unwrap();
        let n = n as usize;
        assert_eq!(got[..8 * n], rows[..8 * n]);
        assert!(got[8 * n..].iter().all(|&value| value == -1.0));
    }
    // Outside the buffer, or at odds with the other operand: refused, and nothing changes.
    assert!(prepared.patch(&[(view, [8, 65, 1, 1]), (into, [8, 65, 1, 1])]).is_err());
    assert!(prepared.patch(&[(view, [8, 5, 1, 1])]).is_err());
    assert!(prepared.patch(&[(whole, [8, 5, 1, 1])]).is_err());
    assert_eq!(prepared.shape(view).ne, [8, 63, 1, 1]);
    prepared.run().unwrap();
}

#[test]
fn threads_share_a_session() {
    let session = open(options());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let session = session.clone();
            scope.spawn(move || {
                let mut chain = Chain::new(&session, 3 + thread);
                for run in 0..200 {
                    chain.check((run * 10 + thread) as f32);
                }
            });
        }
    });
}

/// Runs of two graphs are in flight at once, and the later one is waited for first.
#[test]
fn replies_are_told_apart() {
    let session = open(options());
    let mut first = Chain::new(&session, 2);
    let mut second = Chain::new(&session, 9);
    for run in 0..50 {
        let value = run as f32;
        for chain in [&mut first, &mut second] {
            chain
                .prepared
                .write(chain.x, 0, &bytes(&[value; Chain::LEN as usize]))
                .unwrap();
        }
        let one = first.prepared.start().unwrap();
        let two = second.prepared.start().unwrap();
        two.wait().unwrap();
        one.wait().unwrap();
        first.compare(value);
        second.compare(value);
    }
}

#[test]
fn a_profile_has_a_cost_for_each_op() {
    let session = open(SessionOptions {
        batch_ops: 4,
        ..options()
    });
    let mut chain = Chain::new(&session, 6);
    chain.check(1.0);
    assert!(chain.prepared.costs().is_empty());
    chain.prepared.set_profile(true);
    for _ in 0..2 {
        chain.check(1.0);
        let costs = chain.prepared.costs();
        let names: Vec<&str> = costs.iter().map(|cost| cost.name.as_str()).collect();
        assert_eq!(names, ["step 0", "step 1", "step 2", "step 3", "step 4", "step 5"]);
        assert!(
            costs
                .iter()
                .all(|cost| cost.opcode == Some(hexloom::abi::Opcode::Scale))
        );
        assert!(costs.iter().any(|cost| cost.cycles > 0 && cost.elapsed_ns > 0));
    }
    chain.prepared.set_profile(false);
    chain.check(1.0);
    assert!(chain.prepared.costs().is_empty());
}

#[test]
fn copies_stay_inside_their_buffer() {
    let session = open(options());
    let buffer = session.alloc("small", 100).unwrap();
    buffer.write(96, &[1; 4]).unwrap();
    for (offset, len) in [(97, 4), (101, 0), (u64::MAX, 1), (0, 101)] {
        let wanted = MapError::Range {
            name: "small".to_owned(),
            offset,
            end: offset.saturating_add(len as u64),
            bytes: 100,
        };
        assert_eq!(buffer.write(offset, &vec![0; len]), Err(wanted.clone()));
        assert_eq!(buffer.read(offset, &mut vec![0; len]), Err(wanted));
    }
    let chain = Chain::new(&session, 1);
    let error = chain.prepared.write(chain.x, 397, &[0; 4]).unwrap_err().to_string();
    assert!(
        error.contains("\"x\"") && error.contains("397..401") && error.contains("400"),
        "{error}"
    );
    assert!(chain.prepared.write(chain.x, u64::MAX, &[0; 4]).is_err());
    assert_eq!(floats(&buffer, 25)[24], f32::from_le_bytes([1; 4]));
}

#[test]
fn options_have_limits() {
    let cases = [
        (
            "n_threads",
            SessionOptions {
                n_threads: 11,
                ..options()
            },
        ),
        (
            "n_slots",
            SessionOptions {
                n_slots: 0,
                ..options()
            },
        ),
        (
            "batch_ops",
            SessionOptions {
                batch_ops: 4097,
                ..options()
            },
        ),
        (
            "batch_tensors",
            SessionOptions {
                batch_tensors: 13,
                ..options()
            },
        ),
        (
            "n_fences",
            SessionOptions {
                n_fences: 65_536,
                ..options()
            },
        ),
        (
            "buffer_bytes_max",
            SessionOptions {
                buffer_bytes_max: 1 << 33,
                ..options()
            },
        ),
    ];
    for (wanted, options) in cases {
        let transport = std::sync::Arc::new(hexloom_sim::SimTransport::default());
        match Session::open(transport, options) {
            Err(OpenError::Option { option, .. }) => assert_eq!(option, wanted),
            other => panic!("{wanted}: {other:?}"),
        }
    }
}

#[test]
fn a_closed_session_refuses_work_and_opens_again() {
    let session = open(options());
    let mut chain = Chain::new(&session, 2);
    chain.check(1.0);
    session.close();
    assert_eq!(chain.run(2.0), Err(RunError::Submit(SubmitError::Closed)));
    // The last results stay readable.
    chain.compare(1.0);
    session.reopen().unwrap();
    chain.check(3.0);
    // An open session that is opened again starts afresh, and graphs follow.
    session.reopen().unwrap();
    chain.check(4.0);
}

/// A window that holds two of three buffers: batches still run, one after the other, by eviction.
#[test]
fn mappings_are_evicted_when_the_window_is_full() {
    let window_bytes = 1 << 20;
    let session = open(SessionOptions {
        window_bytes,
        ..options()
    });
    let buffers: Vec<Buffer> = (0..6)
        .map(|idx| session.alloc(&format!("b{idx}"), 200 << 10).unwrap())
        .collect();
    for round in 0..3 {
        for (idx, buffer) in buffers.iter().enumerate() {
            let value = (round * 10 + idx) as f32;
            buffer.write(0, &bytes(&[value; 8])).unwrap();
            let mut graph = Graph::new();
            let x = graph.placed("x", DType::F32, [8, 1, 1, 1], buffer, 0).unwrap();
            let y = graph.scale("y", x, 2.0, 0.0).unwrap();
            graph.output(y);
            let prepared = session.run("evict", graph).unwrap();
            assert_eq!(prepared.floats(y).unwrap(), [2.0 * value; 8]);
        }
    }
    let error = session.alloc("large", 2 << 20).unwrap_err();
    assert!(matches!(&error, MapError::TooLarge { bytes: 2_097_152, .. }), "{error}");
    let [left, right] = ["left", "right"].map(|name| session.alloc(name, 600 << 10).unwrap());
    let mut graph = Graph::new();
    let x = graph.placed("x", DType::F32, [8, 1, 1, 1], &left, 0).unwrap();
    let y = graph.placed("y", DType::F32, [8, 1, 1, 1], &right, 0).unwrap();
    graph.add("sum", x, y).unwrap();
    let error = session.prepare("too large", graph).map(|_| ()).unwrap_err();
    assert!(
        matches!(
            &error,
            SubmitError::OpTooLarge {
                what: "mapped bytes",
                ..
            }
        ),
        "{error}"
    );
}
