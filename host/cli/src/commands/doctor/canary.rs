//! Canary prompts: two beginnings that a model must continue differently, each as on the simulator.
//!
//! A device that computes the same for everything, or slightly wrong, shows here and nowhere else.

use std::path::Path;
use std::sync::Arc;

use hexloom::{Session, SessionOptions};
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::{Context, Model, Split};
use hexloom_models::tokenizer::Tokenizer;
use hexloom_sim::SimTransport;

use super::Check;
use crate::failure::Failure;

const NAME: &str = "canary prompts";
const PROMPTS: [&str; 2] = ["The capital of France is", "def add(a, b):\n    return"];
/// Tokens that are compared.
const N_TOKENS: usize = 4;
const N_CTX: u32 = 64;

/// Continues both prompts on the session and on the simulator.
pub(super) fn check(session: &Session, path: &Path) -> Check {
    match compare(session, path) {
        Ok(check) => check,
        Err(error) => Check::failed(NAME, error.to_string(), "do what the message says, then run this again"),
    }
}

fn compare(session: &Session, path: &Path) -> Result<Check, Failure> {
    let gguf = Gguf::open(path)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let sim = Session::open(Arc::new(SimTransport::default()), SessionOptions::default())?;
    let (device, wanted) = (
        continued(&gguf, &tokenizer, session)?,
        continued(&gguf, &tokenizer, &sim)?,
    );
    sim.close();
    let report = "report it with the output of `hexloom doctor --json`";
    Ok(if device[0] == device[1] {
        Check::failed(NAME, format!("both are continued by {:?}", device[0]), report)
    } else if device != wanted {
        // One token may differ by a correct rounding; the first ones of both prompts do not.
        let first = |all: &[Vec<u32>; 2]| all.each_ref().map(|tokens| tokens.first().copied());
        let found = format!("tokens {device:?}, on the simulator {wanted:?}");
        match first(&device) == first(&wanted) {
            true => Check::warning(NAME, found, "compare scores with `hexloom score`: roundings may differ"),
            false => Check::failed(NAME, found, report),
        }
    } else {
        Check::ok(
            NAME,
            format!("both as on the simulator: tokens {:?} and {:?}", device[0], device[1]),
        )
    })
}

/// The tokens that follow each prompt.
fn continued(gguf: &Gguf, tokenizer: &Tokenizer, session: &Session) -> Result<[Vec<u32>; 2], Failure> {
    let model = Model::load_split(gguf, Split::single(session), &|_, _| {})?;
    let mut all = [Vec::new(), Vec::new()];
    for (prompt, tokens) in PROMPTS.iter().zip(&mut all) {
        let mut context = Context::new(&model, N_CTX)?;
        let mut next = tokenizer.encode(prompt)?;
        for _ in 0..N_TOKENS {
            let logits = context.eval(&next)?;
            let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            let token = best.map_or(0, |(token, _)| token as u32);
            tokens.push(token);
            next = vec![token];
        }
    }
    Ok(all)
}
