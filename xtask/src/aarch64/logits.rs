//! All logits of some steps of SmolLM2, by each way to run the program: bit for bit those of this machine's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::Machine;
use crate::steps::{Context, Outcome};
use crate::{model, process};

/// Texts of which the first is scored, and how far.
const TEXTS: &str = "host/cli/tests/data/smollm2-exact.json";
const TEXTS_ARGS: [&str; 4] = ["--entries", "1", "--steps", "8"];

/// A way to run the program, with a name.
struct Way<'a> {
    name: &'a str,
    command: Command,
    device: &'a str,
}

/// Compares every way to run `program`, the machine's own, with the program of this machine.
pub(super) fn compare(context: &Context, machine: &Machine, program: &Path) -> Result<Outcome> {
    let native = Way {
        name: "this machine, sim",
        command: Command::new(native_program(context)?),
        device: "sim",
    };
    let ways = [("aarch64, sim", "sim"), ("aarch64, fastrpc", "fastrpc")].map(|(name, device)| {
        let mut command = machine.command(program);
        command.env("LD_LIBRARY_PATH", &machine.driver);
        Way { name, command, device }
    });
    let mut outcome = Outcome::default();
    let name = native.name;
    let expected = logits(context, native)?;
    for way in ways {
        let other = way.name;
        match first_difference(&expected, &logits(context, way)?) {
            None => outcome.passed += 1,
            Some(what) => {
                outcome.failed += 1;
                let what = format!("logits of {other} differ from those of {name}: {what}");
                outcome.failures.push(what);
            }
        }
    }
    Ok(outcome)
}

/// The program of this machine as the tests have it.
fn native_program(context: &Context) -> Result<PathBuf> {
    let mut command = process::cargo();
    command
        .args(["build", "--workspace", "--profile", "test", "--bin", "hexloom"])
        .current_dir(&context.workspace.root);
    process::run(&mut command, context.deadline)?;
    Ok(context.workspace.target().join("debug/hexloom"))
}

/// All logits of the first steps of a text, as the program writes them.
fn logits(context: &Context, way: Way<'_>) -> Result<Vec<u8>> {
    let file = std::env::temp_dir().join(format!("hexloom-logits-{}", std::process::id()));
    let started = Instant::now();
    let mut command = way.command;
    command
        .arg("score")
        .arg(model::ensure(&context.workspace)?)
        .arg("--tokens")
        .arg(context.workspace.root.join(TEXTS))
        .args(TEXTS_ARGS)
        .args(["--device", way.device, "--logits"])
        .arg(&file);
    let mut said = Vec::new();
    let status = process::run_lines(&mut command, context.deadline, |line| said.push(line.to_owned()))?;
    if !status.success() {
        bail!("{}: hexloom score failed ({status}):\n{}", way.name, said.join("\n"));
    }
    let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    fs::remove_file(&file)?;
    eprintln!(
        "{}: {} logits in {:.1} s",
        way.name,
        bytes.len() / 4,
        started.elapsed().as_secs_f64()
    );
    Ok(bytes)
}

/// Where two files of logits differ, in words.
fn first_difference(expected: &[u8], found: &[u8]) -> Option<String> {
    if expected.len() != found.len() || expected.is_empty() {
        return Some(format!("{} and {} bytes", expected.len(), found.len()));
    }
    let at = expected.iter().zip(found).position(|(a, b)| a != b)?;
    Some(format!("number {} of {}", at / 4, expected.len() / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_differ_by_length_or_by_a_bit() {
        assert_eq!(first_difference(&[1, 2, 3, 4], &[1, 2, 3, 4]), None);
        assert_eq!(
            first_difference(&[0; 8], &[0, 0, 0, 0, 0, 1, 0, 0]).unwrap(),
            "number 1 of 2"
        );
        assert_eq!(first_difference(&[0; 8], &[0; 4]).unwrap(), "8 and 4 bytes");
        assert!(first_difference(&[], &[]).is_some());
    }
}
