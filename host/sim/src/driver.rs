//! The simulated driver: which sessions are open where, and what all of them hold.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use hexloom::transport::{Core, SessionAt, SharedMemory, TransportError, aee};

use crate::SimOptions;
use crate::calls::{Call, CallName, Calls};
use crate::fault::CallFault;
use crate::harsh::Dice;
use crate::platform::lock;
use crate::process::Process;
use crate::tally::Tally;

/// State of a [`crate::SimTransport`].
pub(crate) struct Driver {
    pub(crate) options: SimOptions,
    pub(crate) calls: Arc<Calls>,
    pub(crate) tally: Arc<Tally>,
    dice: Dice,
    open: Mutex<HashMap<SessionAt, Weak<Process>>>,
    breaches: Mutex<Vec<String>>,
}

impl Driver {
    pub(crate) fn new(options: SimOptions) -> Self {
        Self {
            calls: Arc::new(Calls::new(options.faults.clone())),
            tally: Arc::default(),
            dice: Dice::new(options.harsh.seed),
            open: Mutex::default(),
            breaches: Mutex::default(),
            options,
        }
    }

    pub(crate) fn cores(&self) -> Result<Vec<Core>, TransportError> {
        self.enter(CallName::Cores, None)?;
        let cores = (0..self.options.n_cores).map(|number| Core {
            number,
            name: format!("sim{number}"),
            arch: self.options.arch,
        });
        Ok(cores.collect())
    }

    pub(crate) fn alloc(self: &Arc<Self>, bytes: u64) -> Result<SharedMemory, TransportError> {
        self.enter(CallName::Alloc, None)?;
        let memory = hexloom::transport::memfd::alloc(bytes)?;
        let (ptr, bytes, fd) = (memory.as_ptr(), memory.bytes(), memory.fd());
        let held = [self.tally.allocations.take(1), self.tally.allocated_bytes.take(bytes)];
        let driver = Arc::clone(self);
        let release = move || {
            driver.released(fd);
            drop(memory);
            drop(held);
        };
        // SAFETY: the bytes are those of `memory`, which lives until `release` has run, and nobody else frees them.
        Ok(unsafe { SharedMemory::new(ptr, bytes, fd, release) })
    }

    /// Reserves a place and gives its process.
    pub(crate) fn open(&self, at: SessionAt) -> Result<Arc<Process>, TransportError> {
        self.enter(CallName::Open, Some(at))?;
        let SessionAt { core, session } = at;
        let failed = |code, what: String| Err(aee::failed("open", code, what));
        if core >= self.options.n_cores {
            let what = format!("core {core}; the simulator has {}", self.options.n_cores);
            return failed(aee::ENOSUCH, what);
        }
        if session >= self.options.n_sessions {
            let what = format!(
                "session {session} of core {core}; a core has {}",
                self.options.n_sessions
            );
            return failed(aee::ENOSESSION, what);
        }
        let mut open = lock(&self.open);
        if open.contains_key(&at) {
            return failed(aee::EITEMBUSY, format!("session {session} of core {core}"));
        }
        let (calls, tally) = (Arc::clone(&self.calls), Arc::clone(&self.tally));
        let dice = Dice::new(self.dice.next());
        let process = Arc::new(Process::new(at, self.options.clone(), calls, tally, dice));
        open.insert(at, Arc::downgrade(&process));
        Ok(process)
    }

    /// Gives a place back.
    pub(crate) fn leave(&self, at: SessionAt) {
        lock(&self.open).remove(&at);
    }

    /// Ends every DSP process, as a restart of the whole DSP does.
    pub(crate) fn restart(&self, why: &str) {
        for process in self.processes() {
            process.kill(why.to_owned());
        }
    }

    pub(crate) fn breaches(&self) -> Vec<String> {
        lock(&self.breaches).clone()
    }

    /// A descriptor is about to be closed.
    fn released(&self, fd: u32) {
        self.calls.record(Call {
            name: CallName::Release,
            at: None,
            fd: Some(fd),
            fault: None,
        });
        for process in self.processes().filter(|process| process.has_mapped(fd)) {
            let SessionAt { core, session } = process.at;
            let breach = format!("fd {fd} closed while session {session} of core {core} had it mapped");
            log::error!("{breach}");
            lock(&self.breaches).push(breach);
        }
    }

    fn processes(&self) -> impl Iterator<Item = Arc<Process>> + use<> {
        let open: Vec<_> = lock(&self.open).values().filter_map(Weak::upgrade).collect();
        open.into_iter()
    }

    /// Counts a call of the transport and lets it meet its fault.
    fn enter(&self, name: CallName, at: Option<SessionAt>) -> Result<(), TransportError> {
        match self.calls.enter(name, at, None) {
            None => Ok(()),
            Some(CallFault::Code(code)) => Err(aee::failed(name.text(), code, "planned")),
            Some(CallFault::Timeout) => Err(TransportError::Timeout(self.options.call_timeout)),
            Some(CallFault::Death) => {
                let why = format!("the simulated DSP restarted at a call of {}", name.text());
                self.restart(&why);
                match name {
                    CallName::Open => Err(TransportError::Dead(why.into())),
                    _ => Ok(()),
                }
            }
        }
    }
}
