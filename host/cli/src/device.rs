//! The devices that a model can run on, by name.

use std::sync::Arc;
use std::time::Duration;

use hexloom::{SessionOptions, Transport};
use hexloom_emu::{EmuOptions, EmuTransport, FindError};
use hexloom_sim::{NullTransport, SimOptions, SimTransport};

/// A device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Device {
    Sim,
    Emu,
    Null,
}

impl Device {
    pub(crate) const ALL: [Self; 3] = [Self::Sim, Self::Emu, Self::Null];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Emu => "emu",
            Self::Null => "null",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Sim => "runs the DSP code in this process",
            Self::Emu => "runs the firmware image on an emulated Hexagon, slowly",
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

    /// The way to it, behaving like `arch` where that can be chosen; an error says what this machine lacks.
    pub(crate) fn transport(self, arch: Option<u32>) -> Result<Arc<dyn Transport>, FindError> {
        Ok(match self {
            Self::Sim => {
                let mut options = SimOptions::default();
                options.arch = arch.unwrap_or(options.arch);
                Arc::new(SimTransport::new(options))
            }
            Self::Emu => Arc::new(EmuTransport::new(EmuOptions::find()?)),
            Self::Null => Arc::new(NullTransport),
        })
    }

    /// Longest wait for a reply.
    pub(crate) fn deadline(self) -> Duration {
        match self {
            // A prompt takes a minute there, more on a busy machine.
            Self::Emu => Duration::from_secs(900),
            Self::Sim | Self::Null => SessionOptions::default().deadline,
        }
    }

    /// The kernels that run there.
    pub(crate) fn kernels(self) -> String {
        match self {
            Self::Sim => format!("{:?}", SimTransport::default().kernels()).to_lowercase(),
            Self::Emu => "hvx".to_owned(),
            Self::Null => "none".to_owned(),
        }
    }
}
