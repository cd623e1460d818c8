//! What the driver and its DSPs are like, and which calls are to fail: statements in text.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hexloom_sim::{FaultPlan, SimOptions};

/// How the driver lists its DSPs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Listing {
    /// It cannot.
    None,
    /// Records without the number of the instance.
    Old,
    /// Records with it, and with room for more.
    #[default]
    New,
}

/// What was set up before the first call.
#[derive(Debug)]
pub struct Setup {
    pub(crate) sim: SimOptions,
    pub(crate) listing: Listing,
    /// The library on the DSP is signed, so that processes which take signed ones only take it too.
    pub(crate) signed: bool,
    /// The driver knows the flags for mappings outside the window.
    pub(crate) extended_flags: bool,
    /// The driver tells what becomes of processes.
    pub(crate) notices: bool,
}

/// Calls that are to fail, in the order in which they were planned.
#[derive(Debug, Default)]
pub struct Faults(Mutex<VecDeque<Fault>>);

#[derive(Debug)]
struct Fault {
    call: String,
    /// Good calls before it.
    skip: u32,
    code: i32,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            sim: SimOptions {
                faults: FaultPlan::default(),
                n_cores: 2,
                ..SimOptions::default()
            },
            listing: Listing::default(),
            signed: false,
            extended_flags: true,
            notices: true,
        }
    }
}

impl Setup {
    /// Takes one `name=value`.
    pub(crate) fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').ok_or(format!("`{option}` is no name=value"))?;
        let number = value.parse::<u64>();
        let small = number.as_ref().ok().and_then(|&n| u32::try_from(n).ok());
        match (name, small, number) {
            ("arch", Some(n), _) => self.sim.arch = n,
            ("cores", Some(n), _) => self.sim.n_cores = n,
            ("sessions", Some(n), _) => self.sim.n_sessions = n,
            ("threads", Some(n), _) => self.sim.n_threads = n,
            ("junk", Some(n), _) => self.sim.junk_scratch = n != 0,
            ("dsp_extended", Some(n), _) => self.sim.dsp_extended = n != 0,
            ("signed", Some(n), _) => self.signed = n != 0,
            ("extended_flags", Some(n), _) => self.extended_flags = n != 0,
            ("notices", Some(n), _) => self.notices = n != 0,
            ("scratch", _, Ok(n)) => self.sim.scratch_bytes = n,
            ("window", _, Ok(n)) => self.sim.window_bytes = n,
            ("harsh", _, Ok(seed)) => {
                let harsh = SimOptions::harsh(seed);
                (self.sim.harsh, self.sim.dma, self.sim.junk_scratch) = (harsh.harsh, harsh.dma, true);
            }
            ("listing", _, _) => {
                self.listing = match value {
                    "none" => Listing::None,
                    "old" => Listing::Old,
                    "new" => Listing::New,
                    _ => return Err(format!("there is no listing `{value}`")),
                }
            }
            _ => return Err(format!("there is no option `{option}`")),
        }
        Ok(())
    }
}

impl Faults {
    /// Plans a failure of the call after `skip` good ones.
    pub(crate) fn plan(&self, call: &str, skip: u32, code: i32) {
        let call = call.to_owned();
        self.lock().push_back(Fault { call, skip, code });
    }

    /// Forgets what has not happened, and tells how much that was.
    pub(crate) fn clear(&self) -> usize {
        let mut faults = self.lock();
        let n = faults.len();
        faults.clear();
        n
    }

    /// Counts a call and gives the code that it is to fail with.
    pub(crate) fn at(&self, call: &str) -> Option<i32> {
        let mut faults = self.lock();
        let idx = faults.iter().position(|fault| fault.call == call)?;
        let fault = &mut faults[idx];
        match fault.skip.checked_sub(1) {
            Some(skip) => {
                fault.skip = skip;
                None
            }
            None => faults.remove(idx).map(|fault| fault.code),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Fault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
