//! `cargo xtask bench`: tokens per second, on request in turn with llama.cpp's own bench, on its CPU back end or on ours.
//!
//! Rounds alternate so that a machine that slows down slows all; medians are compared.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use serde_json::Value;

use crate::peer_test::{self, Loaded};
use crate::workspace::Workspace;
use crate::{model, peer, process};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also run llama.cpp's llama-bench, from Debian's packages, and print ratios.
    #[arg(long)]
    peer: bool,
    /// Also run llama-bench on our back end's simulator.
    #[arg(long)]
    ggml: bool,
    /// Run llama-bench alone, on our back end without a DSP and on a device that does nothing: what differs is the back
    /// end's own share of a token.
    #[arg(long, conflicts_with_all = ["peer", "ggml"])]
    share: bool,
    /// Run only llama-bench.
    #[arg(long, requires = "peer", conflicts_with = "ggml")]
    peer_only: bool,
    /// Rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Prompt tokens.
    #[arg(short, default_value_t = 64)]
    prompt: u32,
    /// Tokens to decode.
    #[arg(short, default_value_t = 32)]
    n: u32,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: u32,
}

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Runner {
    Hexloom,
    /// llama-bench on its CPU back end.
    Llama,
    /// llama-bench on a device of ours.
    Ggml(&'static str),
}

/// Tokens per second of one round.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speed {
    prompt: f64,
    decode: f64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let model = model::ensure(&workspace)?;
    let mut runners = args.runners();
    let peer = match runners.iter().any(|runner| *runner != Runner::Hexloom) {
        true => peer::ensure(&workspace)?
            .inspect_err(|why| eprintln!("SKIPPED: {why}"))
            .ok(),
        false => None,
    };
    if peer.is_none() {
        runners.retain(|runner| *runner == Runner::Hexloom);
    }
    if runners.contains(&Runner::Hexloom) {
        process::output(process::cargo().current_dir(&workspace.root).args([
            "build",
            "--release",
            "--package=hexloom-cli",
        ]))?;
    }
    let loaded = peer
        .as_ref()
        .map(|peer| peer_test::load(&workspace, peer))
        .transpose()?;
    let mut speeds: Vec<(Runner, Vec<Speed>)> = runners.into_iter().map(|runner| (runner, Vec::new())).collect();
    let bar = ProgressBar::new(u64::from(args.rounds));
    for _ in 0..args.rounds {
        for (runner, speeds) in &mut speeds {
            speeds.push(match (*runner, &loaded) {
                (Runner::Llama, Some(loaded)) => run_theirs(loaded, None, &model, args)?,
                (Runner::Ggml(device), Some(loaded)) => run_theirs(loaded, Some(device), &model, args)?,
                _ => run_ours(&workspace, &model, args)?,
            });
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(peer) = &peer {
        println!("llama-bench: {}", peer.version);
    }
    print!("{}", table(&speeds));
    if let (true, [(_, with), (_, without)]) = (args.share, &speeds[..]) {
        let us = |speeds: &[Speed]| median(speeds.iter().map(|speed| 1e6 / speed.decode).collect());
        let share = us(with).zip(us(without)).map_or(0.0, |(with, without)| with - without);
        println!("the back end's share of a decoded token: {share:.1} us");
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn runners(&self) -> Vec<Runner> {
        if self.share {
            return vec![Runner::Ggml("null"), Runner::Ggml("nothing")];
        }
        let chosen = [
            (Runner::Hexloom, !self.peer_only),
            (Runner::Llama, self.peer),
            (Runner::Ggml("sim"), self.ggml),
        ];
        chosen
            .into_iter()
            .filter(|&(_, chosen)| chosen)
            .map(|(runner, _)| runner)
            .collect()
    }
}

fn run_ours(workspace: &Workspace, model: &Path, args: &Args) -> Result<Speed> {
    let mut command = process::cargo();
    command
        .args(["run", "--quiet", "--release", "--package=hexloom-cli"])
        .args(["--bin=hexloom", "--", "bench"])
        .arg(model)
        .args(["-p", &args.prompt.to_string(), "-n", &args.n.to_string()])
        .args(["--threads", &args.threads.to_string(), "--json"])
        .current_dir(&workspace.root);
    read_ours(&process::output(&mut command)?).context("hexloom bench")
}

fn read_ours(text: &str) -> Result<Speed> {
    let json: Value = serde_json::from_str(text).context("printed no valid JSON")?;
    let speed = |key: &str| json[key].as_f64().with_context(|| format!("printed no number `{key}`"));
    Ok(Speed {
        prompt: speed("prompt_tokens_per_s")?,
        decode: speed("decode_tokens_per_s")?,
    })
}

fn run_theirs(loaded: &Loaded<'_>, device: Option<&'static str>, model: &Path, args: &Args) -> Result<Speed> {
    let mut command = loaded.peer.program("llama-bench");
    if let Some(device) = device {
        command = loaded.on(device).with(command);
    }
    command
        .arg("-m")
        .arg(model)
        .args(["-p", &args.prompt.to_string(), "-n", &args.n.to_string(), "-ngl", "99"])
        .args(["-t", &args.threads.to_string(), "-o", "json"]);
    read_theirs(&process::output(&mut command)?).context("llama-bench")
}

/// llama-bench prints one object for the prompt and one for decoding.
fn read_theirs(text: &str) -> Result<Speed> {
    let json: Value = serde_json::from_str(text).context("printed no valid JSON")?;
    let speed = |count: &str| {
        let mut rows = json.as_array().into_iter().flatten();
        rows.find(|row| row[count].as_u64().is_some_and(|n| n > 0))
            .and_then(|row| row["avg_ts"].as_f64())
            .with_context(|| format!("printed no `avg_ts` for a run with `{count}` above 0"))
    };
    Ok(Speed {
        prompt: speed("n_prompt")?,
        decode: speed("n_gen")?,
    })
}

/// One line for each runner, with ratios to the first.
fn table(speeds: &[(Runner, Vec<Speed>)]) -> String {
    let mut text = String::from("tokens/s, medians       prompt  ratio     decode  ratio\n");
    let of = |speeds: &[Speed]| {
        let prompt = median(speeds.iter().map(|speed| speed.prompt).collect());
        [prompt, median(speeds.iter().map(|speed| speed.decode).collect())].map(|value| value.unwrap_or(f64::NAN))
    };
    let first = speeds.first().map(|(_, speeds)| of(speeds)).unwrap_or_default();
    for (runner, speeds) in speeds {
        let [prompt, decode] = of(speeds);
        let ratios = [prompt / first[0], decode / first[1]];
        let [prompt_ratio, decode_ratio] = ratios;
        let name = match runner {
            Runner::Hexloom => "hexloom".to_owned(),
            Runner::Llama => "llama.cpp on its CPU".to_owned(),
            Runner::Ggml(device) => format!("llama.cpp on {device}"),
        };
        let _ = writeln!(
            text,
            "{name:<20} {prompt:>9.1} {prompt_ratio:>6.2} {decode:>10.1} {decode_ratio:>6.2}"
        );
    }
    text
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    match values.len() % 2 {
        1 => Some(upper),
        _ => Some((values[values.len() / 2 - 1] + upper) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_outputs_are_read() {
        let speed = Speed {
            prompt: 811.5,
            decode: 148.0,
        };
        let ours = r#"{"prompt_tokens_per_s": 811.5, "decode_tokens_per_s": 148, "x": 1}"#;
        assert_eq!(read_ours(ours).unwrap(), speed);
        let theirs = r#"[{"n_prompt": 64, "n_gen": 0, "avg_ts": 811.5},
                         {"n_prompt": 0, "n_gen": 32, "avg_ts": 148.0}]"#;
        assert_eq!(read_theirs(theirs).unwrap(), speed);
        let error = read_ours("{}").unwrap_err().to_string();
        assert!(error.contains("prompt_tokens_per_s"), "{error}");
        assert!(read_theirs("[]").is_err());
    }

    #[test]
    fn medians_and_ratios() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        let speed = |prompt, decode| Speed { prompt, decode };
        let ours = (Runner::Hexloom, vec![speed(400.0, 75.0)]);
        let theirs = (Runner::Llama, vec![speed(800.0, 150.0)]);
        let text = table(&[ours.clone(), theirs]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "hexloom                  400.0   1.00       75.0   1.00");
        assert_eq!(lines[2], "llama.cpp on its CPU     800.0   2.00      150.0   2.00");
        assert_eq!(table(&[ours]).lines().count(), 2);
    }
}
