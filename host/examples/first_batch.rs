//! A first batch: two tensors are added on the DSP of the simulator.
//!
//! `cargo run -p hexloom --example first_batch` prints `[11.0, 22.0, 33.0, 44.0]`. From here, follow the batch:
//! `host/src/prepared/mod.rs` encodes and sends it, `dsp/src/interp/mod.rs` takes it apart, `dsp/src/kernels/binary.rs`
//! computes it.

use std::sync::Arc;

use hexloom::{DType, Graph, Session, SessionOptions};
use hexloom_sim::SimTransport;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A transport is a way to a DSP; a session is one open connection over it.
    let session = Session::open(Arc::new(SimTransport::default()), SessionOptions::default())?;

    // A graph says what to compute. Dimensions are ggml's: the first is the innermost.
    let mut graph = Graph::new();
    let a = graph.input("a", DType::F32, [4, 1, 1, 1])?;
    let b = graph.input("b", DType::F32, [4, 1, 1, 1])?;
    let sum = graph.add("sum", a, b)?;
    graph.output(sum);

    // Preparing plans the memory and encodes the batch once; each run sends the same bytes again.
    let mut prepared = session.prepare("first batch", graph)?;
    prepared.write(a, 0, &bytes(&[1.0, 2.0, 3.0, 4.0]))?;
    prepared.write(b, 0, &bytes(&[10.0, 20.0, 30.0, 40.0]))?;
    prepared.run()?;
    println!("{:?}", prepared.floats(sum)?);
    Ok(())
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
