//! Weights by DMA through a whole session: the same results, and what becomes of transfers in flight when a batch fails,
//! writes what was fetched ahead, or when the engine stops.

mod session_support;

use std::time::{Duration, Instant};

use hexloom::{Buffer, DType, Graph, PreparedGraph, RunError, Session, SessionOptions, TensorId, WaitError};
use hexloom_abi::Status;
use hexloom_abi::tile::TileLayout;
use hexloom_sim::{DmaOptions, DoneCount, FaultKind, FaultPlan, SimOptions};
use session_support::{bytes, open_with, options};

const K: u32 = 64;
/// Groups of 32 rows in a weight of K rows.
const GROUPS: u64 = 2;

/// A simulator with an engine, and the count of what it has done.
fn streamed(n_threads: u32, dma: DmaOptions, faults: &FaultPlan) -> (Session, DoneCount) {
    let done = dma.done.clone();
    let sim = SimOptions {
        junk_scratch: true,
        dma: Some(dma),
        faults: faults.clone(),
        ..SimOptions::default()
    };
    let options = SessionOptions { n_threads, ..options() };
    (open_with(sim, options), done)
}

fn direct() -> Session {
    open_with(SimOptions::default(), options())
}

/// Weights of K x K in one buffer.
struct Weights {
    buffer: Buffer,
    bytes_each: u64,
}

impl Weights {
    fn new(session: &Session, n: u64) -> Self {
        let ne = [K, K, 1, 1];
        let bytes_each = TileLayout::new(DType::Q4_0, K)
            .and_then(|tile| tile.tensor_bytes(ne))
            .unwrap();
        let buffer = session.alloc("weights", n * bytes_each).unwrap();
        // Any two of these bytes are a scale between 0.03 and 0.13.
        let data: Vec<u8> = (0..n * bytes_each)
            .map(|idx| 0x28 + (idx * idx / 7 % 8) as u8)
            .collect();
        buffer.write(0, &data).unwrap();
        Self { buffer, bytes_each }
    }

    fn add(&self, graph: &mut Graph, idx: u64) -> TensorId {
        let offset = idx * self.bytes_each;
        graph
            .weight(&format!("w{idx}"), DType::Q4_0, [K, K, 1, 1], &self.buffer, offset)
            .unwrap()
    }
}

/// `n` products one after the other, a scaling before each, so that the numbers stay small.
struct Products {
    x: TensorId,
    y: TensorId,
    prepared: PreparedGraph,
}

impl Products {
    fn new(session: &Session, n: u64, m: u32) -> Self {
        let weights = Weights::new(session, n);
        let mut graph = Graph::new();
        let x = graph.input("x", DType::F32, [K, m, 1, 1]).unwrap();
        let mut y = x;
        for idx in 0..n {
            let weight = weights.add(&mut graph, idx);
            y = graph.scale(&format!("scale {idx}"), y, 0.1, 0.01).unwrap();
            y = graph.mul_mat(&format!("product {idx}"), weight, y).unwrap();
        }
        graph.output(y);
        let prepared = session.prepare("products", graph).unwrap();
        Self { x, y, prepared }
    }

    fn run(&mut self, value: f32) -> Result<Vec<f32>, RunError> {
        let n = self.prepared.shape(self.x).elems();
        let x: Vec<f32> = (0..n).map(|idx| value + idx as f32 / 100.0).collect();
        self.prepared.write(self.x, 0, &bytes(&x))?;
        self.prepared.run()?;
        Ok(self.prepared.floats(self.y).unwrap().to_vec())
    }
}

fn status(result: Result<Vec<f32>, RunError>) -> Status {
    match result {
        Err(RunError::Wait(WaitError::Failed { status, .. })) => status,
        other => panic!("no failed batch: {other:?}"),
    }
}

#[test]
fn products_are_the_same_and_every_group_is_fetched_once() {
    for m in [1, 7] {
        let mut wanted = Products::new(&direct(), 6, m);
        for n_threads in 1..=4 {
            let (session, done) = streamed(n_threads, DmaOptions::harsh(), &FaultPlan::default());
            let mut products = Products::new(&session, 6, m);
            for run in 1..=20u64 {
                let value = run as f32 / 8.0;
                assert_eq!(products.run(value).unwrap(), wanted.run(value).unwrap());
                // Two threads that share a group's rows each fetch it.
                assert!(
                    done.get() >= run * 6 * GROUPS && (m > 4 || done.get() == run * 6 * GROUPS),
                    "{}",
                    done.get()
                );
            }
        }
    }
}

