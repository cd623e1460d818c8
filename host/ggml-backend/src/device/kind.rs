//! What a device runs on, by the word of `HEXLOOM_DEVICES`.

use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

use hexloom::{SessionOptions, Transport};
use hexloom_emu::{EmuOptions, EmuTransport};
use hexloom_fastrpc::{FastRpcOptions, FastRpcTransport};
use hexloom_sim::{NullTransport, SimTransport};

use crate::error::BackendError;

/// What a device runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The simulator in this process.
    Sim,
    /// The firmware image on an emulated Hexagon.
    Emu,
    /// The NPU of this phone or laptop.
    FastRpc,
    /// Answers at once without computing, for measuring the host.
    Null,
    /// Takes graphs and does not even look at them, for telling the back end's share from ggml's.
    Nothing,
}

impl Kind {
    pub(crate) fn parse(word: &str) -> Result<Self, BackendError> {
        match word {
            "sim" => Ok(Self::Sim),
            "emu" => Ok(Self::Emu),
            "fastrpc" => Ok(Self::FastRpc),
            "null" => Ok(Self::Null),
            "nothing" => Ok(Self::Nothing),
            _ => Err(BackendError::UnknownDevice(word.to_owned())),
        }
    }

    pub(super) fn description(self) -> &'static CStr {
        match self {
            Self::Sim => c"Hexagon NPU, simulated",
            Self::Emu => c"Hexagon NPU, emulated",
            Self::FastRpc => c"Hexagon NPU",
            Self::Null => c"no NPU: answers without computing",
            Self::Nothing => c"no NPU: does nothing",
        }
    }

    pub(super) fn transport(self) -> Result<Arc<dyn Transport>, BackendError> {
        Ok(match self {
            Self::Sim => Arc::new(SimTransport::default()),
            Self::Emu => Arc::new(EmuTransport::new(EmuOptions::find()?)),
            Self::FastRpc => Arc::new(FastRpcTransport::open(FastRpcOptions::default())?),
            Self::Null | Self::Nothing => Arc::new(NullTransport),
        })
    }

    /// Longest wait for a reply.
    pub(super) fn deadline(self) -> Duration {
        match self {
            // A prompt takes a minute there, more on a busy machine.
            Self::Emu => Duration::from_secs(900),
            Self::Sim | Self::FastRpc | Self::Null | Self::Nothing => SessionOptions::default().deadline,
        }
    }
}
