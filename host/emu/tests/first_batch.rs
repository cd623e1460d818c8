//! A first batch on the emulated Hexagon; prints how long it took from the start of the process.

use std::sync::Arc;
use std::time::Instant;

use hexloom::{DType, Graph, OpenError, Session, SessionOptions};
use hexloom_emu::{EmuOptions, EmuTransport};

#[test]
fn adds_two_tensors() {
    let options = match EmuOptions::find() {
        Ok(options) => options,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let start = Instant::now();
    let session = Session::open(Arc::new(EmuTransport::new(options)), SessionOptions::default()).unwrap();
    let mut graph = Graph::new();
    let a = graph.input("a", DType::F32, [64, 3, 1, 1]).unwrap();
    let b = graph.input("b", DType::F32, [64, 3, 1, 1]).unwrap();
    let sum = graph.add("sum", a, b).unwrap();
    graph.output(sum);
    let mut prepared = session.prepare("first batch", graph).unwrap();
    let values: Vec<u8> = (0..192).flat_map(|i| (i as f32).to_le_bytes()).collect();
    prepared.write(a, 0, &values).unwrap();
    prepared.write(b, 0, &values).unwrap();
    prepared.run().unwrap();
    eprintln!("first batch after {:?}", start.elapsed());
    let expected: Vec<f32> = (0..192).map(|i| 2.0 * i as f32).collect();
    assert_eq!(prepared.floats(sum).unwrap(), expected);
}

/// The image has no plain reference kernels, and whoever asks for them is told so; the next session is served.
#[test]
fn the_references_are_refused_by_name() {
    let options = match EmuOptions::find() {
        Ok(options) => options,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let transport = Arc::new(EmuTransport::new(options));
    let exact = SessionOptions {
        reference: true,
        ..SessionOptions::default()
    };
    let error = Session::open(transport.clone(), exact).unwrap_err();
    assert!(matches!(error, OpenError::NoReference { .. }), "{error}");
    Session::open(transport, SessionOptions::default()).unwrap();
}
