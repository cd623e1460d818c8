//! The devices that a model can run on, by name.

use std::sync::Arc;

use hexloom::Transport;
use hexloom_sim::{NullTransport, SimTransport};

/// A device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Device {
    Sim,
    Null,
}

impl Device {
    pub(crate) const ALL: [Self; 2] = [Self::Sim, Self::Null];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Null => "null",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Sim => "runs the DSP code in this process",
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

    pub(crate) fn transport(self) -> Arc<dyn Transport> {
        match self {
            Self::Sim => Arc::new(SimTransport::default()),
            Self::Null => Arc::new(NullTransport),
        }
    }

    /// The kernels that run there.
    pub(crate) fn kernels(self) -> String {
        match self {
            Self::Sim => format!("{:?}", SimTransport::default().kernels()).to_lowercase(),
            Self::Null => "none".to_owned(),
        }
    }
}
