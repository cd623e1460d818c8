//! Whole layers: what fusion, memory planning and results written in place make of a graph changes no result.

use std::sync::Arc;

use hexloom::abi::Opcode;
use hexloom::graph::{AttentionParams, RopeParams};
use hexloom::{Buffer, DType, Graph, GraphError, PreparedGraph, Session, SessionOptions, TensorId};
use hexloom_conformance::Fill;
use hexloom_sim::{SimOptions, SimTransport};

const EMBD: u32 = 64;
const HEAD: u32 = 16;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const FF: u32 = 96;
const CTX: u32 = 24;
const TOKENS: u32 = 5;

/// A layer in the making: constants come from a buffer, one after the other.
struct Layer<'a> {
    graph: Graph,
    constants: &'a Buffer,
    used: u64,
    /// Every intermediate result is an output, so that nothing is fused and nothing shares memory.
    exposed: bool,
}

impl Layer<'_> {
    fn constant(&mut self, name: &str, dtype: DType, ne: [u32; 4]) -> Result<TensorId, GraphError> {
        let bytes = Fill::Uniform(0.3).bytes(dtype, ne, self.used);
        self.constants.write(self.used, &bytes).expect("the buffer is large");
        let id = self.graph.weight(name, dtype, ne, self.constants, self.used)?;
        self.used += (bytes.len() as u64).next_multiple_of(128);
        Ok(id)
    }

    fn matrix(&mut self, name: &str, from: u32, to: u32) -> Result<TensorId, GraphError> {
        self.constant(name, DType::F16, [from, to, 1, 1])
    }

    fn keep(&mut self, id: TensorId) -> TensorId {
        if self.exposed {
            self.graph.output(id);
        }
        id
    }

    fn norm(&mut self, name: &str, x: TensorId) -> Result<TensorId, GraphError> {
        let weight = self.constant(name, DType::F32, [EMBD, 1, 1, 1])?;
        let normed = self.graph.rms_norm(name, x, 1e-5)?;
        self.keep(normed);
        let scaled = self.graph.mul(name, normed, weight)?;
        Ok(self.keep(scaled))
    }

    fn product(&mut self, name: &str, weight: TensorId, x: TensorId) -> Result<TensorId, GraphError> {
        let product = self.graph.mul_mat(name, weight, x)?;
        Ok(self.keep(product))
    }

    fn rope(&mut self, name: &str, x: TensorId, heads: u32, positions: TensorId) -> Result<TensorId, GraphError> {
        let x = self.graph.reshape(name, x, [HEAD, heads, TOKENS, 1])?;
        let rope = RopeParams {
            n_dims: HEAD,
            ..RopeParams::default()
        };
        let turned = self.graph.rope(name, x, positions, None, &rope)?;
        Ok(self.keep(turned))
    }

    fn store(&mut self, name: &str, cache: &Buffer, rows: TensorId, at: TensorId) -> Result<TensorId, GraphError> {
        let width = HEAD * KV_HEADS;
        let rows = self.graph.reshape(name, rows, [width, TOKENS, 1, 1])?;
        let whole = self.graph.placed(name, DType::F16, [width, CTX, 1, 1], cache, 0)?;
        self.graph.set_rows(name, whole, rows, at)?;
        let (row, head) = (width * 2, HEAD * 2);
        self.graph
            .view(name, whole, [HEAD, CTX, KV_HEADS, 1], [2, row, head, row * CTX], 0)
    }
}

