//! `hexloom doctor`: looks at everything between a program and the NPU, in the order in which it is needed, and says for
//! each fault the one thing to do.

mod canary;
mod checks;
mod library;
mod nodes;
mod selftest;
mod signature;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use crate::device::DeviceChoice;
use crate::failure::Failure;
use crate::output;

/// Check the driver, the cores, the library for the DSP, and what they compute.
///
/// Exit code 0: everything that is needed works. 1: something does not; what to do stands beside it.
///
/// The variable HEXLOOM_PROCESS chooses the kind of process that sessions are opened in, `unsigned` or `signed`. Without it,
/// they are unsigned where the driver allows that.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Driver library of the device; without it, the one that HEXLOOM_CDSPRPC names or the system has.
    #[arg(long, value_name = "FILE")]
    cdsprpc: Option<PathBuf>,
    /// Architecture of the device when its driver does not say; for instance 81.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(68..=81))]
    arch: Option<u32>,
    /// Core to look at.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..16))]
    core: u32,
    /// A model: two prompts must be continued differently, and each as on the simulator.
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// How a check has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Ok,
    /// Works, with less than there could be.
    Warning,
    /// Does not work.
    Failed,
    /// Was not looked at.
    Skipped,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    /// What was found.
    found: String,
    /// What to do; nothing where all is well.
    remedy: Option<String>,
    /// A session that opens shows that it does not matter.
    #[serde(skip)]
    is_suspicion: bool,
}

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    /// Names of the checks that were not made.
    skipped: Vec<&'static str>,
    checks: Vec<Check>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, State::Ok, found, None)
    }

    fn warning(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(name, State::Warning, found, Some(remedy.into()))
    }

    fn failed(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(name, State::Failed, found, Some(remedy.into()))
    }

    /// What keeps sessions from opening, as far as can be told before one is: a failure, until [`Check::acquit`].
    fn suspicion(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            is_suspicion: true,
            ..Self::failed(name, found, remedy)
        }
    }

    /// A session has opened all the same: what was a suspicion only is a warning.
    fn acquit(&mut self) {
        if self.is_suspicion && self.state == State::Failed {
            self.state = State::Warning;
        }
    }

    fn skipped(name: &'static str, why: impl Into<String>) -> Self {
        Self::new(name, State::Skipped, why, None)
    }

    fn new(name: &'static str, state: State, found: impl Into<String>, remedy: Option<String>) -> Self {
        let found = found.into();
        Self {
            name,
            state,
            found,
            remedy,
            is_suspicion: false,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let choice = DeviceChoice {
        arch: args.arch,
        library: args.cdsprpc.clone(),
    };
    let checks = checks::all(&choice, args.core, args.model.as_deref());
    let skipped = checks.iter().filter(|check| check.state == State::Skipped);
    let report = Report {
        ok: checks.iter().all(|check| check.state != State::Failed),
        skipped: skipped.map(|check| check.name).collect(),
        checks,
    };
    match args.json {
        true => output::print_json(&report)?,
        false => output::print(&text(&report))?,
    }
    Ok(ExitCode::from(u8::from(!report.ok)))
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for Check {
        name,
        state,
        found,
        remedy,
        ..
    } in &report.checks
    {
        let state = match state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Failed => "FAILED",
            State::Skipped => "skipped",
        };
        let _ = writeln!(
            text,
            "{state:<8} {name:<16} {}",
            found.replace('\n', "\n                          ")
        );
        if let Some(remedy) = remedy {
            let _ = writeln!(text, "{:<25} -> {remedy}", "");
        }
    }
    let verdict = match report.ok {
        true => "the NPU can be used",
        false => "the NPU cannot be used yet; begin with the first failure",
    };
    text += verdict;
    if report.ok && !report.skipped.is_empty() {
        let _ = write!(text, "; not checked: {}", report.skipped.join(", "));
    }
    text.push('\n');
    text
}
