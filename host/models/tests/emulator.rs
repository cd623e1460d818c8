//! The real model on the emulated Hexagon: logits equal the simulator's bit for bit. Skipped, loudly, without model or
//! emulator.

mod support;

use std::sync::Arc;
use std::time::Instant;

use hexloom::{Session, SessionOptions, Transport};
use hexloom_emu::{EmuOptions, EmuTransport};
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::{Context, Model};
use hexloom_sim::SimTransport;
use serde_json::Value;

const EXACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/data/smollm2-exact.json");
/// Texts of the file, and tokens after each prompt: an emulated token takes seconds, so the variables ask for more.
const TEXTS: (&str, usize) = ("HEXLOOM_EMU_TEXTS", 1);
const STEPS: (&str, usize) = ("HEXLOOM_EMU_STEPS", 2);

#[test]
fn logits_equal_the_simulator() {
    let Some(path) = support::model("logits_equal_the_simulator") else {
        return;
    };
    let emu = match EmuOptions::find() {
        Ok(options) => EmuTransport::new(options),
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let gguf = Gguf::open(path).unwrap();
    let sim = load(&gguf, Arc::new(SimTransport::default()));
    let emu = load(&gguf, Arc::new(emu));
    let (mut seconds, mut packets) = (0.0, 0);
    for (prompt, tokens) in texts() {
        let mut sim = Context::new(&sim, 128).unwrap();
        let mut emu = Context::new(&emu, 128).unwrap();
        emu.set_profile(true);
        same(sim.eval(&prompt).unwrap(), emu.eval(&prompt).unwrap());
        for token in tokens {
            let expected = sim.eval(&[token]).unwrap();
            let start = Instant::now();
            let found = emu.eval(&[token]).unwrap();
            seconds += start.elapsed().as_secs_f64();
            same(expected, found);
            packets += emu.costs().iter().map(|cost| u64::from(cost.packets)).sum::<u64>();
        }
    }
    let n = (number(TEXTS) * number(STEPS)) as f64;
    eprintln!(
        "emu: {:.2} s and {:.2} million packets a token",
        seconds / n,
        packets as f64 / n / 1e6
    );
    assert!(packets > 0);
}

fn number((variable, default): (&str, usize)) -> usize {
    let value = std::env::var(variable).ok();
    value.map_or(default, |value| value.parse().expect(variable))
}

fn load(gguf: &Gguf, transport: Arc<dyn Transport>) -> Model {
    let session = Session::open(transport, SessionOptions::default()).unwrap();
    Model::load(gguf, &session, &|_, _| {}).unwrap()
}

/// Prompts, each with the tokens that follow.
fn texts() -> Vec<(Vec<u32>, Vec<u32>)> {
    let text = std::fs::read_to_string(EXACT).unwrap();
    let all: Vec<Value> = serde_json::from_str(&text).unwrap();
    let tokens = |list: &Value| -> Vec<u32> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|token| token.as_u64().unwrap() as u32)
            .collect()
    };
    let texts = all.iter().take(number(TEXTS)).map(|entry| {
        let mut following = tokens(&entry["tokens"]);
        following.truncate(number(STEPS));
        (tokens(&entry["prompt_tokens"]), following)
    });
    texts.collect()
}

fn same(expected: &[f32], found: &[f32]) {
    let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
    let at = expected.iter().zip(found).position(differs);
    assert_eq!(at.map(|at| (at, expected[at], found[at])), None);
    assert_eq!(expected.len(), found.len());
}
