//! The back end behind ggml's own functions: order of copies and graphs, events, two devices, a failing graph, many tensors.
//!
//! `HEXLOOM_GGML` names `libggml-base.so`; `cargo xtask peer-test` runs this with the one of Debian's packages, by their own
//! loader, and one at a time: the tests share the process's two devices.

mod ggml_support;

use ggml_support::{Api, Context, Stream};

/// A graph that failed, as ggml numbers it.
const FAILED: i32 = -1;
const OK: i32 = 0;

#[test]
#[ignore = "needs ggml; `cargo xtask peer-test` runs it"]
fn copies_and_graphs_keep_their_order() {
    let api = Api::load();
    let stream = Stream::new(&api, 0);
    let context = Context::new(&api);
    let (a, b) = (context.f32([1 << 16, 4]), context.f32([1 << 16, 4]));
    let sum = context.add(a, b);
    let graph = context.graph(sum);
    let buffer = context.alloc(&stream);
    let n = 4 << 16;
    stream.set(a, &vec![1.0; n]);
    stream.set(b, &vec![10.0; n]);
    let (mut first, mut second) = (vec![0.0; n], vec![0.0; n]);
    assert_eq!(stream.compute(graph), OK);
    stream.get_later(sum, &mut first);
    // Behind the graph and the copy out, whose number it must not change.
    stream.set(a, &vec![2.0; n]);
    assert_eq!(stream.compute(graph), OK);
    stream.get_later(sum, &mut second);
    stream.synchronize();
    assert!(first.iter().all(|&x| x == 11.0), "{}", first[0]);
    assert!(second.iter().all(|&x| x == 12.0), "{}", second[0]);
    buffer.free();
}

#[test]
#[ignore = "needs ggml; `cargo xtask peer-test` runs it"]
fn pieces_at_a_distance() {
    let api = Api::load();
    let stream = Stream::new(&api, 0);
    let context = Context::new(&api);
    let a = context.f32([8, 4]);
    let buffer = context.alloc(&stream);
    stream.set(a, &[0.0; 32]);
    // The third and fourth element of each row, from rows of three.
    let rows: Vec<f32> = (0..12).map(|idx| idx as f32).collect();
    stream.set_2d(a, &rows, 2, 2, 3);
    let mut all = [0.0; 32];
    stream.get_2d(a, &mut all, 0, 8, 8);
    stream.synchronize();
    for row in 0..4 {
        let wanted = [0.0, 0.0, rows[3 * row], rows[3 * row + 1], 0.0, 0.0, 0.0, 0.0];
        assert_eq!(all[8 * row..][..8], wanted, "row {row}");
    }
    buffer.free();
}

#[test]
#[ignore = "needs ggml; `cargo xtask peer-test` runs it"]
fn one_device_goes_on_where_another_has_ended() {
    let api = Api::load();
    let streams = [Stream::new(&api, 0), Stream::new(&api, 1)];
    let contexts = [Context::new(&api), Context::new(&api)];
    let nodes = contexts.each_ref().map(|context| {
        let x = context.f32([4096, 64]);
        (x, context.add(x, x))
    });
    let graphs = [contexts[0].graph(nodes[0].1), contexts[1].graph(nodes[1].1)];
    let buffers = [contexts[0].alloc(&streams[0]), contexts[1].alloc(&streams[1])];
    let event = api.event(0);
    // Nothing was recorded: nothing is waited for.
    event.wait(&streams[1]);
    let mut out = vec![0.0; 4096 * 64];
    for round in 1..=3 {
        let x = round as f32;
        streams[0].set(nodes[0].0, &vec![x; out.len()]);
        assert_eq!(streams[0].compute(graphs[0]), OK);
        event.record(&streams[0]);
        event.wait(&streams[1]);
        streams[0].copy(nodes[0].1, &streams[1], nodes[1].0);
        assert_eq!(streams[1].compute(graphs[1]), OK);
        // Behind the copy.
        streams[0].set(nodes[0].1, &vec![-1.0; out.len()]);
        streams[1].get_later(nodes[1].1, &mut out);
        streams[1].synchronize();
        assert!(out.iter().all(|&found| found == 4.0 * x), "{} in round {round}", out[0]);
    }
    event.synchronize();
    event.free();
    buffers.into_iter().for_each(|buffer| buffer.free());
}

#[test]
#[ignore = "needs ggml; `cargo xtask peer-test` runs it"]
fn a_failed_graph_is_told_and_leaves_no_numbers() {
    let api = Api::load();
    let stream = Stream::new(&api, 1);
    let context = Context::new(&api);
    let (table, row) = (context.f32([32, 4]), context.i32(1));
    let picked = context.get_rows(table, row);
    let graph = context.graph(picked);
    let buffer = context.alloc(&stream);
    stream.set(table, &[5.0; 128]);
    stream.set_i32(row, &[4]);
    let mut out = [0.0; 32];
    // The DSP finds that there is no row 4.
    assert_eq!(stream.compute(graph), OK);
    stream.get_later(picked, &mut out);
    stream.synchronize();
    assert!(out.iter().all(|x| x.is_nan()), "{out:?}");
    stream.get(picked, &mut out);
    assert!(out.iter().all(|x| x.is_nan()), "{out:?}");
    assert_eq!(stream.compute(graph), FAILED, "the next graph tells it");
    stream.set_i32(row, &[3]);
    assert_eq!(stream.compute(graph), OK);
    stream.get(picked, &mut out);
    assert_eq!(out, [5.0; 32]);
    buffer.free();
}

#[test]
#[ignore = "needs ggml; `cargo xtask peer-test` runs it"]
fn many_tensors_get_few_buffers() {
    let api = Api::load();
    let stream = Stream::new(&api, 0);
    let (free, _) = api.memory(0);
    let context = Context::new(&api);
    // 400 MiB each, of which a buffer takes two; nobody writes them, so they take no memory of this machine.
    let large: Vec<_> = (0..3)
        .map(|layer| context.named(&format!("blk.{layer}.w"), [100 << 10, 1 << 10]))
        .collect();
    let small = context.named("blk.0.norm", [64, 1]);
    let view = context.view(large[2], 32);
    let bytes = context.bytes(&stream);
    let buffer = context.alloc(&stream);
    assert!(buffer.is_several());
    assert_eq!(bytes, 3 * (400 << 20) + 256);
    assert_eq!(free - api.memory(0).0, bytes);
    for tensor in large.iter().chain([&small, &view]) {
        assert!(!tensor.address().is_null());
    }
    assert_eq!(view.address(), large[2].address());
    let mut places: Vec<usize> = large
        .iter()
        .chain([&small])
        .map(|tensor| tensor.address() as usize)
        .collect();
    assert!(places.iter().all(|place| place % 128 == 0));
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 4);
    buffer.free();
    assert_eq!(api.memory(0).0, free);
}
