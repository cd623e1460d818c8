//! The real model over several sessions: by layers and by rows the logits of one session bit for bit; by segments those
//! of one session that adds the same segments. Skipped, loudly, without the model.

mod support;

use std::sync::Arc;

use hexloom::plan::buffers::{BufferLimits, TensorNeed};
use hexloom::plan::residency::stream;
use hexloom::session::TensorUse;
use hexloom::transport::SessionAt;
use hexloom::{Session, SessionOptions, Transport};
use hexloom_models::ModelError;
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::{Context, Model, Split};
use hexloom_sim::{SimOptions, SimTransport};

/// "The capital of France is" and what one might say then; the last piece is several tokens.
const PIECES: [&[u32]; 4] = [&[504, 3575, 282, 4649, 314], &[7042], &[30], &[1116, 314, 253]];

/// Bytes of a small window that caches and graphs take.
const BESIDE: u64 = 6 << 20;

fn sessions(places: &[(u32, u32)]) -> Vec<Session> {
    let transport: Arc<dyn Transport> = Arc::new(SimTransport::default());
    let open = |&(core, session): &(u32, u32)| {
        let options = SessionOptions {
            at: SessionAt { core, session },
            ..SessionOptions::default()
        };
        Session::open(Arc::clone(&transport), options).unwrap()
    };
    places.iter().map(open).collect()
}

fn logits(gguf: &Gguf, split: Split) -> Vec<Vec<f32>> {
    let model = Model::load_split(gguf, split, &|_, _| {}).unwrap();
    let mut context = Context::new(&model, 128).unwrap();
    let eval = |piece: &&[u32]| context.eval(piece).unwrap().to_vec();
    PIECES.iter().map(eval).collect()
}

fn same(expected: &[Vec<f32>], found: &[Vec<f32>]) {
    for (expected, found) in expected.iter().zip(found) {
        assert_eq!(expected.len(), found.len());
        let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
        let at = expected.iter().zip(found).position(differs);
        assert_eq!(at.map(|at| (at, expected[at], found[at])), None);
    }
}

#[test]
fn by_layers_and_by_rows() {
    let Some(path) = support::model("by_layers_and_by_rows") else {
        return;
    };
    let gguf = Gguf::open(path).unwrap();
    let expected = logits(&gguf, Split::single(&sessions(&[(0, 0)])[0]));
    for places in [&[(0, 0), (0, 1)][..], &[(0, 0), (1, 0), (1, 1), (2, 0)]] {
        same(&expected, &logits(&gguf, Split::layers(&sessions(places))));
    }
    let group = SessionOptions {
        more_cores: vec![1],
        ..SessionOptions::default()
    };
    let group = Session::open(Arc::new(SimTransport::default()), group).unwrap();
    same(&expected, &logits(&gguf, Split::single(&group)));
}

#[test]
fn by_segments() {
    let Some(path) = support::model("by_segments") else {
        return;
    };
    let gguf = Gguf::open(path).unwrap();
    let whole = logits(&gguf, Split::single(&sessions(&[(0, 0)])[0]));
    for places in [&[(0, 0), (1, 0)][..], &[(0, 0), (1, 0), (2, 0)]] {
        let in_one = Split::segments_in_one(&sessions(&[(0, 0)])[0], places.len());
        let expected = logits(&gguf, in_one);
        same(&expected, &logits(&gguf, Split::segments(&sessions(places))));
        // Another order of the same sums: the same model, but not the same bits.
        for (expected, whole) in expected.iter().zip(&whole) {
            let differences = expected.iter().zip(whole).map(|(a, b)| f64::from((a - b).abs()));
            let mean = differences.sum::<f64>() / whole.len() as f64;
            assert!(mean > 0.0 && mean < 0.3, "mean difference {mean}");
        }
    }
}

#[test]
fn a_model_that_does_not_go_round_is_refused() {
    let Some(path) = support::model("a_model_that_does_not_go_round_is_refused") else {
        return;
    };
    let gguf = Gguf::open(path).unwrap();
    let places: Vec<(u32, u32)> = (0..4).map(|core| (core, 0)).collect();
    let split = Split::segments(&sessions(&places));
    let Err(error) = Model::load_split(&gguf, split, &|_, _| {}) else {
        panic!("3 heads went into 4 segments");
    };
    assert!(matches!(error, ModelError::Split { .. }), "{error}");
    assert!(error.to_string().contains("3 key and value heads"), "{error}");
}

/// In a window half as large as the weights the logits are the same, and a token maps what takes turns, no more.
#[test]
fn in_a_window_smaller_than_the_model() {
    let Some(path) = support::model("in_a_window_smaller_than_the_model") else {
        return;
    };
    let gguf = Gguf::open(path).unwrap();
    let expected = logits(&gguf, Split::single(&sessions(&[(0, 0)])[0]));
    for window_bytes in [48u64 << 20, 64 << 20] {
        let sim = SimOptions {
            window_bytes,
            ..SimOptions::default()
        };
        let options = SessionOptions {
            n_slots: 96,
            batch_ops: 64,
            batch_tensors: 256,
            n_fences: 0,
            ..SessionOptions::default()
        };
        let session = Session::open(Arc::new(SimTransport::new(sim)), options).unwrap();
        let split = Split::single(&session).leaving(BESIDE);
        let model = Model::load_split(&gguf, split, &|_, _| {}).unwrap();
        let mut context = Context::new(&model, 128).unwrap();
        let found = PIECES.map(|piece| context.eval(piece).unwrap().to_vec());
        same(&expected, &found);
        let mut maps = 0;
        for _ in 0..12 {
            context.eval(&[30]).unwrap();
            maps += context.maps_per_token();
        }
        let mean = f64::from(maps) / 12.0;
        let planned = planned_maps(&gguf, &session);
        eprintln!("window of {window_bytes}: {mean} maps a token, planned {planned}");
        assert!(
            mean > 0.0 && mean <= planned.ceil(),
            "{mean} maps a token, planned {planned}"
        );
    }
}

/// Maps a token that the plan for the weights needs beside [`BESIDE`] bytes of other buffers.
fn planned_maps(gguf: &Gguf, session: &Session) -> f64 {
    let limits = session.buffer_limits(TensorUse::Weights);
    let weights = Model::plan_weights(gguf, &limits).unwrap();
    let sizes = weights.names.iter().zip(&weights.tensor_bytes);
    let needs: Vec<TensorNeed<'_>> = sizes.map(|(name, &bytes)| TensorNeed::new(name, bytes)).collect();
    let limits = BufferLimits::new(limits.arch, limits.budget_bytes - BESIDE);
    stream(&needs, &weights.uses, &limits).unwrap().placed_maps_per_token
}

/// As a v81 with all weights outside the window, which is then too small for them: the same logits.
#[test]
fn with_extended_weights() {
    let Some(path) = support::model("with_extended_weights") else {
        return;
    };
    let gguf = Gguf::open(path).unwrap();
    let expected = logits(&gguf, Split::single(&sessions(&[(0, 0)])[0]));
    let sim = SimOptions {
        arch: 81,
        window_bytes: 32 << 20,
        ..SimOptions::default()
    };
    let options = SessionOptions {
        extended_weights: true,
        n_slots: 4,
        ..SessionOptions::default()
    };
    let session = Session::open(Arc::new(SimTransport::new(sim)), options).unwrap();
    same(&expected, &logits(&gguf, Split::single(&session)));
    assert!(session.known_bytes() < 32 << 20);
}
