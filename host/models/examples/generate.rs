//! A model continues a sentence, on the DSP of the simulator.
//!
//! `cargo run --release -p hexloom-models --example generate -- MODEL.gguf` prints text as it is generated. From here,
//! `host/models/src/generate.rs` is the loop, `host/models/src/llama/context.rs` evaluates a token, and
//! `host/models/src/llama/forward.rs` is the graph.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use hexloom::{Session, SessionOptions};
use hexloom_models::generate::{Cancel, generate};
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::{Context, Model};
use hexloom_models::sampler::{Sampler, SamplerOptions};
use hexloom_models::tokenizer::Tokenizer;
use hexloom_sim::SimTransport;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(path) = std::env::args_os().nth(1).or_else(|| std::env::var_os("HEXLOOM_MODEL")) else {
        eprintln!("SKIPPED: no model; give the path of a GGUF file, or set HEXLOOM_MODEL");
        return Ok(());
    };
    // The file is mapped and checked; its tokenizer comes with it.
    let gguf = Gguf::open(path)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;

    // A session is one open connection to a DSP. Loading repacks the weights into its memory.
    let session = Session::open(Arc::new(SimTransport::default()), SessionOptions::default())?;
    let model = Model::load(&gguf, &session, &|_, _| {})?;

    // A context is one conversation: its KV cache, its position and its prepared graphs.
    let mut context = Context::new(&model, 256)?;
    let mut sampler = Sampler::new(SamplerOptions::default())?;
    let prompt = "The northern lights are";
    print!("{prompt}");
    let tokens = tokenizer.encode(prompt)?;
    generate(
        &mut context,
        &tokenizer,
        &mut sampler,
        &tokens,
        24,
        &Cancel::new(),
        |_, text| {
            print!("{text}");
            let _ = std::io::stdout().flush();
            ControlFlow::Continue(())
        },
    )?;
    println!();
    Ok(())
}
