//! `cargo xtask gemma`: Gemma 3 270M through `hexloom score`, against llama.cpp on the same weights without any rounding of
//! activations.
//!
//! Not a step of `ci`: the model is 253 MB, and its texts take longer than SmolLM2's.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::steps::{Context, Outcome};
use crate::{model, process};

/// Origin: see the README beside it.
const TEXTS: &str = "host/cli/tests/data/gemma3-exact.json";
const N_STEPS: f64 = 144.0;

pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let workspace = &context.workspace;
    let model = match model::ensure_named(workspace, model::Name::Gemma3270m)? {
        Ok(model) => model,
        Err(why) => return Ok(Outcome::skip(why)),
    };
    let mut score = process::cargo();
    score
        .args(["run", "--quiet", "--release", "--package=hexloom-cli"])
        .args(["--bin=hexloom", "--", "score"])
        .arg(model)
        .args(["--tokens", TEXTS, "--compare", "--json"])
        .current_dir(&workspace.root);
    let text = process::output(&mut score)?;
    println!("{}", text.trim());
    let found = serde_json::from_str(&text).context("hexloom score printed no valid JSON")?;
    Ok(Outcome::from_findings(findings(&found)?))
}

/// What misses the bars, which are SmolLM2's.
fn findings(found: &Value) -> Result<Vec<String>> {
    let number = |key: &str| found[key].as_f64().with_context(|| format!("no number `{key}`"));
    let percent = |same: &str, of: &str| Ok::<_, anyhow::Error>(100.0 * number(same)? / number(of)?);
    let mut findings = Vec::new();
    let mut expect = |what: &str, value: f64, holds: bool| {
        if !holds {
            findings.push(format!("Gemma 3 270M: {what} is {value:.3}"));
        }
    };
    let n_steps = number("n_steps")?;
    expect("the number of steps", n_steps, n_steps == N_STEPS);
    let first = percent("same_first", "n_steps")?;
    expect("the same first token, in percent, at least 95,", first, first >= 95.0);
    let sure = percent("same_first_gap_02", "n_gap_02")?;
    expect(
        "the same where the gap is 0.2 or more, at least 99,",
        sure,
        sure >= 99.0,
    );
    let mean = number("mean_difference")?;
    expect("the mean difference, at most 0.12,", mean, mean <= 0.12);
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mean: f64, same_first: u32, n_findings: usize) {
        let found = serde_json::json!({
            "n_steps": 144, "same_first": same_first, "n_gap_02": 100, "same_first_gap_02": 100, "mean_difference": mean,
        });
        assert_eq!(findings(&found).unwrap().len(), n_findings);
    }

    #[test]
    fn each_bar_is_looked_at() {
        check(0.05, 140, 0);
        check(0.13, 140, 1);
        check(0.13, 130, 2);
        assert!(findings(&serde_json::json!({})).is_err());
    }
}
