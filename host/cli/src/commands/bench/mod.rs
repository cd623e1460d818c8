//! `hexloom bench`: how fast a model runs, and where the time goes.
//!
//! Four passes over one context, each after a warm-up that is not counted: prompts, decode steps, host time, and a
//! profiled pass apart from the others because profiling costs time itself. The tokens are fixed and mean nothing.

mod measure;

use std::fmt::Write as _;
use std::process::ExitCode;

use hexloom_models::llama::Context;
use serde::Serialize;

use crate::args::{ModelArg, SessionArgs};
use crate::device::Device;
use crate::failure::Failure;
use crate::{load, output};
use measure::OpTime;
pub(crate) use measure::tokens;

/// Measure tokens per second, host time and DSP time per kind of op.
///
/// Speeds are means of three rounds after a warm-up (one on `emu`). Host time is that of one decode step, from the call with a token to
/// readable logits, less the time inside the transport; the sampler is not in it. It is taken over at least 320 steps
/// (on `emu` over those asked for), while the cache grows from empty. On `emu` the packets of each kind of op are exact.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Prompt tokens.
    #[arg(short, long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Tokens to decode.
    #[arg(short, long = "n-tokens", value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    #[command(flatten)]
    session: SessionArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What is measured.
#[derive(Serialize)]
struct Report {
    n_prompt: u32,
    n_decode: u32,
    threads: u32,
    load_ms: f64,
    prompt_tokens_per_s: f64,
    decode_tokens_per_s: f64,
    /// Median.
    host_us_per_token: f64,
    host_us_per_token_p99: f64,
    /// Decode steps that the host times are taken from.
    host_steps: u32,
    /// Mappings that the DSPs made for a decode step; 0 where everything fits the window.
    maps_per_token: f64,
    /// DSP time of one decode step by kind of op, most first; empty where the device has no clock.
    dsp_us_per_op: Vec<OpTime>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let gguf = load::open(&args.model.path)?;
    // An emulated step takes seconds: there the packets count, and they are exact in every step.
    let (host_steps, rounds) = match args.session.device {
        Device::Emu => (args.n, 1),
        Device::Sim | Device::FastRpc | Device::Null => (args.n.max(measure::HOST_STEPS_MIN), measure::ROUNDS),
    };
    let n_ctx = args.prompt.max(host_steps);
    let options = args.session.options(false);
    let loaded = load::model(&gguf, n_ctx, &args.session, &options)?;
    let mut context = Context::new(&loaded.model, n_ctx)?;
    let tokens = tokens(n_ctx, loaded.model.config().n_vocab);
    let session = loaded.model.session();
    let bar = load::steps_bar("measuring", 4);
    let prompt_tokens_per_s = measure::prompt(&mut context, &tokens[..args.prompt as usize], rounds)?;
    bar.inc(1);
    let decode_tokens_per_s = measure::decode(&mut context, &tokens[..args.n as usize], rounds)?;
    bar.inc(1);
    let host = measure::host(
        &mut context,
        loaded.model.split().sessions(),
        &tokens[..host_steps as usize],
    )?;
    bar.inc(1);
    let (dsp_us_per_op, maps_per_token) = measure::ops(&mut context, &tokens[..args.n as usize])?;
    bar.finish_and_clear();
    let report = Report {
        n_prompt: args.prompt,
        n_decode: args.n,
        threads: session.n_threads(),
        load_ms: loaded.load_time.as_secs_f64() * 1e3,
        prompt_tokens_per_s,
        decode_tokens_per_s,
        host_us_per_token: host.median_us,
        host_us_per_token_p99: host.p99_us,
        host_steps,
        maps_per_token,
        dsp_us_per_op,
    };
    match args.json {
        true => output::print_json(&report)?,
        false => output::print(&report.table())?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Report {
    fn table(&self) -> String {
        let mut text = String::new();
        let mut line = |what: &str, value: f64, unit: &str| {
            let _ = writeln!(text, "{what:<34} {value:>10.1} {unit}");
        };
        line("load, repacking included", self.load_ms, "ms");
        line(
            &format!("prompt of {}", self.n_prompt),
            self.prompt_tokens_per_s,
            "tokens/s",
        );
        line(
            &format!("decode of {}", self.n_decode),
            self.decode_tokens_per_s,
            "tokens/s",
        );
        line("host time per decode step, median", self.host_us_per_token, "us");
        let p99 = format!("  99 of 100 steps ({} steps)", self.host_steps);
        line(&p99, self.host_us_per_token_p99, "us");
        if self.maps_per_token > 0.0 {
            line("mappings per decode step", self.maps_per_token, "");
        }
        if self.dsp_us_per_op.is_empty() {
            return text;
        }
        let total: f64 = self.dsp_us_per_op.iter().map(|op| op.us).sum();
        let is_counted = self.dsp_us_per_op.iter().any(|op| op.packets != 0);
        let packets_column = |text: &str| {
            if is_counted {
                format!(" {text:>14}")
            } else {
                String::new()
            }
        };
        let _ = writeln!(
            text,
            "\nDSP time of a decode step, {} threads\n{:<20} {:>6} {:>12} {:>7}{}",
            self.threads,
            "op",
            "ops",
            "us",
            "%",
            packets_column("packets")
        );
        for op in &self.dsp_us_per_op {
            let percent = 100.0 * op.us / total;
            let packets = packets_column(&output::grouped(op.packets));
            let _ = writeln!(
                text,
                "{:<20} {:>6} {:>12.1} {percent:>7.1}{packets}",
                op.op, op.n_ops, op.us
            );
        }
        let packets = packets_column(&output::grouped(self.dsp_us_per_op.iter().map(|op| op.packets).sum()));
        let n_ops: usize = self.dsp_us_per_op.iter().map(|op| op.n_ops).sum();
        let _ = writeln!(text, "{:<20} {n_ops:>6} {total:>12.1} {:>7.1}{packets}", "all", 100.0);
        text
    }
}
