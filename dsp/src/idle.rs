//! How much a session asks of the DSP's power, and how urgent its threads are: decisions only, made from times.
//!
//! A batch has full speed from its first op on. A session that nobody uses costs nothing: first its clocks are left to the
//! system, then its units are switched off. Between two tokens a session is not idle for as long as that.

/// Without work for this long, clocks are left to the system.
const EASE_AFTER_NS: u64 = 40_000_000;
/// Without work for this long, the units are switched off: some hundred times what switching them on takes.
const OFF_AFTER_NS: u64 = 500_000_000;

/// Steps by which threads of a session are more urgent than the thread that starts it.
const STEPS: i32 = 10;
/// Most and least urgent that a thread of a session may be.
const MOST_URGENT: i32 = 1;
const LEAST_URGENT: i32 = 254;

/// What is asked of the DSP's power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The fastest clocks, no sleep, every unit on.
    Full,
    /// Units on, clocks and sleep as the system sees fit.
    Eased,
    /// Nothing.
    Off,
}

/// What is asked now, and since when there has been no work.
#[derive(Clone, Copy, Debug)]
pub struct Governor {
    level: Level,
    last_work_ns: u64,
}

impl Governor {
    /// Nothing is asked yet.
    pub const fn new() -> Self {
        Self {
            level: Level::Off,
            last_work_ns: 0,
        }
    }

    /// There is work, or was until now. Gives what is to be asked, when that changes.
    pub fn work(&mut self, now_ns: u64) -> Option<Level> {
        self.last_work_ns = now_ns;
        self.change(Level::Full)
    }

    /// There is no work. Gives what is to be asked, when that changes.
    pub fn rest(&mut self, now_ns: u64) -> Option<Level> {
        let level = match now_ns.saturating_sub(self.last_work_ns) {
            _ if self.level == Level::Off => Level::Off,
            OFF_AFTER_NS.. => Level::Off,
            EASE_AFTER_NS.. => Level::Eased,
            _ => self.level,
        };
        self.change(level)
    }

    /// What is asked now.
    pub fn level(&self) -> Level {
        self.level
    }

    fn change(&mut self, level: Level) -> Option<Level> {
        (core::mem::replace(&mut self.level, level) != level).then_some(level)
    }
}

impl Default for Governor {
    fn default() -> Self {
        Self::new()
    }
}

/// Priority of every thread of a session whose starter has priority `caller`; lower numbers are more urgent. All have the
/// same, as they wait for each other: a less urgent one would hold the others up.
pub fn priority(caller: i32) -> u16 {
    caller.saturating_sub(STEPS).clamp(MOST_URGENT, LEAST_URGENT) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn work_is_fast_at_once_and_rest_eases_in_steps() {
        let mut governor = Governor::new();
        assert_eq!((governor.rest(900 * MS), governor.level()), (None, Level::Off));
        assert_eq!(governor.work(1000 * MS), Some(Level::Full));
        assert_eq!(governor.work(1001 * MS), None);
        assert_eq!(governor.rest(1040 * MS), None);
        assert_eq!(governor.rest(1041 * MS), Some(Level::Eased));
        assert_eq!(governor.rest(1400 * MS), None);
        assert_eq!(governor.rest(1501 * MS), Some(Level::Off));
        assert_eq!(governor.rest(9000 * MS), None);
        assert_eq!(governor.work(9001 * MS), Some(Level::Full));
    }

    #[test]
    fn work_in_time_keeps_the_speed_and_long_rests_skip_a_step() {
        let mut governor = Governor::new();
        governor.work(0);
        for token in 1..100 {
            assert_eq!(governor.rest(token * 30 * MS - MS), None);
            assert_eq!(governor.work(token * 30 * MS), None);
        }
        assert_eq!(governor.rest(10_000 * MS), Some(Level::Off));
        // A clock that steps back is no rest.
        governor.work(10_000 * MS);
        assert_eq!(governor.rest(MS), None);
        assert_eq!(governor.level(), Level::Full);
    }

    #[test]
    fn priorities_stay_in_range() {
        for (caller, wanted) in [
            (192, 182),
            (11, 1),
            (5, 1),
            (0, 1),
            (i32::MIN, 1),
            (i32::MAX, 254),
            (255, 245),
        ] {
            assert_eq!(priority(caller), wanted);
        }
    }
}
