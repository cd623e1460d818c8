//! How much harsher than a PC the simulated machine is: a device's habits, and worse, behind one seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What the simulated machine does to sessions. The default does nothing; [`Harsh::all`] does everything, and everything
/// that works must work then, too.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Harsh {
    /// Where chance begins. The same seed gives the same chances in the same order of calls.
    pub seed: u64,
    /// The DSP sees a copy of shared memory: line by line, what the host wrote is seen after an invalidation, what the DSP
    /// wrote is shared after a clean, and neither is before. Each session has a copy of its own.
    pub incoherent: bool,
    /// Before each op so many lines that were lately cleaned or invalidated, or their neighbours, leave the cache unasked:
    /// changed ones are written back whole, all are read again. Needs `incoherent`.
    pub evictions: u32,
    /// The place of an unmap in the window stays taken for a while.
    pub late_free: Option<LateFree>,
    /// One of about so many maps fails for no reason, on the host and on the DSP side; never two that are near each other.
    /// 0 = none.
    pub spurious_maps: u32,
    /// One of about so many ops begins with a pause. 0 = none.
    pub pauses: u32,
}

/// When the place of an unmap is free: after so many further calls to the window, or after a time, whichever is first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LateFree {
    /// Maps and unmaps of the session.
    pub calls: u32,
    /// Time since the unmap.
    pub time: Duration,
}

/// Maps after a spurious failure that do not fail, so that one retry, and one round of re-mapping a full table, is enough.
const GOOD_MAPS: u64 = 96;
/// How long a pause is.
const PAUSE: Duration = Duration::from_micros(300);

/// Chance from a seed.
#[derive(Debug)]
pub(crate) struct Dice(AtomicU64);

/// Failures for no reason, apart from each other.
#[derive(Debug)]
pub(crate) struct Spurious {
    one_in: u32,
    left: AtomicU64,
}

impl Harsh {
    /// Everything, with the chances of `seed`.
    pub fn all(seed: u64) -> Self {
        Self {
            seed,
            incoherent: true,
            evictions: 8,
            late_free: Some(LateFree {
                calls: 6,
                time: Duration::from_millis(40),
            }),
            spurious_maps: 8,
            pauses: 200,
        }
    }

    /// Waits, once in a while.
    pub(crate) fn pause(&self, dice: &Dice) {
        if self.pauses > 0 && dice.below(self.pauses.into()) == 0 {
            std::thread::sleep(PAUSE);
        }
    }
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number below `end`; 0 when there is none.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    /// The next of a sequence of 64-bit numbers (SplitMix64).
    pub(crate) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Spurious {
    /// Failures of one of about `one_in`; 0 = none.
    pub(crate) fn new(one_in: u32, dice: &Dice) -> Self {
        Self {
            one_in,
            left: AtomicU64::new(dice.below(one_in.into())),
        }
    }

    /// Whether the next one fails.
    pub(crate) fn strikes(&self, dice: &Dice) -> bool {
        if self.one_in == 0 {
            return false;
        }
        let left = self.left.load(Ordering::Relaxed);
        let strikes = left == 0;
        let next = match strikes {
            true => GOOD_MAPS + dice.below(2 * u64::from(self.one_in)),
            false => left - 1,
        };
        self.left.store(next, Ordering::Relaxed);
        strikes
    }

    /// Fails nothing for a while, after something else did.
    pub(crate) fn spare(&self) {
        self.left.fetch_max(GOOD_MAPS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_come_and_are_apart() {
        let dice = Dice::new(5);
        let spurious = Spurious::new(4, &dice);
        let failed: Vec<u64> = (0..1000).filter(|_| spurious.strikes(&dice)).collect();
        assert!(failed[0] < 4 && failed.len() > 5, "{failed:?}");
        assert!(failed.windows(2).all(|two| two[1] - two[0] > GOOD_MAPS), "{failed:?}");
        let never = Spurious::new(0, &dice);
        assert!((0..1000).all(|_| !never.strikes(&dice)));
    }
}
