//! `hexloom devices`: what a model can run on.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use hexloom::{OpenError, Session, SessionOptions, Transport};
use serde::Serialize;

use crate::budget;
use crate::device::{Device, DeviceChoice};
use crate::failure::Failure;
use crate::output::{self, mib};

/// List the devices and what they have.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Find out by trial how much can be mapped: on a phone or laptop this takes up to half of the available memory for a
    /// moment.
    #[arg(long)]
    measure: bool,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
}

/// A device, with what it has or what it lacks.
#[derive(Serialize)]
struct Report {
    name: &'static str,
    about: &'static str,
    /// What this machine lacks for it.
    missing: Option<String>,
    #[serde(flatten)]
    has: Option<Has>,
}

/// What a device has.
#[derive(Serialize)]
struct Has {
    /// Instruction set version that it behaves like.
    arch: u32,
    threads: u32,
    scratch_bytes: u64,
    window_bytes: u64,
    /// Bytes that fresh mappings could fill in the window, found by mapping; with nothing mapped, what a model can have.
    /// Nothing when that was not measured.
    budget_bytes: Option<u64>,
    /// Why the budget may be larger than was found.
    budget_doubt: Option<String>,
    /// Cores, by number.
    cores: Vec<String>,
    /// Kernels in use.
    kernels: String,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let reports = Device::ALL.into_iter().map(|device| ask(device, args.measure));
    let reports: Vec<Report> = reports.collect();
    match args.json {
        true => output::print_json(&reports)?,
        false => output::print(&table(&reports))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a session, as `run` would, to see what the device has. One that does not open is listed with the reason.
fn ask(device: Device, measures: bool) -> Report {
    let transport = device
        .transport(&DeviceChoice::default())
        .map_err(|missing| missing.to_string());
    let opened = transport.and_then(|transport| has(device, transport, measures).map_err(|error| error.to_string()));
    let (missing, has) = match opened {
        Ok(has) => (None, Some(has)),
        Err(why) => (Some(why), None),
    };
    Report {
        name: device.name(),
        about: device.about(),
        missing,
        has,
    }
}

fn has(device: Device, transport: Arc<dyn Transport>, measures: bool) -> Result<Has, OpenError> {
    let options = SessionOptions::default();
    let budget = match (measures, device) {
        (false, _) => None,
        (true, Device::FastRpc) => Some(budget::measure(&*transport, options.at)?),
        (true, _) => Some(budget::measure_unbounded(&*transport, options.at)?),
    };
    let cores = transport.cores().map_err(|source| OpenError::Step {
        transport: device.name().to_owned(),
        at: options.at,
        step: "listing the cores",
        source,
    })?;
    let session = Session::open(transport, options)?;
    let hw = *session.hw();
    let usable = |bytes: u64| bytes.min(hw.window_bytes).saturating_sub(session.pinned_bytes());
    Ok(Has {
        arch: hw.arch,
        threads: session.n_threads(),
        scratch_bytes: hw.scratch_bytes,
        window_bytes: hw.window_bytes,
        budget_bytes: budget.as_ref().map(|budget| usable(budget.measured.bytes)),
        budget_doubt: budget.and_then(|budget| budget.doubt()),
        cores: cores.into_iter().map(|core| core.name).collect(),
        kernels: device.kernels(),
    })
}

fn table(reports: &[Report]) -> String {
    let mut text = format!(
        "{:<8} {:<6} {:>5} {:>7} {:>10} {:>10} {:>10}  {:<8} {}\n",
        "device", "arch", "cores", "threads", "scratch", "window", "budget", "kernels", "what it does"
    );
    for report in reports {
        let Report { name, about, .. } = report;
        let _ = match (&report.has, &report.missing) {
            (Some(has), _) => {
                let arch = format!("v{}", has.arch);
                let (scratch, window) = (mib(has.scratch_bytes), mib(has.window_bytes));
                let budget = has.budget_bytes.map_or_else(|| "-".to_owned(), mib);
                let cores = has.cores.len();
                let Has { threads, kernels, .. } = has;
                writeln!(
                    text,
                    "{name:<8} {arch:<6} {cores:>5} {threads:>7} {scratch:>10} {window:>10} {budget:>10}  {kernels:<8} {about}"
                )
            }
            (None, missing) => writeln!(text, "{name:<8} not here: {}", missing.as_deref().unwrap_or_default()),
        };
        if let Some(doubt) = report.has.as_ref().and_then(|has| has.budget_doubt.as_ref()) {
            let _ = writeln!(text, "{:<8} budget: {doubt}", "");
        }
    }
    text
}
