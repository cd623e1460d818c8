//! The command line, and the arguments that several commands share.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use hexloom::abi::limits::MAX_THREADS;
use hexloom::device::{DeviceList, DeviceListError};
use hexloom::{MatrixUnit, Session, SessionOptions};
use hexloom_models::llama::Split;

use crate::commands::{bench, devices, doctor, plan, profile, run, score};
use crate::device::{Device, DeviceChoice};
use crate::failure::Failure;

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
    Doctor(doctor::Args),
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
    /// Sessions to spread the model over: how many on core 0, or a list such as HTP0,HTP1:1 or NPU[0-1].
    #[arg(long, value_name = "LIST", default_value = "1", value_parser = device_list)]
    pub(crate) devices: DeviceList,
    /// How the model is spread over several sessions.
    #[arg(long, value_enum, value_name = "WAY", default_value_t)]
    pub(crate) split: SplitArg,
    /// Driver library of the device; without it, the one that HEXLOOM_CDSPRPC names or the system has.
    #[arg(long, value_name = "FILE")]
    pub(crate) cdsprpc: Option<PathBuf>,
    /// Architecture that the simulator behaves like, or that the device has when its driver does not say; for instance 81.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(68..=81))]
    pub(crate) arch: Option<u32>,
    /// Bytes of the device's 32-bit window to use; without it, all that there is.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) window: Option<u64>,
    /// Map the weights outside the 32-bit window (v81 and later).
    #[arg(long)]
    pub(crate) extended: bool,
    /// Whether many-row products and attention run on the DSP's matrix unit.
    #[arg(long, value_enum, value_name = "USE", default_value_t)]
    pub(crate) matrix_unit: MatrixUnitArg,
}

/// A device list; the fault in one line, as every message here.
fn device_list(text: &str) -> Result<DeviceList, String> {
    let list: Result<DeviceList, DeviceListError> = text.parse();
    list.map_err(|error| format!("character {}: {}", error.at + 1, error.what))
}

/// How a model is spread over sessions.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum SplitArg {
    /// Each session computes some of the layers
    #[default]
    Layers,
    /// Each session computes its segment of every layer
    Segments,
}

/// Use of the matrix unit.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum MatrixUnitArg {
    /// Where the device has one
    #[default]
    Auto,
    /// Never
    Off,
    /// Where the device has one, elsewhere its software model, slowly
    Model,
}

/// Which kernels run.
#[derive(clap::Args)]
pub(crate) struct ExactArg {
    /// Run the plain f32 reference kernels: slow, and as exact as f32 is; on the simulator only.
    #[arg(long)]
    pub(crate) exact: bool,
}

impl SessionArgs {
    /// Options of the session that these arguments ask for.
    pub(crate) fn options(&self, exact: bool) -> SessionOptions {
        SessionOptions {
            extended_weights: self.extended,
            window_bytes: self.window.unwrap_or(0),
            n_threads: self.threads.unwrap_or(0),
            reference: exact,
            matrix_unit: self.matrix_unit.into(),
            deadline: self.device.deadline(),
            ..SessionOptions::default()
        }
    }
}

impl SessionArgs {
    /// Opens every session of the list.
    pub(crate) fn sessions(&self, options: &SessionOptions) -> Result<Vec<Session>, Failure> {
        let choice = DeviceChoice {
            arch: self.arch,
            library: self.cdsprpc.clone(),
        };
        let transport = self.device.transport(&choice)?;
        let devices = self.devices.devices().iter();
        let sessions = devices.map(|device| Session::open(Arc::clone(&transport), options.on(device)));
        Ok(sessions.collect::<Result<_, _>>()?)
    }

    /// How the model is spread over `sessions`.
    pub(crate) fn spread(&self, sessions: &[Session]) -> Split {
        match self.split {
            SplitArg::Layers => Split::layers(sessions),
            SplitArg::Segments => Split::segments(sessions),
        }
    }
}

impl From<MatrixUnitArg> for MatrixUnit {
    fn from(arg: MatrixUnitArg) -> Self {
        match arg {
            MatrixUnitArg::Auto => Self::Auto,
            MatrixUnitArg::Off => Self::Off,
            MatrixUnitArg::Model => Self::Model,
        }
    }
}
