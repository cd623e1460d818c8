//! Our own tests of the back end behind ggml's functions, run by the packages' loader: the machine's may be too old for them.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::Loaded;
use crate::process;
use crate::steps::Outcome;
use crate::workspace::Workspace;

/// The test program of the package `hexloom-ggml-backend`.
const TESTS: &str = "against_ggml";
/// The library that they look ggml's functions up in.
const GGML: (&str, &str) = ("HEXLOOM_GGML", "libggml-base.so.0");

/// Builds the tests as the suite does, so that nothing is built twice, and runs them on two devices.
pub(super) fn run(loaded: &Loaded<'_>, workspace: &Workspace, deadline: Instant) -> Result<Outcome> {
    let mut build = process::cargo();
    build
        .args(["test", "--workspace", "--no-run", "--test", TESTS])
        .arg("--message-format=json")
        .current_dir(&workspace.root);
    let mut program = None;
    process::run_lines(&mut build, deadline, |line| {
        program = executable(line).or(program.take())
    })?;
    let program = program.with_context(|| format!("cargo built no test {TESTS}"))?;
    let mut command = loaded.on("sim,sim").with(loaded.peer.run(&program));
    command.env(GGML.0, loaded.peer.libraries().join(GGML.1));
    command.args(["--ignored", "--test-threads=1"]);
    let mut outcome = Outcome::default();
    let mut said = Vec::new();
    let status = process::run_lines(&mut command, deadline, |line| {
        outcome.passed += usize::from(line.starts_with("test ") && line.ends_with("ok") || line == "ok");
        said.push(line.to_owned());
    })?;
    if !status.success() || outcome.passed == 0 {
        outcome.failed += 1;
        outcome
            .failures
            .push(format!("{TESTS} ended with {status}:\n{}", said.join("\n")));
    }
    Ok(outcome)
}

/// The test program in a message of cargo's.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let name = message["target"]["name"].as_str()?;
    (name == TESTS)
        .then(|| message["executable"].as_str().map(PathBuf::from))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_program_is_found_in_cargos_messages() {
        let line =
            r#"{"reason":"compiler-artifact","target":{"name":"against_ggml"},"executable":"/t/against_ggml-1"}"#;
        assert_eq!(executable(line), Some("/t/against_ggml-1".into()));
        assert_eq!(executable(&line.replace("against", "layout")), None);
        assert_eq!(executable("warning: none"), None);
    }
}
