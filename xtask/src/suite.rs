//! The test suite: nextest where it is installed, cargo's own runner otherwise.

use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use crate::steps::{Context, Outcome};
use crate::testlog::{Runner, TestLog};
use crate::workspace::CACHE_VAR;
use crate::{firmware, process};

/// Unit, property and conformance tests of every crate; examples and benches are built as well.
pub(crate) fn all_but_doc(context: &Context) -> Result<Outcome> {
    let mut command = cargo(context);
    if process::works(process::cargo().arg("nextest")) {
        let folder = context.workspace.root.join("xtask/nextest.toml");
        command
            .args(["nextest", "run", "--workspace", "--color=never"])
            .arg("--config-file")
            .arg(folder);
        return run(&mut command, context.deadline, Runner::Nextest);
    }
    eprintln!("cargo-nextest is not installed: running the tests with cargo test");
    command.args(["test", "--workspace", "--lib", "--bins", "--tests"]);
    command.args(["--no-fail-fast", "--color=never", "--", "--show-output"]);
    run(&mut command, context.deadline, Runner::Libtest)
}

/// nextest has no documentation tests, so they are a step of their own.
pub(crate) fn doc(context: &Context) -> Result<Outcome> {
    let mut command = cargo(context);
    command.args(["test", "--workspace", "--doc", "--no-fail-fast", "--color=never"]);
    run(&mut command, context.deadline, Runner::Libtest)
}

fn cargo(context: &Context) -> Command {
    let mut command = process::cargo();
    command
        .current_dir(&context.workspace.root)
        .env(CACHE_VAR, &context.workspace.cache)
        .envs(firmware::emulator_image(&context.workspace).map(|image| (firmware::IMAGE_VAR, image)));
    command
}

fn run(command: &mut Command, deadline: Instant, runner: Runner) -> Result<Outcome> {
    let mut log = TestLog::new(runner);
    let status = process::run_lines(command, deadline, |line| {
        if log.line(line) {
            eprintln!("{line}");
        }
    })?;
    Ok(log.finish(status.success()))
}
