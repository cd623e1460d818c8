//! A model's logits on the simulator, as bits.

use std::sync::Arc;

use hexloom::{Session, SessionOptions};
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::{Context, Model};
use hexloom_sim::{SimOptions, SimTransport};

/// A prompt and the tokens after it; any tokens do.
const PROMPT: [u32; 7] = [1, 5, 9, 2, 40, 11, 7];
pub(crate) const TOKENS: [u32; 3] = [3, 17, 29];

/// Logits of the prompt's last token and of each token after it, as bits.
pub(crate) fn logits(gguf: &Gguf, sim: SimOptions) -> Vec<u32> {
    let session = Session::open(Arc::new(SimTransport::new(sim)), SessionOptions::default()).unwrap();
    let model = Model::load(gguf, &session, &|_, _| {}).unwrap();
    let mut context = Context::new(&model, 32).unwrap();
    let mut all = Vec::new();
    let mut eval = |tokens: &[u32]| {
        let logits = context.eval(tokens).unwrap();
        all.extend(logits.iter().map(|logit| logit.to_bits()));
    };
    eval(&PROMPT);
    TOKENS.iter().for_each(|&token| eval(&[token]));
    all
}
