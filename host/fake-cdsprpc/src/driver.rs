//! The driver's state: memory, domains, the processes on them, handles and queues, and the rules that were broken.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hexloom::transport::{Connection, SessionAt, SharedMemory, Transport, TransportError};
use hexloom_hexagon_sys::host;
use hexloom_sim::SimTransport;

use crate::dspqueue::Queue;
use crate::faults::Faults;
use crate::library::Library;
use crate::setup::{Notices, Setup};

/// A time that has no end here either, so that a test ends.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);
/// Effective numbers of sessions are this far apart.
pub(crate) const SESSION_STRIDE: u32 = 32;

/// The loaded driver.
pub struct Driver {
    pub(crate) setup: Setup,
    pub(crate) sim: SimTransport,
    pub(crate) faults: Faults,
    table: Mutex<Table>,
}

/// Everything that calls give out and take back.
#[derive(Default)]
pub(crate) struct Table {
    /// Allocations by address.
    pub(crate) memory: HashMap<usize, SharedMemory>,
    /// By effective number.
    pub(crate) domains: HashMap<u32, Domain>,
    /// Open handles with the domain of each, and the library's own number.
    pub(crate) handles: HashMap<u64, (u32, u64)>,
    pub(crate) queues: HashMap<usize, Queue>,
    pub(crate) reserved: HashSet<u32>,
    /// Whom to tell of processes, with the domain that each asked for.
    pub(crate) notifiers: Vec<(u32, Notifier)>,
    pub(crate) breaches: Vec<String>,
    last_number: u64,
}

/// What programs have said about a session, and its process if there is one.
#[derive(Default)]
pub(crate) struct Domain {
    pub(crate) takes_unsigned: bool,
    pub(crate) process: Option<Process>,
}

/// Whom to tell of a process.
#[derive(Clone, Copy)]
pub(crate) struct Notifier {
    pub(crate) call:
        unsafe extern "C" fn(*mut std::ffi::c_void, c_int, c_int, host::remote_rpc_status_flags_t) -> c_int,
    pub(crate) context: usize,
}

/// A process on a DSP.
pub(crate) struct Process {
    pub(crate) connection: Arc<dyn Connection>,
    pub(crate) library: Arc<Library>,
    /// Bytes mapped, by descriptor.
    pub(crate) mapped: HashMap<c_int, usize>,
    told: bool,
}

/// A call's outcome: nothing, or a code.
pub(crate) type Outcome<T = ()> = Result<T, c_int>;

/// A constant of the headers as a call gives it.
pub(crate) const fn code(number: u32) -> c_int {
    number as c_int
}

/// What a C function gives for an outcome.
pub(crate) fn answer(outcome: Outcome) -> c_int {
    outcome.err().unwrap_or(0)
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
static SETUP: Mutex<Option<Setup>> = Mutex::new(None);

/// The driver, set up by the first call.
pub(crate) fn driver() -> &'static Driver {
    DRIVER.get_or_init(|| {
        let setup = SETUP.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut setup = setup.unwrap_or_default();
        crate::tell::options_from_environment(|option| setup.set(option));
        let driver = Driver {
            sim: SimTransport::new(setup.sim.clone()),
            setup,
            faults: Faults::default(),
            table: Mutex::default(),
        };
        crate::tell::from_environment(&driver);
        driver
    })
}

/// Changes what the driver will be like; false when it has been used.
pub(crate) fn set_up(change: impl FnOnce(&mut Setup) -> Result<(), String>) -> Result<(), String> {
    if DRIVER.get().is_some() {
        return Err("the driver is in use: options come before the first call".to_owned());
    }
    let mut setup = SETUP.lock().unwrap_or_else(PoisonError::into_inner);
    change(setup.get_or_insert_default())
}

impl Driver {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, which may be planned to fail.
    pub(crate) fn enter(&self, call: &str) -> Outcome {
        self.faults.at(call).map_or(Ok(()), Err)
    }

    /// Where a session with this effective number is.
    pub(crate) fn place(&self, effective: c_int) -> Outcome<SessionAt> {
        let effective = u32::try_from(effective).map_err(|_| code(host::AEE_EBADPARM))?;
        let core = (0..self.setup.sim.n_cores).find(|&core| domain_id(core) == effective % SESSION_STRIDE);
        let session = effective / SESSION_STRIDE;
        match core {
            Some(core) if session < self.setup.sim.n_sessions => Ok(SessionAt { core, session }),
            _ => Err(code(host::AEE_EINVALIDDOMAIN)),
        }
    }

