//! `hexloom run`: a model writes text.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use hexloom_models::chat::{ChatMessage, ChatTemplate};
use hexloom_models::generate::{Cancel, End, Generated, generate};
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::Context;
use hexloom_models::sampler::{Sampler, SamplerOptions};
use hexloom_models::tokenizer::Tokenizer;
use serde::Serialize;

use crate::args::{ExactArg, ModelArg, SessionArgs};
use crate::failure::Failure;
use crate::{load, output};

/// Exit code after Ctrl-C: 128 and the signal's number, as shells have it.
const INTERRUPTED: u8 = 130;

/// Continue a text, or answer as an assistant.
///
/// Text streams to standard output, without the prompt; timing goes to standard error. Generation ends at the model's
/// end-of-generation tokens, at -n, or where the context is full. Ctrl-C ends it with the text so far and exit code 130.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// The text to continue; with --chat, the question.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: String,
    /// Tokens to generate at most.
    #[arg(short, long = "n-tokens", value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    /// Put the prompt into the model's own chat template.
    #[arg(long)]
    chat: bool,
    /// Tokens of context; without it, what the model was trained with, at most 4096.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ctx: Option<u32>,
    #[command(flatten)]
    session: SessionArgs,
    /// Temperature; 0 always takes the most probable token.
    #[arg(
        long = "temp",
        value_name = "T",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    temperature: f32,
    /// Choose among the K most probable tokens; 0 is all.
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Choose among the most probable tokens that together have probability P; 1 is all.
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f32,
    /// Choose among tokens at least P times as probable as the most probable one; 0 is all.
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    min_p: f32,
    /// Start of the random sequence; the same seed gives the same text.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    exact: ExactArg,
    /// Print one JSON object at the end in place of the text.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints. `prompt_tokens` and `tokens` are ids, as `hexloom score` takes them.
#[derive(Serialize)]
struct Report<'a> {
    prompt_tokens: &'a [u32],
    tokens: &'a [u32],
    text: &'a str,
    end: &'static str,
    timings: Timings,
}

#[derive(Serialize)]
struct Timings {
    load_ms: f64,
    prompt_ms: f64,
    decode_ms: f64,
    prompt_tokens_per_s: f64,
    decode_tokens_per_s: f64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut sampler = Sampler::new(SamplerOptions {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed,
    })?;
    let gguf = load::open(&args.model.path)?;
    let n_ctx = load::context_length(&gguf, args.ctx)?;
    let cancel = cancel_on_interrupt()?;
    let options = args.session.options(args.exact.exact);
    let (loaded, tokenizer) = load::model_and_tokenizer(&gguf, n_ctx, &args.session, &options)?;
    let prompt = prompt_tokens(args, &gguf, &tokenizer)?;
    let mut context = Context::new(&loaded.model, n_ctx)?;
    let (mut written, mut streamed) = (Ok(()), 0);
    let on_token = |_, text: &str| {
        if !args.json {
            written = output::print(text);
            streamed += text.len();
        }
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let n_tokens = args.n as usize;
    let generated = generate(
        &mut context,
        &tokenizer,
        &mut sampler,
        &prompt,
        n_tokens,
        &cancel,
        on_token,
    )?;
    written?;
    let n_decoded = (context.n_past() as usize).saturating_sub(prompt.len());
    let timings = Timings {
        load_ms: ms(loaded.load_time),
        prompt_ms: ms(generated.prompt_time),
        decode_ms: ms(generated.decode_time),
        prompt_tokens_per_s: per_s(prompt.len(), generated.prompt_time),
        decode_tokens_per_s: per_s(n_decoded, generated.decode_time),
    };
    drop(context);
    loaded.model.session().close();
    match args.json {
        true => output::print_json(&Report {
            prompt_tokens: &prompt,
            tokens: &generated.tokens,
            text: &generated.text,
            end: end_name(generated.end),
            timings,
        })?,
        false => finish_text(&generated, streamed, prompt.len(), &timings)?,
    }
    Ok(match generated.end {
        End::Cancelled => ExitCode::from(INTERRUPTED),
        _ => ExitCode::SUCCESS,
    })
}

/// The first Ctrl-C ends the generation, the second the process.
fn cancel_on_interrupt() -> Result<Cancel, Failure> {
    let cancel = Cancel::new();
    let flag = cancel.clone();
    let handler = move || {
        if flag.is_cancelled() {
            std::process::exit(INTERRUPTED.into());
        }
        flag.cancel();
    };
    ctrlc::set_handler(handler).map_err(Failure::Interrupt)?;
    Ok(cancel)
}

fn prompt_tokens(args: &Args, gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Vec<u32>, Failure> {
    let tokens = match args.chat {
        true => {
            let template = ChatTemplate::from_gguf(gguf, tokenizer)?;
            let prompt = template.render(&[ChatMessage::new("user", &args.prompt)], true)?;
            tokenizer.encode(&prompt)?
        }
        false => tokenizer.encode(&args.prompt)?,
    };
    if tokens.is_empty() {
        let what = "the prompt (-p) has no tokens; give the model some text to continue";
        return Err(Failure::Argument(what.to_owned()));
    }
    Ok(tokens)
}

/// Prints what is left of the text and ends its last line, then tells how long it took.
fn finish_text(generated: &Generated, streamed: usize, n_prompt: usize, timings: &Timings) -> Result<(), Failure> {
    output::print(&format!("{}\n", &generated.text[streamed..]))?;
    eprintln!(
        "loaded in {:.2} s; prompt: {n_prompt} tokens in {:.2} s, {:.1} tokens/s; text: {} tokens in {:.2} s, {:.1} \
         tokens/s; ended by {}",
        timings.load_ms / 1e3,
        timings.prompt_ms / 1e3,
        timings.prompt_tokens_per_s,
        generated.tokens.len(),
        timings.decode_ms / 1e3,
        timings.decode_tokens_per_s,
        end_name(generated.end),
    );
    Ok(())
}

fn end_name(end: End) -> &'static str {
    match end {
        End::Token(_) => "end token",
        End::Limit => "limit",
        End::ContextFull => "full context",
        End::Cancelled => "interrupt",
        End::Stopped => "closed output",
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn per_s(n_tokens: usize, time: Duration) -> f64 {
    match time.as_secs_f64() {
        0.0 => 0.0,
        seconds => n_tokens as f64 / seconds,
    }
}
