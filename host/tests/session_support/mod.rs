//! What the session tests share: sessions on the simulator and one small graph.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::Arc;
use std::time::Duration;

use hexloom::{Buffer, DType, Graph, PreparedGraph, RunError, Session, SessionOptions, TensorId};
use hexloom_sim::{FaultPlan, SimOptions, SimTransport};

/// Options with small slots, so that many sessions are cheap.
pub(crate) fn options() -> SessionOptions {
    SessionOptions {
        n_threads: 2,
        n_slots: 4,
        batch_ops: 64,
        batch_tensors: 256,
        n_fences: 0,
        deadline: Duration::from_secs(20),
        ..SessionOptions::default()
    }
}

pub(crate) fn open(options: SessionOptions) -> Session {
    open_with(SimOptions::default(), options)
}

pub(crate) fn open_with(sim: SimOptions, options: SessionOptions) -> Session {
    let sim = SimOptions {
        scratch_bytes: 256 << 10,
        ..sim
    };
    Session::open(Arc::new(SimTransport::new(sim)), options).expect("the simulator opens")
}

pub(crate) fn open_faulty(faults: &FaultPlan, options: SessionOptions) -> Session {
    let faults = faults.clone();
    open_with(
        SimOptions {
            faults,
            ..SimOptions::default()
        },
        options,
    )
}

/// `2 * (x + 1)` in as many ops as asked for; each doubles or adds.
pub(crate) struct Chain {
    pub(crate) x: TensorId,
    pub(crate) y: TensorId,
    pub(crate) prepared: PreparedGraph,
    n_ops: usize,
}

impl Chain {
    pub(crate) const LEN: u32 = 100;

    pub(crate) fn new(session: &Session, n_ops: usize) -> Self {
        Self::try_new(session, n_ops).expect("the graph is prepared")
    }

    pub(crate) fn try_new(session: &Session, n_ops: usize) -> Result<Self, RunError> {
        let mut graph = Graph::new();
        let x = graph.input("x", DType::F32, [Self::LEN, 1, 1, 1]).expect("x fits");
        let mut y = x;
        for idx in 0..n_ops {
            let (s, b) = Self::step(idx);
            y = graph
                .scale(&format!("step {idx}"), y, s, b)
                .expect("SCALE is supported");
        }
        graph.output(y);
        let prepared = session.prepare("chain", graph).map_err(RunError::Submit)?;
        Ok(Self { x, y, prepared, n_ops })
    }

    /// Runs on a value and compares.
    pub(crate) fn check(&mut self, value: f32) {
        self.run(value).expect("the run ends well");
        self.compare(value);
    }

    pub(crate) fn run(&mut self, value: f32) -> Result<(), RunError> {
        self.prepared.write(self.x, 0, &bytes(&[value; Self::LEN as usize]))?;
        self.prepared.run()
    }

    pub(crate) fn compare(&self, value: f32) {
        let wanted = (0..self.n_ops).fold(value, |value, idx| {
            let (s, b) = Self::step(idx);
            value * s + b
        });
        let got = self.prepared.floats(self.y).expect("dense F32");
        assert_eq!(got, [wanted; Self::LEN as usize]);
    }

    fn step(idx: usize) -> (f32, f32) {
        if idx.is_multiple_of(2) { (1.0, 1.0) } else { (0.5, 0.0) }
    }
}

pub(crate) fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(crate) fn floats(buffer: &Buffer, n: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * n];
    buffer.read(0, &mut bytes).expect("inside the buffer");
    let words = bytes.chunks_exact(4);
    words
        .map(|word| f32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect()
}