    /// A call's result as a code; `dead` is what it gives when the process is gone, which the program is told of once.
    pub(crate) fn outcome<T>(&self, effective: u32, result: Result<T, TransportError>, dead: u32) -> Outcome<T> {
        result.map_err(|error| match error {
            TransportError::Timeout(_) => code(host::AEE_EEXPIRED),
            TransportError::Call { code, .. } => code,
            TransportError::Dead(_) => {
                self.notify(effective, host::FASTRPC_USER_PD_EXCEPTION);
                code(dead)
            }
            _ => code(host::AEE_EFAILED),
        })
    }

    /// Tells the program what has become of a process, unless it has been told.
    pub(crate) fn notify(&self, effective: u32, status: host::remote_rpc_status_flags_t) {
        let mut table = self.lock();
        let process = table.running(effective);
        if process.is_none_or(|process| std::mem::replace(&mut process.told, true)) {
            return;
        }
        let told_by = match self.setup.notices {
            Notices::None => return,
            Notices::Effective => effective,
            Notices::Core => effective % SESSION_STRIDE,
        };
        let all = table.notifiers.iter().filter(|(domain, _)| *domain == told_by);
        let all: Vec<Notifier> = all.map(|(_, notifier)| *notifier).collect();
        drop(table);
        let session = (effective / SESSION_STRIDE) as c_int;
        for notifier in all {
            // SAFETY: the program gave the function with its context for as long as the driver is loaded.
            unsafe { (notifier.call)(notifier.context as *mut _, told_by as c_int, session, status) };
        }
    }

    /// Kills a session's process from outside, and lets calls that hang come back.
    pub(crate) fn kill(&self, effective: u32) -> Outcome {
        self.notify(effective, host::FASTRPC_USER_PD_FORCE_KILL);
        let killed = match self.lock().running(effective) {
            Some(process) => {
                process.connection.close();
                Ok(())
            }
            None => Err(code(host::AEE_ERPC)),
        };
        self.faults.let_go();
        killed
    }
}

impl Table {
    /// A number that was not given out before.
    pub(crate) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(crate) fn breach(&mut self, what: String) {
        self.breaches.push(what);
    }

    /// The process of a session, started when there is none.
    pub(crate) fn process(&mut self, driver: &Driver, effective: c_int) -> Outcome<&mut Process> {
        let at = driver.place(effective)?;
        let effective = effective as u32;
        if at.session > 0 && !self.reserved.contains(&effective) {
            return Err(code(host::AEE_ENOSESSION));
        }
        let domain = self.domains.entry(effective).or_default();
        if domain.process.is_none() {
            let connection = driver.sim.open(at);
            let connection = connection.map_err(|error| match error {
                TransportError::Call { code, .. } => code,
                _ => code(host::AEE_ECONNREFUSED),
            })?;
            domain.process = Some(Process {
                library: Arc::new(Library::new(Arc::clone(&connection))),
                connection,
                mapped: HashMap::new(),
                told: false,
            });
        }
        domain.process.as_mut().ok_or(code(host::AEE_EFAILED))
    }

    /// The process of a session, if there is one.
    pub(crate) fn running(&mut self, effective: u32) -> Option<&mut Process> {
        self.domains.get_mut(&effective)?.process.as_mut()
    }

    /// Ends a session's process with everything that it has.
    pub(crate) fn end(&mut self, driver: &Driver, effective: u32) -> Outcome {
        let domain = self.domains.get_mut(&effective);
        let process = domain.and_then(|domain| domain.process.take());
        let process = process.ok_or(code(host::AEE_ENOSUCH))?;
        process.connection.close();
        self.handles.retain(|_, (of, _)| *of != effective);
        let queues = self.queues.values_mut();
        queues
            .filter(|queue| queue.domain == effective)
            .for_each(|queue| queue.is_left = true);
        if driver.setup.takes_back {
            self.reserved.remove(&effective);
        }
        Ok(())
    }
}

/// The number of a core's domain, as devices have them.
pub(crate) fn domain_id(core: u32) -> u32 {
    match core {
        0 => host::CDSP_DOMAIN_ID,
        1 => host::CDSP1_DOMAIN_ID,
        more => 16 + more,
    }
}

/// Its name.
pub(crate) fn domain_name(core: u32) -> String {
    match core {
        0 => "cdsp".to_owned(),
        more => format!("cdsp{more}"),
    }
}
