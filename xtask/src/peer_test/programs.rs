//! llama.cpp's own programs on the back end, against its CPU back end.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::Loaded;
use crate::steps::Outcome;
use crate::workspace::Workspace;
use crate::{model, process};

/// What exact arithmetic says of each step of six texts (origin: see the tests of host/cli).
const EXACT: &str = "host/cli/tests/data/smollm2-exact.json";
/// Two tokens whose exact log-probabilities are closer than this may change places by rounding.
const GAP: f64 = 0.2;

/// How llama.cpp cuts its graph: words on its command line, and most parts that there may be.
const CUTS: &[(&[&str], u64)] = &[
    // The embedding table stays on the CPU.
    (&[], 2),
    (&["-ot", "token_embd=HEX0"], 1),
];

/// What a model runs on, and how it is dealt to several devices.
const DEVICES: &[(&str, &str)] = &[("sim", "layer"), ("sim,sim", "layer"), ("sim,sim", "tensor")];

/// Texts must be the CPU back end's as long as no step is close, also over two devices; graphs are cut no more than
/// needed; then a short bench, for its numbers.
pub(super) fn run(loaded: &Loaded<'_>, workspace: &Workspace, deadline: Instant) -> Result<Outcome> {
    let model = model::ensure(workspace)?;
    let path = workspace.root.join(EXACT);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut outcome = Outcome::default();
    let program = || loaded.with(loaded.peer.program("llama-completion"));
    for (prompt, n) in sure_steps(&text)? {
        let theirs = complete(loaded.peer.program("llama-completion"), &model, &prompt, n)?;
        for (devices, split) in DEVICES {
            let mut ours = program();
            ours.env("HEXLOOM_DEVICES", devices).args(["--split-mode", split]);
            let ours = complete(ours, &model, &prompt, n)?;
            outcome.expect(ours == theirs, || {
                format!(
                    "llama-completion on {devices} by {split}, {n} tokens after {prompt:?}: {ours:?}, the CPU wrote {theirs:?}"
                )
            });
        }
    }
    for (words, most) in CUTS {
        let found = parts(program(), &model, words, deadline)?;
        outcome.expect(found.is_some_and(|found| found <= *most), || {
            format!("llama-completion {words:?} cut its graph into {found:?} parts, {most} are needed")
        });
    }
    let mut bench = loaded.with(loaded.peer.program("llama-bench"));
    bench.arg("-m").arg(&model);
    bench.args(["-p", "64", "-n", "16", "-r", "1", "-ngl", "99", "-o", "md"]);
    process::run_lines(&mut bench, deadline, |line| {
        if line.starts_with('|') {
            println!("{line}");
        }
    })?;
    Ok(outcome)
}

/// Each prompt with the number of tokens before the first step that rounding may decide.
fn sure_steps(text: &str) -> Result<Vec<(String, usize)>> {
    let texts: Vec<Value> = serde_json::from_str(text).context("not the expected JSON")?;
    let step = |step: &Value| {
        let probability = |idx: usize| step["top"][idx][1].as_f64();
        probability(0)
            .zip(probability(1))
            .is_some_and(|(first, second)| first - second >= GAP)
    };
    let sure = |text: &Value| {
        let steps = text["steps"].as_array()?;
        let n = steps.iter().take_while(|&found| step(found)).count();
        Some((text["prompt"].as_str()?.to_owned(), n))
    };
    let all: Option<Vec<(String, usize)>> = texts.iter().map(sure).collect();
    let all = all.context("a text without prompt or steps")?;
    Ok(all.into_iter().filter(|&(_, n)| n > 0).collect())
}

/// The prompt and what follows, greedily.
fn complete(mut command: Command, model: &Path, prompt: &str, n: usize) -> Result<String> {
    command.arg("-m").arg(model).args(["-p", prompt, "-n", &n.to_string()]);
    command.args(["--temp", "0", "-no-cnv", "-ngl", "99", "-t", "2", "--no-warmup"]);
    process::output(&mut command)
}

/// Parts of the graph, as llama.cpp's log tells.
fn parts(mut command: Command, model: &Path, words: &[&str], deadline: Instant) -> Result<Option<u64>> {
    command.arg("-m").arg(model).args(["-p", "The", "-n", "1", "--verbose"]);
    command
        .args(["-no-cnv", "-ngl", "99", "-t", "2", "--no-warmup"])
        .args(words);
    let mut found = None;
    process::run_lines(&mut command, deadline, |line| found = n_parts(line).or(found))?;
    Ok(found)
}

fn n_parts(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("splits = ")?;
    rest.split(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_steps_end_the_comparison() {
        let text = r#"[{"prompt": "a", "steps": [{"top": [[1, -0.1], [2, -0.4]]}, {"top": [[1, -0.1], [2, -0.2]]}]},
                       {"prompt": "b", "steps": [{"top": [[1, -0.1], [2, -0.2]]}]}]"#;
        assert_eq!(sure_steps(text).unwrap(), [("a".to_owned(), 1)]);
    }

    #[test]
    fn parts_are_read_from_the_log() {
        let line = "0.1 I sched_reserve: graph: nodes = 939, splits = 2, input objects = 4";
        assert_eq!(n_parts(line), Some(2));
        assert_eq!(n_parts("splits = many"), None);
        assert_eq!(n_parts("graph"), None);
    }
}
