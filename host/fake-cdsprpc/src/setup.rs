//! What the driver and its DSPs are like: statements in text.

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
    /// Processes may take unsigned libraries; otherwise one that asks for it does not start.
    pub(crate) unsigned: bool,
    /// The driver knows the flags for mappings outside the window.
    pub(crate) extended_flags: bool,
    /// How the driver tells what becomes of processes.
    pub(crate) notices: Notices,
    /// A session that was set aside is free again when its process has ended.
    pub(crate) takes_back: bool,
    /// Memory that there is none of is given as the address that `mmap` fails with.
    pub(crate) map_failed: bool,
}

/// How the driver tells what becomes of processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notices {
    /// Not at all.
    None,
    /// By a session's effective number.
    Effective,
    /// By the core's number, and the session's beside it.
    Core,
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
            unsigned: true,
            extended_flags: true,
            notices: Notices::Effective,
            takes_back: true,
            map_failed: false,
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
            ("unsigned", Some(n), _) => self.unsigned = n != 0,
            ("extended_flags", Some(n), _) => self.extended_flags = n != 0,
            ("takes_back", Some(n), _) => self.takes_back = n != 0,
            ("map_failed", Some(n), _) => self.map_failed = n != 0,
            ("scratch", _, Ok(n)) => self.sim.scratch_bytes = n,
            ("window", _, Ok(n)) => self.sim.window_bytes = n,
            ("harsh", _, Ok(seed)) => {
                let harsh = SimOptions::harsh(seed);
                (self.sim.harsh, self.sim.dma, self.sim.junk_scratch) = (harsh.harsh, harsh.dma, true);
            }
            ("notices", _, _) => {
                self.notices = match value {
                    "none" => Notices::None,
                    "effective" => Notices::Effective,
                    "core" => Notices::Core,
                    _ => return Err(format!("there are no notices `{value}`")),
                }
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
