//! The steps of `cargo xtask ci`: a table, and the report that gathers what they say.
//!
//! `ci` runs the whole table; `cargo xtask fmt` and its like run the rows of that word. A step
//! that fails stops no other: everything that is wrong is printed last, in one place.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{aarch64, bindgen, checks, codegen, examples, firmware, gemma, generated, model, peer_test, suite, tidy};

/// Hard limit for a whole run, in seconds: twice what it should take, for machines that are busy.
pub(crate) const DEADLINE_S: u64 = 75 * 60;

pub(crate) struct Step {
    /// The word of the command line, and for a command of several steps one word more.
    pub(crate) word: &'static str,
    /// What it should take at most, in seconds, on two cores with nothing built yet.
    pub(crate) budget_s: u64,
    pub(crate) what: &'static str,
    run: fn(&Context) -> Result<Outcome>,
}

/// In running order: what fails fast comes first.
pub(crate) const STEPS: &[Step] = &[
    Step {
        word: "fmt",
        budget_s: 20,
        what: "`cargo fmt --check`",
        run: checks::fmt,
    },
    Step {
        word: "tidy",
        budget_s: 20,
        what: "crate dependencies against docs/architecture.md, source habits",
        run: tidy::check,
    },
    Step {
        word: "generated",
        budget_s: 20,
        what: "generated parts of files are up to date",
        run: generated::check,
    },
    Step {
        word: "bindgen",
        budget_s: 90,
        what: "host/hexagon-sys is what its headers give",
        run: bindgen::step,
    },
    Step {
        word: "clippy",
        budget_s: 300,
        what: "`cargo clippy` on every target, warnings denied",
        run: checks::clippy,
    },
    Step {
        word: "test firmware",
        budget_s: 900,
        what: "Hexagon tools are there; every image is built, within its size, with the names it may have",
        run: firmware::step,
    },
    Step {
        word: "test codegen",
        budget_s: 60,
        what: "hot loops have no more packets than docs/codegen.md says, no qfloat is stored",
        run: codegen::step,
    },
    Step {
        word: "test model",
        budget_s: 90,
        what: "SmolLM2-135M is in the cache folder",
        run: model::step,
    },
    Step {
        word: "test suite",
        budget_s: 1200,
        what: "unit, property and conformance tests, build included",
        run: suite::all_but_doc,
    },
    Step {
        word: "test doc",
        budget_s: 180,
        what: "the examples inside the API documentation",
        run: suite::doc,
    },
    Step {
        word: "test examples",
        budget_s: 120,
        what: "the example programs",
        run: examples::run_all,
    },
    Step {
        word: "peer-test ggml",
        budget_s: 600,
        what: "ggml's operator test and llama.cpp on libggml-hexloom.so, on `sim` and on `emu`",
        run: peer_test::step,
    },
    Step {
        word: "peer-test speech",
        budget_s: 120,
        what: "whisper.cpp on libggml-hexloom.so hears a sentence",
        run: peer_test::speech_step,
    },
    Step {
        word: "doc",
        budget_s: 120,
        what: "`cargo doc`, warnings denied",
        run: checks::doc,
    },
];

/// Steps that run on request only: they take longer than `ci` has.
const ON_REQUEST: &[Step] = &[
    Step {
        word: "aarch64",
        budget_s: 1500,
        what: "programs for 64-bit ARM under emulation: logits bit for bit, and a phone's whole way",
        run: aarch64::step,
    },
    Step {
        word: "gemma",
        budget_s: 300,
        what: "Gemma 3 270M is near exact arithmetic",
        run: gemma::step,
    },
];

/// What a step may look at.
pub(crate) struct Context {
    pub(crate) workspace: Workspace,
    pub(crate) deadline: Instant,
}

/// What a step found.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// One sentence for each thing that is wrong.
    pub(crate) failures: Vec<String>,
    /// One sentence for each thing that was not looked at, with the reason.
    pub(crate) skips: Vec<String>,
}

impl Outcome {
    pub(crate) fn pass() -> Self {
        Self {
            passed: 1,
            ..Self::default()
        }
    }

    /// One check that could not be made here, and why.
    pub(crate) fn skip(why: String) -> Self {
        Self {
            skipped: 1,
            skips: vec![why],
            ..Self::default()
        }
    }

    /// Counts what another part of the same step found.
    pub(crate) fn add(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
        self.failures.extend(more.failures);
        self.skips.extend(more.skips);
    }

    /// Counts one check, with what to say if it does not hold.
    pub(crate) fn expect(&mut self, holds: bool, failure: impl FnOnce() -> String) {
        if holds {
            self.passed += 1;
        } else {
            self.failed += 1;
            self.failures.push(failure());
        }
    }

