//! `cargo xtask aarch64`: the programs of phones and Snapdragon laptops, run here under `qemu-aarch64`.
//!
//! A package for linux-arm64 is made as `dist` makes it. Its program must give the logits of SmolLM2 that the program of
//! this machine gives, bit for bit; then `cargo xtask adb` pushes the package to the stand-in for a phone and runs the cheap
//! part of the case list and the model there. Where the workspace has the stand-in for the driver library, all of it
//! goes through the FastRPC transport; else through the simulator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::dist::build::{self, DRIVER_PACKAGE};
use crate::dist::target::{ARM64_SYSROOT, Target};
use crate::steps::{Context, Outcome};
use crate::workspace::CACHE_VAR;
use crate::{dist, model, process};

/// Texts of which the first is scored, and how far.
const TEXTS: &str = "host/cli/tests/data/smollm2-exact.json";
const TEXTS_ARGS: [&str; 4] = ["--entries", "1", "--steps", "8"];

/// Families of cases that are cheap enough for an emulated processor.
const FAMILIES: [&str; 3] = ["binary", "norm", "rows"];

/// A way to run the program, with a name.
struct Way<'a> {
    name: String,
    program: &'a Path,
    emulator: Option<&'a Path>,
    device: &'a str,
    /// Folder of the driver library.
    driver: Option<&'a Path>,
}

/// Builds, runs, compares. Tools that cannot be had here are a skip.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let (workspace, deadline) = (&context.workspace, context.deadline);
    let target = Target::LinuxArm64;
    let emulator = match target.tools(deadline).and_then(|_| target.emulator(deadline)) {
        Ok(emulator) => emulator,
        Err(missing) => return Ok(Outcome::skip(format!("no programs for 64-bit ARM: {missing:#}"))),
    };
    let libraries = workspace.cache.join("firmware");
    let libraries = libraries.join("libhexloom-v81.so").exists().then_some(libraries);
    let out = workspace.cache.join("dist");
    let package = dist::make(workspace, target, libraries.as_deref(), &out, deadline)?;
    let driver = build::driver(workspace, target, deadline)?;
    let driver = driver.as_deref().and_then(Path::parent);
    let device = if driver.is_some() { "fastrpc" } else { "sim" };
    let native = native_program(context)?;
    let program = package.folder.join("bin/hexloom");
    let emulator = emulator.as_deref();
    let ways = [
        Way {
            name: "this machine, sim".into(),
            program: &native,
            emulator: None,
            device: "sim",
            driver: None,
        },
        Way {
            name: "aarch64, sim".into(),
            program: &program,
            emulator,
            device: "sim",
            driver: None,
        },
        Way {
            name: "aarch64, fastrpc".into(),
            program: &program,
            emulator,
            device: "fastrpc",
            driver,
        },
    ];
    let mut outcome = Outcome::default();
    let ways = ways.iter().filter(|way| way.device == "sim" || way.driver.is_some());
    let logits: Vec<(&str, Vec<u8>)> = ways
        .map(|way| Ok((way.name.as_str(), logits(context, way)?)))
        .collect::<Result<_>>()?;
    for (name, found) in &logits[1..] {
        match first_difference(&logits[0].1, found) {
            None => outcome.passed += 1,
            Some(what) => {
                outcome.failed += 1;
                outcome
                    .failures
                    .push(format!("logits of {name} differ from those of {}: {what}", logits[0].0));
            }
        }
    }
    if driver.is_none() {
        outcome.skipped += 1;
        outcome
            .skips
            .push(format!("no FastRPC: the workspace has no {DRIVER_PACKAGE}"));
    }
    on_the_stand_in(context, &package.folder, emulator, (device, driver))?;
    outcome.passed += 1;
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
fn logits(context: &Context, way: &Way<'_>) -> Result<Vec<u8>> {
    let file = std::env::temp_dir().join(format!("hexloom-logits-{}", std::process::id()));
    let started = Instant::now();
    let mut command = match way.emulator {
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.args(["-L", ARM64_SYSROOT]).arg(way.program);
            command
        }
        None => Command::new(way.program),
    };
    command
        .arg("score")
        .arg(model::ensure(&context.workspace)?)
        .arg("--tokens")
        .arg(context.workspace.root.join(TEXTS))
        .args(TEXTS_ARGS)
        .args(["--device", way.device, "--logits"])
        .arg(&file)
        .envs(way.driver.map(|folder| ("LD_LIBRARY_PATH", folder)));
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

/// The whole way of a package to a phone, by the command line of xtask itself.
fn on_the_stand_in(
    context: &Context,
    package: &Path,
    emulator: Option<&Path>,
    (device, driver): (&str, Option<&Path>),
) -> Result<()> {
    let phone = std::env::temp_dir().join(format!("hexloom-phone-{}", std::process::id()));
    let runner = emulator.map(|emulator| format!("{} -L {ARM64_SYSROOT}", emulator.display()));
    let adb = |words: &[&str]| {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("adb")
            .args(["--folder", &phone.to_string_lossy()])
            .args(words)
            .current_dir(&context.workspace.root)
            .env("ADB", context.workspace.root.join("toolchains/adb/stand-in/adb"))
            .env("HEXLOOM_STAND_IN_RUNNER", runner.as_deref().unwrap_or_default())
            .envs(driver.map(|folder| ("HEXLOOM_STAND_IN_DRIVER", folder)))
            .env(CACHE_VAR, &context.workspace.cache);
        process::run(&mut command, context.deadline)
    };
    let model = model::ensure(&context.workspace)?;
    let model = model.to_string_lossy();
    let mut test = vec!["test", "--device", device];
    test.extend(FAMILIES);
    let done = adb(&["push", &package.to_string_lossy(), "--model", &model])
        .and_then(|()| adb(&test))
        .and_then(|()| adb(&["logs"]));
    // Whatever happened, the phone's folder goes.
    let _ = fs::remove_dir_all(&phone);
    done.context("the package on the stand-in for a phone")
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
