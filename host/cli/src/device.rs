//! The devices that a model can run on, by name.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hexloom::{SessionOptions, Transport};
use hexloom_emu::{EmuOptions, EmuTransport, FindError};
use hexloom_fastrpc::{FastRpcOptions, FastRpcTransport, LoadError};
use hexloom_sim::{NullTransport, SimOptions, SimTransport};

/// A device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Device {
    Sim,
    Emu,
    FastRpc,
    Null,
}

/// What this machine lacks for a device.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    #[error(transparent)]
    Emu(#[from] FindError),
    #[error(transparent)]
    FastRpc(#[from] LoadError),
}

impl DeviceError {
    /// The device.
    pub(crate) fn device(&self) -> Device {
        match self {
            Self::Emu(_) => Device::Emu,
            Self::FastRpc(_) => Device::FastRpc,
        }
    }
}

/// What can be chosen about a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceChoice {
    /// Architecture: what the simulator behaves like, or what a driver that does not say has.
    pub(crate) arch: Option<u32>,
    /// The driver library of a phone or laptop.
    pub(crate) library: Option<PathBuf>,
}

impl Device {
    pub(crate) const ALL: [Self; 4] = [Self::Sim, Self::Emu, Self::FastRpc, Self::Null];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Emu => "emu",
            Self::FastRpc => "fastrpc",
            Self::Null => "null",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Sim => "runs the DSP code in this process",
            Self::Emu => "runs the firmware image on an emulated Hexagon, slowly",
            Self::FastRpc => "runs on the NPU of this phone or laptop",
            Self::Null => "answers every batch at once without computing, to measure the host alone",
        }
    }

    /// The device `name`; otherwise a sentence that lists those there are.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|device| device.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("there is no such device; there are {known}")
        })
    }

    /// The way to it; an error says what this machine lacks.
    pub(crate) fn transport(self, choice: &DeviceChoice) -> Result<Arc<dyn Transport>, DeviceError> {
        Ok(match self {
            Self::Sim => {
                let mut options = SimOptions::default();
                options.arch = choice.arch.unwrap_or(options.arch);
                Arc::new(SimTransport::new(options))
            }
            Self::Emu => Arc::new(EmuTransport::new(EmuOptions::find()?)),
            Self::FastRpc => Arc::new(FastRpcTransport::open(choice.fastrpc())?),
            Self::Null => Arc::new(NullTransport),
        })
    }

    /// Longest wait for a reply.
    pub(crate) fn deadline(self) -> Duration {
        match self {
            // A prompt takes a minute there, more on a busy machine.
            Self::Emu => Duration::from_secs(900),
            Self::Sim | Self::FastRpc | Self::Null => SessionOptions::default().deadline,
        }
    }

    /// The kernels that run there.
    pub(crate) fn kernels(self) -> String {
        match self {
            Self::Sim => format!("{:?}", SimTransport::default().kernels()).to_lowercase(),
            Self::Emu | Self::FastRpc => "hvx".to_owned(),
            Self::Null => "none".to_owned(),
        }
    }
}

impl DeviceChoice {
    /// The same for a phone or laptop.
    pub(crate) fn fastrpc(&self) -> FastRpcOptions {
        FastRpcOptions {
            library: self.library.clone(),
            arch: self.arch,
            ..FastRpcOptions::default()
        }
    }
}
