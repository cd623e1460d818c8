//! FastRPC: a transport to the DSPs of a phone or laptop, over the driver library of the device.
//!
//! The library (`libcdsprpc`) is opened at run time and stays open for the life of the program, as threads of its own run.
//! Versions differ in which calls they have: [`calls::CALLS`] lists each with what is done without it. Calls that wait for
//! a DSP run on a thread of the connection's, so that one which never comes back ends in an error and not in a hang.
//!
//! Reading order: [`find`] (where the library is), [`calls`], `driver` (each call as a safe function), `domains` (which
//! DSPs there are), `place` (a session's names), [`process`] (signed or unsigned), `connection`, `queue`, `worker`,
//! `notices`.

pub mod calls;
mod connection;
mod domains;
mod driver;
pub mod find;
mod mapped;
mod notices;
mod place;
pub mod process;
mod queue;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hexloom::transport::{Connection, Core, SessionAt, SharedMemory, Transport, TransportError};

pub use calls::LoadError;
pub use find::LIBRARY_VAR;
pub use process::PROCESS_VAR;

use connection::FastRpcConnection;
use domains::Domain;
use driver::Driver;
use place::Places;

/// How a device is used. The default finds everything out.
#[derive(Clone, Debug)]
pub struct FastRpcOptions {
    /// The driver library; `None` = what [`LIBRARY_VAR`] names, else the places of [`find::candidates`].
    pub library: Option<PathBuf>,
    /// Architecture of the DSPs; `None` = as the driver says.
    pub arch: Option<u32>,
    /// Open processes that take unsigned libraries; `None` = what [`PROCESS_VAR`] names, else unsigned ones unless the
    /// driver says that the core takes none.
    pub unsigned: Option<bool>,
    /// How soon the host's processor is to be ready for an answer, in microseconds; 0 = it may sleep.
    pub latency_us: u32,
    /// Longest time that a call without a deadline of its own may take.
    pub call_timeout: Duration,
}

impl Default for FastRpcOptions {
    fn default() -> Self {
        Self {
            library: None,
            arch: None,
            unsigned: None,
            latency_us: 100,
            call_timeout: Duration::from_secs(30),
        }
    }
}

/// A device's DSPs as a transport.
pub struct FastRpcTransport {
    driver: Arc<Driver>,
    options: FastRpcOptions,
    places: Places,
}

/// What the driver says of one DSP; `None` where it does not say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoreFacts {
    /// Its number, from 0.
    pub number: u32,
    /// The driver's name for it.
    pub name: String,
    /// The driver's number for it.
    pub domain: u32,
    /// Architecture number.
    pub arch: Option<u32>,
    /// Whether processes there may take unsigned libraries.
    pub takes_unsigned: Option<bool>,
    /// Whether sessions there ask for such a process.
    pub unsigned: bool,
}

impl FastRpcTransport {
    /// Opens the driver library. No DSP is touched yet.
    pub fn open(options: FastRpcOptions) -> Result<Self, LoadError> {
        let unsigned = process::wanted(options.unsigned)?;
        let calls = calls::open(&find::files(options.library.as_deref()))?;
        Ok(Self {
            driver: Arc::new(Driver::new(calls)),
            options: FastRpcOptions { unsigned, ..options },
            places: Places::default(),
        })
    }

    /// The driver library, by the name that it was opened by.
    pub fn library(&self) -> &Path {
        self.driver.library()
    }

    /// The file that this was, when the system tells: a bare name is looked for in folders of the system's.
    pub fn library_file(&self) -> Option<PathBuf> {
        mapped::file(self.driver.calls.remote_handle64_open as usize)
    }

    /// Calls that the driver library lacks.
    pub fn missing_calls(&self) -> Vec<&'static str> {
        self.driver.missing_calls()
    }

    /// What the driver says of each DSP.
    pub fn facts(&self) -> Result<Vec<CoreFacts>, TransportError> {
        let facts = |domain: Domain| CoreFacts {
            number: domain.number,
            arch: self.driver.arch(domain.id).ok(),
            takes_unsigned: self.driver.takes_unsigned(domain.id),
            unsigned: self.driver.calls.remote_session_control.is_some()
                && process::is_unsigned(self.options.unsigned, &self.driver, domain.id),
            name: domain.name,
            domain: domain.id,
        };
        Ok(domains::all(&self.driver)?.into_iter().map(facts).collect())
    }

    /// The file that the DSP is asked to open for an architecture.
    pub fn library_for(arch: u32) -> String {
        place::library_file(arch)
    }

    fn arch(&self, domain: &Domain) -> Result<u32, TransportError> {
        self.options.arch.map_or_else(|| self.driver.arch(domain.id), Ok)
    }
}

impl Transport for FastRpcTransport {
    fn name(&self) -> &str {
        "fastrpc"
    }

    fn alloc(&self, bytes: u64) -> Result<SharedMemory, TransportError> {
        driver::alloc(&self.driver, bytes)
    }

    fn cores(&self) -> Result<Vec<Core>, TransportError> {
        let core = |domain: Domain| {
            Ok(Core {
                number: domain.number,
                arch: self.arch(&domain)?,
                name: domain.name,
            })
        };
        domains::all(&self.driver)?.into_iter().map(core).collect()
    }

    fn open(&self, at: SessionAt) -> Result<Arc<dyn Connection>, TransportError> {
        let domain = domains::at(&self.driver, at.core)?;
        let arch = self.arch(&domain)?;
        let place = self.places.at(&self.driver, &domain, at)?;
        let connection = FastRpcConnection::open(Arc::clone(&self.driver), place, arch, &self.options)?;
        Ok(Arc::new(connection))
    }
}

impl std::fmt::Debug for FastRpcTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FastRpcTransport({})", self.library().display())
    }
}