/// Attention and feed-forward of one layer; gives the graph's inputs and its result.
fn layer(layer: &mut Layer<'_>, caches: [&Buffer; 2]) -> Result<[TensorId; 4], GraphError> {
    let x = layer.graph.input("x", DType::F32, [EMBD, TOKENS, 1, 1])?;
    let positions = layer.graph.input("positions", DType::I32, [TOKENS, 1, 1, 1])?;
    let mask = layer.graph.input("mask", DType::F16, [CTX, TOKENS, 1, 1])?;
    let normed = layer.norm("attention norm", x)?;
    let weights = [("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)];
    let mut projected = Vec::new();
    for (name, heads) in weights {
        let weight = layer.matrix(name, EMBD, HEAD * heads)?;
        projected.push(layer.product(name, weight, normed)?);
    }
    let q = layer.rope("q rope", projected[0], HEADS, positions)?;
    let k = layer.rope("k rope", projected[1], KV_HEADS, positions)?;
    let k = layer.store("k cache", caches[0], k, positions)?;
    let v = layer.store("v cache", caches[1], projected[2], positions)?;
    let row = HEAD * 4;
    let strides = [4, row * HEADS, row, row * HEADS * TOKENS];
    let q = layer.graph.view("q heads", q, [HEAD, TOKENS, HEADS, 1], strides, 0)?;
    let attention = AttentionParams {
        scale: 0.25,
        max_bias: 0.0,
        softcap: 0.0,
    };
    let mixed = layer
        .graph
        .flash_attn("attention", q, k, v, Some(mask), None, &attention)?;
    layer.keep(mixed);
    let mixed = layer.graph.reshape("mixed", mixed, [EMBD, TOKENS, 1, 1])?;
    let weight = layer.matrix("o", EMBD, EMBD)?;
    let mixed = layer.product("o", weight, mixed)?;
    let x2 = layer.graph.add("attention out", mixed, x)?;
    layer.keep(x2);
    let normed = layer.norm("ffn norm", x2)?;
    let weights = [layer.matrix("gate", EMBD, FF)?, layer.matrix("up", EMBD, FF)?];
    let gate = layer.product("gate", weights[0], normed)?;
    let up = layer.product("up", weights[1], normed)?;
    let hidden = layer.graph.gated("swiglu", Opcode::Swiglu, gate, up)?;
    layer.keep(hidden);
    let weight = layer.matrix("down", FF, EMBD)?;
    let down = layer.product("down", weight, hidden)?;
    let mut y = layer.graph.add("ffn out", down, x2)?;
    layer.keep(y);
    // Element-wise ops in a row, each of which may write over the one before.
    for (idx, opcode) in [Opcode::Silu, Opcode::GeluErf, Opcode::Gelu].into_iter().enumerate() {
        y = layer.graph.unary(&format!("activation {idx}"), opcode, y)?;
        layer.keep(y);
    }
    layer.graph.output(y);
    Ok([x, positions, mask, y])
}

/// Prepares and runs the layer; gives the result and what it was run as.
fn run(session: &Session, exposed: bool) -> (Vec<f32>, PreparedGraph) {
    let constants = session.alloc("constants", 1 << 18).expect("memory");
    let caches = ["k", "v"].map(|name| {
        session
            .alloc(name, 2 * u64::from(HEAD * KV_HEADS * CTX))
            .expect("memory")
    });
    let mut builder = Layer {
        graph: Graph::new(),
        constants: &constants,
        used: 0,
        exposed,
    };
    let [x, positions, mask, y] = layer(&mut builder, [&caches[0], &caches[1]]).expect("every op is supported");
    let mut prepared = session.prepare("layer", builder.graph).expect("prepared");
    let fill = |fill: Fill, dtype, ne| fill.bytes(dtype, ne, 1);
    let values = fill(Fill::Uniform(1.0), DType::F32, [EMBD, TOKENS, 1, 1]);
    prepared.write(x, 0, &values).expect("x");
    let numbers = fill(Fill::Counting, DType::I32, [TOKENS, 1, 1, 1]);
    prepared.write(positions, 0, &numbers).expect("positions");
    let visible = (0..TOKENS).flat_map(|row| (0..CTX).map(move |col| if col <= row { 0.0 } else { f64::NEG_INFINITY }));
    let visible = fill(Fill::Values(visible.collect()), DType::F16, [CTX, TOKENS, 1, 1]);
    prepared.write(mask, 0, &visible).expect("mask");
    // The second run sees the inputs as the first left them.
    prepared.run().expect("runs");
    let first = prepared.floats(y).expect("y").to_vec();
    prepared.run().expect("runs again");
    assert_eq!(prepared.floats(y).expect("y"), first);
    (first, prepared)
}

fn open(n_threads: u32, reference: bool) -> Session {
    let sim = SimOptions {
        n_threads,
        junk_scratch: true,
        ..SimOptions::default()
    };
    let options = SessionOptions {
        reference,
        ..SessionOptions::default()
    };
    Session::open(Arc::new(SimTransport::new(sim)), options).expect("the simulator opens")
}

fn nmse(got: &[f32], wanted: &[f32]) -> f64 {
    let square = |value: f32| f64::from(value) * f64::from(value);
    let error: f64 = got.iter().zip(wanted).map(|(got, wanted)| square(got - wanted)).sum();
    error / wanted.iter().copied().map(square).sum::<f64>()
}

#[test]
fn a_layer_is_the_same_fused_or_not_planned_or_not() {
    let mut results = Vec::new();
    for (n_threads, reference) in [(1, true), (1, false), (3, false)] {
        let session = open(n_threads, reference);
        let (exposed, apart) = run(&session, true);
        let (tight, together) = run(&session, false);
        assert!(together.n_ops() < apart.n_ops(), "nothing was fused");
        assert!(together.compute_bytes() < apart.compute_bytes(), "no memory is shared");
        let error = nmse(&tight, &exposed);
        assert!(error < 1e-12, "fusion and planning change the result by {error:e}");
        results.push(tight);
    }
    assert!(results[0].iter().all(|value| value.is_finite()));
    let error = nmse(&results[1], &results[0]);
    assert!(error < 1e-6, "vector kernels are {error:e} from the reference");
    assert_eq!(results[1], results[2], "threads change the result");
}