#[test]
fn a_stalled_engine_ends_the_batch_at_the_deadline_and_the_session_opens_again() {
    let faults = FaultPlan::default();
    let dma = DmaOptions {
        deadline: Duration::from_millis(100),
        ..DmaOptions::default()
    };
    let (session, _) = streamed(2, dma, &faults);
    let mut products = Products::new(&session, 4, 1);
    let wanted = products.run(1.0).unwrap();
    // Before a scaling, so that what the next product waits for may be in flight or not begun.
    faults.add(2, 4, FaultKind::DmaStall);
    let start = Instant::now();
    assert_eq!(status(products.run(1.0)), Status::Timeout);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(products.run(1.0).unwrap_err().is_lost());
    session.reopen().unwrap();
    assert_eq!(products.run(1.0).unwrap(), wanted);
}

/// Product, row of a table at an index from the host, product: the second weight is on its way when the index is bad.
#[test]
fn a_failed_batch_leaves_nothing_in_flight() {
    let (session, done) = streamed(2, DmaOptions::harsh(), &FaultPlan::default());
    let weights = Weights::new(&session, 2);
    let mut graph = Graph::new();
    let x = graph.input("x", DType::F32, [K, 3, 1, 1]).unwrap();
    let index = graph.input("index", DType::I32, [1, 1, 1, 1]).unwrap();
    let (first, second) = (weights.add(&mut graph, 0), weights.add(&mut graph, 1));
    let table = graph.mul_mat("first", first, x).unwrap();
    let row = graph.get_rows("row", table, index).unwrap();
    let y = graph.mul_mat("second", second, row).unwrap();
    graph.output(y);
    let prepared = session.prepare("rows", graph).unwrap();
    prepared.write(x, 0, &bytes(&[0.5; 3 * K as usize])).unwrap();
    let mut prepared = prepared;
    let mut run = |at: i32| {
        prepared.write(index, 0, &at.to_le_bytes())?;
        prepared.run()?;
        Ok(prepared.floats(y).unwrap().to_vec())
    };
    let wanted = run(1).unwrap();
    for _ in 0..20 {
        let before = done.get();
        assert_eq!(status(run(3)), Status::IndexOutOfRange);
        let after = done.get();
        assert!(
            after > before + GROUPS,
            "the second weight was fetched ahead: {before}, {after}"
        );
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(done.get(), after, "something was still in flight when the reply came");
        assert_eq!(run(1).unwrap(), wanted);
    }
}

/// A copy between two products overwrites the second's weight.
#[test]
fn a_weight_that_the_batch_writes_is_not_fetched_ahead() {
    let run = |session: &Session| {
        let weights = Weights::new(session, 2);
        let n = (weights.bytes_each / 4) as u32;
        let other = session.alloc("other", weights.bytes_each).unwrap();
        other.write(0, &vec![0x29; weights.bytes_each as usize]).unwrap();
        let mut graph = Graph::new();
        let x = graph.input("x", DType::F32, [K, 1, 1, 1]).unwrap();
        let (first, second) = (weights.add(&mut graph, 0), weights.add(&mut graph, 1));
        let from = graph.placed("other", DType::F32, [n, 1, 1, 1], &other, 0).unwrap();
        let into = graph
            .placed("into", DType::F32, [n, 1, 1, 1], &weights.buffer, weights.bytes_each)
            .unwrap();
        let y = graph.mul_mat("first", first, x).unwrap();
        graph.cpy("overwrite", from, into).unwrap();
        let z = graph.mul_mat("second", second, y).unwrap();
        graph.output(z);
        let mut prepared = session.prepare("overwrites", graph).unwrap();
        prepared.write(x, 0, &bytes(&[0.5; K as usize])).unwrap();
        prepared.run().unwrap();
        prepared.floats(z).unwrap().to_vec()
    };
    let (session, _) = streamed(2, DmaOptions::default(), &FaultPlan::default());
    assert_eq!(run(&session), run(&direct()));
}

/// The engine's own checks would stop a session that used a buffer too early; none does, with little scratch memory, one
/// thread or several, over many runs and a re-opening.
#[test]
fn streams_survive_a_session() {
    let (session, _) = streamed(3, DmaOptions::harsh(), &FaultPlan::default());
    let mut products = Products::new(&session, 3, 5);
    let wanted = products.run(2.0).unwrap();
    for _ in 0..3 {
        session.reopen().unwrap();
        assert_eq!(products.run(2.0).unwrap(), wanted);
    }
    session.close();
}
