//! The tests of host/fastrpc as a program of the machine: every call of the driver library with success and with each of its
//! documented failures, on the stand-in for that library, which is built beside it.

use anyhow::Result;

use super::Machine;
use crate::dist::build;
use crate::process;
use crate::steps::{Context, Outcome};
use crate::testlog::{Runner, TestLog};

/// The test program.
const TEST: &str = "calls";

/// Builds and runs it.
pub(super) fn run(context: &Context, machine: &Machine) -> Result<Outcome> {
    let program = build::test(&context.workspace, machine.target, TEST, context.deadline)?;
    let mut command = machine.command(&program);
    command
        .arg("--show-output")
        .current_dir(context.workspace.root.join("host/fastrpc"));
    let mut log = TestLog::new(Runner::Libtest);
    let status = process::run_lines(&mut command, context.deadline, |line| {
        if log.line(line) {
            eprintln!("{line}");
        }
    })?;
    Ok(log.finish(status.success()))
}