    /// One failed check with everything that it found, or a passed one if that is nothing.
    pub(crate) fn from_findings(failures: Vec<String>) -> Self {
        if failures.is_empty() {
            return Self::pass();
        }
        Self {
            failed: 1,
            failures,
            ..Self::default()
        }
    }
}

/// Runs the steps of `word` (all for the empty word) and prints the report.
pub(crate) fn run(word: &str, deadline_s: u64) -> Result<ExitCode> {
    let started = Instant::now();
    let context = Context {
        workspace: Workspace::find()?,
        deadline: started + Duration::from_secs(deadline_s),
    };
    let mut rows = Vec::new();
    let on_request = ON_REQUEST.iter().filter(|step| step.word == word);
    for step in STEPS.iter().filter(|step| belongs(step, word)).chain(on_request) {
        eprintln!("\n== {}: {}", step.word, step.what);
        let begun = Instant::now();
        let outcome = (step.run)(&context).unwrap_or_else(|error| {
            eprintln!("{error:#}");
            Outcome::from_findings(vec![format!("{error:#}")])
        });
        rows.push(Row {
            word: step.word,
            budget_s: step.budget_s,
            took: begun.elapsed(),
            outcome,
        });
    }
    println!("{}", report(&rows));
    let failed = rows.iter().any(|row| row.outcome.failed > 0);
    Ok(ExitCode::from(u8::from(failed)))
}

fn belongs(step: &Step, word: &str) -> bool {
    word.is_empty() || step.word == word || step.word.split(' ').next() == Some(word)
}

struct Row {
    word: &'static str,
    budget_s: u64,
    took: Duration,
    outcome: Outcome,
}

/// Times beside budgets, then skips, then failures, then the closing line.
fn report(rows: &[Row]) -> String {
    let mut text = String::from("\n");
    let [mut passed, mut failed, mut skipped] = [0; 3];
    for row in rows {
        let took_s = row.took.as_secs_f64();
        let late = if took_s > row.budget_s as f64 {
            "  over its budget"
        } else {
            ""
        };
        let state = if row.outcome.failed > 0 { "FAILED" } else { "ok" };
        let _ = writeln!(
            text,
            "{:<14} {state:<7}{took_s:>7.1} s of {:>4} s{late}",
            row.word, row.budget_s
        );
        passed += row.outcome.passed;
        failed += row.outcome.failed;
        skipped += row.outcome.skipped;
    }
    for (title, pick) in [
        ("skipped", (|o| &o.skips) as fn(&Outcome) -> &Vec<String>),
        ("failed", |o| &o.failures),
    ] {
        if rows.iter().all(|row| pick(&row.outcome).is_empty()) {
            continue;
        }
        let _ = writeln!(text, "\n{title}:");
        for row in rows {
            for line in pick(&row.outcome) {
                let _ = writeln!(text, "  {}: {}", row.word, line.replace('\n', "\n    "));
            }
        }
    }
    let _ = write!(text, "\n{passed} passed, {failed} failed, {skipped} skipped");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(word: &str) -> Vec<&str> {
        STEPS
            .iter()
            .filter(|step| belongs(step, word))
            .map(|step| step.word)
            .collect()
    }

    #[test]
    fn words_pick_their_steps() {
        assert_eq!(words("").len(), STEPS.len());
        assert_eq!(words("doc"), ["doc"]);
        assert_eq!(
            words("test"),
            [
                "test firmware",
                "test codegen",
                "test model",
                "test suite",
                "test doc",
                "test examples"
            ]
        );
    }

    #[test]
    fn budgets_fit_the_deadline() {
        let sum: u64 = STEPS.iter().map(|step| step.budget_s).sum();
        assert!(sum <= DEADLINE_S, "{sum} s of budgets, {DEADLINE_S} s");
    }

    #[test]
    fn report_gathers_failures_last_and_adds_up() {
        let row = |word, took_s, outcome| Row {
            word,
            budget_s: 20,
            took: Duration::from_secs(took_s),
            outcome,
        };
        let tests = Outcome {
            passed: 7,
            failed: 1,
            skipped: 2,
            failures: vec!["add is wrong\nby 3".into()],
            skips: vec!["no device".into()],
        };
        let text = report(&[row("suite", 30, tests), row("fmt", 1, Outcome::pass())]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "",
                "suite          FAILED    30.0 s of   20 s  over its budget",
                "fmt            ok         1.0 s of   20 s",
                "",
                "skipped:",
                "  suite: no device",
                "",
                "failed:",
                "  suite: add is wrong",
                "    by 3",
                "",
                "8 passed, 1 failed, 2 skipped",
            ]
        );
    }
}
