//! The emulator: a transport that runs the cross-compiled firmware image under `qemu-hexagon`.
//!
//! One connection is one emulator process. Shared memory is memfd, passed to it as descriptors over the socket that also
//! carries calls and batches ([`hexloom_abi::control`]); the guest maps it into its real 32-bit address space. What the
//! image writes on its standard error becomes log lines, and so do the log frames on its standard output
//! (`frames`, with the feature `log-texts`); when the process ends, the connection answers [`TransportError::Dead`] with
//! what ended it and its last words.

mod connection;
mod find;
#[cfg(feature = "log-texts")]
pub mod frames;
mod process;
mod socket;

pub use find::{FindError, IMAGE_VAR};

use std::path::PathBuf;
use std::sync::Arc;

use hexloom::transport::{Connection, Core, SessionAt, SharedMemory, Transport, TransportError};

/// Where the emulator and its image are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmuOptions {
    /// The `qemu-hexagon` program.
    pub qemu: PathBuf,
    /// The image that `cargo xtask firmware` builds.
    pub image: PathBuf,
}

/// What the image is built for.
const ARCH: u32 = 67;
/// As many cores as the largest device has.
const N_CORES: u32 = 4;

/// The emulator as a transport.
#[derive(Debug)]
pub struct EmuTransport {
    options: EmuOptions,
}

impl EmuTransport {
    /// An emulator with the given program and image.
    pub fn new(options: EmuOptions) -> Self {
        Self { options }
    }
}

impl Transport for EmuTransport {
    fn name(&self) -> &str {
        "emu"
    }

    fn alloc(&self, bytes: u64) -> Result<SharedMemory, TransportError> {
        hexloom::transport::memfd::alloc(bytes)
    }

    fn cores(&self) -> Result<Vec<Core>, TransportError> {
        let core = |number| Core {
            number,
            name: format!("emu{number}"),
            arch: ARCH,
        };
        Ok((0..N_CORES).map(core).collect())
    }

    /// Every session is a guest process of its own, whatever its core.
    fn open(&self, at: SessionAt) -> Result<Arc<dyn Connection>, TransportError> {
        if at.core >= N_CORES {
            return Err(TransportError::Call {
                call: "open",
                reason: format!("there is no core {}; the emulator has {N_CORES}", at.core),
                code: 0,
            });
        }
        Ok(Arc::new(connection::EmuConnection::open(&self.options)?))
    }
}
