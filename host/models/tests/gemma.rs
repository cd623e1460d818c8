//! What Gemma has and Llama has not, on a Gemma of one layer whose window is 32 positions.

mod support;
#[path = "support/tiny.rs"]
mod tiny;

use std::sync::Arc;

use hexloom::{Session, SessionOptions};
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::{Context, LlamaConfig, Model};
use hexloom_sim::SimTransport;
use support::TempFile;
use tiny::Tiny;

const WINDOW: usize = 32;

fn model(tiny: &Tiny) -> Model {
    let file = TempFile::new(&tiny.file());
    let session = Session::open(Arc::new(SimTransport::default()), SessionOptions::default()).unwrap();
    Model::load(&Gguf::open(file.path()).unwrap(), &session, &|_, _| {}).unwrap()
}

/// Logits after `tokens`, evaluated in pieces of `n_batch`.
fn logits(model: &Model, tokens: &[u32], n_batch: usize) -> Vec<f32> {
    let mut context = Context::with_batch(model, 256, n_batch).unwrap();
    context.eval(tokens).unwrap().to_vec()
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n as u32).map(|idx| 2 + (idx * 37 + 11) % 200).collect()
}

/// `tokens` with another one `back` positions before the end.
fn changed(tokens: &[u32], back: usize) -> Vec<u32> {
    let mut changed = tokens.to_vec();
    let at = tokens.len() - back;
    changed[at] = 201 - changed[at] % 100;
    changed
}

#[test]
fn a_local_layer_sees_its_window_and_no_more() {
    let model = model(&Tiny::gemma(WINDOW as u32));
    let tokens = tokens(90);
    for n_batch in [1, 64, 90] {
        let expected = logits(&model, &tokens, n_batch);
        assert!(expected.iter().all(|logit| logit.is_finite()));
        let beyond = logits(&model, &changed(&tokens, WINDOW + 1), n_batch);
        assert_eq!(beyond, expected, "pieces of {n_batch}");
        let oldest = logits(&model, &changed(&tokens, WINDOW), n_batch);
        assert_ne!(oldest, expected, "pieces of {n_batch}");
    }
}

#[test]
fn a_window_that_is_never_full_changes_nothing() {
    let tokens = tokens(90);
    let [small, wide, wider] = [WINDOW as u32, 128, 1 << 20].map(|window| model(&Tiny::gemma(window)));
    let expected = logits(&wider, &tokens, 64);
    assert_eq!(logits(&wide, &tokens, 64), expected);
    assert_ne!(logits(&small, &tokens, 64), expected);
}

#[test]
fn a_conversation_that_goes_back_sees_what_a_new_one_sees() {
    let model = model(&Tiny::gemma(WINDOW as u32));
    let tokens = tokens(100);
    let mut context = Context::new(&model, 256).unwrap();
    for &token in &tokens[..80] {
        context.eval(&[token]).unwrap();
    }
    context.rewind(20);
    let mut last = Vec::new();
    for &token in &tokens[20..50] {
        last = context.eval(&[token]).unwrap().to_vec();
    }
    assert_eq!(last, logits(&model, &tokens[..50], 1));
}

#[test]
fn the_norms_of_the_family_are_needed_and_used() {
    let tokens = tokens(8);
    let expected = logits(&model(&Tiny::gemma(64)), &tokens, 64);
    for norm in ["attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm"] {
        let name = format!("blk.0.{norm}.weight");
        let mut tiny = Tiny::gemma(64);
        // Every second weight, so that no scale takes it back.
        for weight in tiny.tensor(&name).bytes.chunks_exact_mut(8) {
            weight[..4].copy_from_slice(&3_f32.to_le_bytes());
        }
        assert_ne!(logits(&model(&tiny), &tokens, 64), expected, "{norm}");
        tiny.tensors.retain(|tensor| tensor.name != name);
        let file = TempFile::new(&tiny.file());
        let session = Session::open(Arc::new(SimTransport::default()), SessionOptions::default()).unwrap();
        let missing = Model::load(&Gguf::open(file.path()).unwrap(), &session, &|_, _| {});
        assert!(missing.err().unwrap().to_string().contains(&name));
    }
}

#[test]
fn the_window_and_its_rotary_base_come_from_the_file() {
    let file = TempFile::new(&Tiny::gemma(48).file());
    let config = LlamaConfig::from_gguf(&Gguf::open(file.path()).unwrap()).unwrap();
    let local = config.local.unwrap();
    assert_eq!((local.window, local.period, local.rope.freq_base), (48, 6, 10_000.0));
    let file = TempFile::new(&Tiny::new().file());
    assert_eq!(
        LlamaConfig::from_gguf(&Gguf::open(file.path()).unwrap()).unwrap().local,
        None
    );
}
