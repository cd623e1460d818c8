//! The command line, and the arguments that several commands share.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use hexloom::SessionOptions;
use hexloom::abi::limits::MAX_THREADS;

use crate::commands::{bench, devices, plan, profile, run, score};
use crate::device::Device;

/// Run GGUF models on Hexagon NPUs.
///
/// Results go to standard output, progress and timing to standard error. Exit code 0: done. 1: the work failed. 2: bad
/// usage or input. 130: ended by Ctrl-C.
#[derive(Parser)]
#[command(name = "hexloom", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    Run(run::Args),
    Score(score::Args),
    Bench(bench::Args),
    Plan(plan::Args),
    Profile(profile::Args),
    Devices(devices::Args),
}

/// The model.
#[derive(clap::Args)]
pub(crate) struct ModelArg {
    /// GGUF file of the model.
    #[arg(value_name = "MODEL")]
    pub(crate) path: PathBuf,
}

/// Where and how a model runs.
#[derive(clap::Args)]
pub(crate) struct SessionArgs {
    /// Device to run on; `hexloom devices` lists them.
    #[arg(long, default_value = "sim", value_parser = Device::parse)]
    pub(crate) device: Device,
    /// DSP threads; without it, all that the device has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_THREADS)))]
    pub(crate) threads: Option<u32>,
}

/// Which kernels run.
#[derive(clap::Args)]
pub(crate) struct ExactArg {
    /// Run the plain f32 reference kernels: slow, and as exact as f32 is.
    #[arg(long)]
    pub(crate) exact: bool,
}

impl SessionArgs {
    /// Options of the session that these arguments ask for.
    pub(crate) fn options(&self, exact: bool) -> SessionOptions {
        SessionOptions {
            n_threads: self.threads.unwrap_or(0),
            reference: exact,
            deadline: self.device.deadline(),
            ..SessionOptions::default()
        }
    }
}
