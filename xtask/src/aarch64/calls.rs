//! Tests of the FastRPC transport as programs of the machine, on the stand-in for the driver library, which is built
//! beside them: every call with success and with each of its documented failures; then whole sessions, listings,
//! reservations, groups that wait for each other, mappings outside the window.

use std::path::Path;

use anyhow::Result;

use super::Machine;
use crate::dist::build;
use crate::process;
use crate::steps::{Context, Outcome};
use crate::testlog::{Runner, TestLog};

/// Folders of packages with the names of their tests, and tests that are left out: the case list runs on the stand-in for a
/// phone, by the package's own program.
const TESTS: [(&str, &str); 2] = [("host/fastrpc", "calls"), ("host/conformance", "fastrpc")];
const LEFT_OUT: &str = "every_case_as_on_the_simulator";

/// Builds and runs them.
pub(super) fn run(context: &Context, machine: &Machine) -> Result<Outcome> {
    let programs = build::tests(&context.workspace, machine.target, TESTS, context.deadline)?;
    let mut outcome = Outcome::default();
    for ((folder, _), program) in TESTS.iter().zip(&programs) {
        outcome.add(run_one(
            context,
            machine,
            &context.workspace.root.join(folder),
            program,
        )?);
    }
    Ok(outcome)
}

fn run_one(context: &Context, machine: &Machine, folder: &Path, program: &Path) -> Result<Outcome> {
    let mut command = machine.command(program);
    command.args(["--show-output", "--skip", LEFT_OUT]).current_dir(folder);
    let mut log = TestLog::new(Runner::Libtest);
    let status = process::run_lines(&mut command, context.deadline, |line| {
        if log.line(line) {
            eprintln!("{line}");
        }
    })?;
    Ok(log.finish(status.success()))
}
