//! `cargo xtask bench`: tokens per second, on request in turn with llama.cpp's own bench.
//!
//! Rounds alternate so that a machine that slows down slows both; medians are compared.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use serde_json::Value;

use crate::peer::Peer;
use crate::workspace::Workspace;
use crate::{model, peer, process};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also run llama.cpp's llama-bench, from Debian's packages, and print ratios.
    #[arg(long)]
    peer: bool,
    /// Run only llama-bench.
    #[arg(long, requires = "peer")]
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

/// Tokens per second of one round.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speed {
    prompt: f64,
    decode: f64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let model = model::ensure(&workspace)?;
    let peer = match args.peer {
        true => peer::ensure(&workspace)?
            .inspect_err(|why| eprintln!("SKIPPED: {why}"))
            .ok(),
        false => None,
    };
    if !args.peer_only {
        process::output(process::cargo().current_dir(&workspace.root).args([
            "build",
            "--release",
            "--package=hexloom-cli",
        ]))?;
    }
    let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
    let bar = ProgressBar::new(u64::from(args.rounds));
    for _ in 0..args.rounds {
        if !args.peer_only {
            ours.push(run_ours(&workspace, &model, args)?);
        }
        if let Some(peer) = &peer {
            theirs.push(run_theirs(peer, &model, args)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(peer) = &peer {
        println!("llama-bench: {}", peer.version);
    }
    print!("{}", table(&ours, &theirs));
    Ok(ExitCode::SUCCESS)
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

fn run_theirs(peer: &Peer, model: &Path, args: &Args) -> Result<Speed> {
    let mut command: Command = peer.program("llama-bench");
    command
        .arg("-m")
        .arg(model)
        .args(["-p", &args.prompt.to_string(), "-n", &args.n.to_string()])
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

fn table(ours: &[Speed], theirs: &[Speed]) -> String {
    let mut text = String::from("tokens/s       hexloom  llama.cpp  ratio  (medians)\n");
    for (name, pick) in [
        ("prompt", (|s| s.prompt) as fn(&Speed) -> f64),
        ("decode", |s| s.decode),
    ] {
        let [ours, theirs] = [ours, theirs].map(|all| median(all.iter().map(pick).collect()));
        let show = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.1}"));
        let ratio = ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
        let ratio = ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        let _ = writeln!(text, "{name:<10} {:>11} {:>10} {ratio:>6}", show(ours), show(theirs));
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
        let text = table(&[speed(400.0, 75.0)], &[speed(800.0, 150.0)]);
        assert_eq!(text.lines().nth(1), Some("prompt           400.0      800.0   0.50"));
        let text = table(&[speed(400.0, 75.0)], &[]);
        assert_eq!(text.lines().nth(2), Some("decode            75.0          -      -"));
    }
}
