//! The DSP's 32-bit window: first-fit placement, which fragments as the real one does, and late frees.

use std::time::Instant;

use crate::harsh::LateFree;

const PAGE_BYTES: u64 = 4096;

/// Placements in a window of limited size.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: u64,
    late: Option<LateFree>,
    /// Start and end of each placement, sorted.
    taken: Vec<(u64, u64)>,
    /// Placements that are given back and still taken: start, calls and time.
    leaving: Vec<(u64, u32, Instant)>,
}

/// A placement that found no hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoHole {
    pub(crate) taken: u64,
    pub(crate) largest: u64,
}

impl Window {
    pub(crate) fn new(bytes: u64, late: Option<LateFree>) -> Self {
        Self {
            bytes,
            late,
            taken: Vec::new(),
            leaving: Vec::new(),
        }
    }

    /// Takes the first hole of at least `bytes`, in whole pages; gives its start.
    pub(crate) fn place(&mut self, bytes: u64) -> Result<u64, NoHole> {
        self.leave(true);
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
        let (mut start, mut largest) = (0, 0);
        let ends = self.taken.iter().copied().chain([(self.bytes, self.bytes)]);
        for (idx, (from, to)) in ends.enumerate() {
            if from - start >= bytes {
                self.taken.insert(idx, (start, start + bytes));
                return Ok(start);
            }
            largest = largest.max(from - start);
            start = to;
        }
        let taken = self.taken.iter().map(|(from, to)| to - from).sum();
        Err(NoHole { taken, largest })
    }

    /// Gives a placement back, at once or later.
    pub(crate) fn free(&mut self, start: u64) {
        self.leave(true);
        match self.late {
            None => self.taken.retain(|&(from, _)| from != start),
            Some(late) => self.leaving.push((start, late.calls, Instant::now() + late.time)),
        }
    }

    /// Lets go of what has waited long enough: whether something came free, and whether more is on its way.
    pub(crate) fn settle(&mut self) -> (bool, bool) {
        let before = self.leaving.len();
        self.leave(false);
        (self.leaving.len() < before, !self.leaving.is_empty())
    }

    /// Lets go of what has waited enough, by time and by calls, of which this may be one.
    fn leave(&mut self, is_call: bool) {
        let now = Instant::now();
        for idx in (0..self.leaving.len()).rev() {
            let (start, calls, time) = &mut self.leaving[idx];
            if (is_call && *calls == 0) || *time <= now {
                let start = *start;
                self.taken.retain(|&(from, _)| from != start);
                self.leaving.swap_remove(idx);
            } else if is_call {
                *calls -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn first_fit_fragments() {
        let mut window = Window::new(100 * MIB, None);
        let starts: Vec<_> = (0..4).map(|_| window.place(25 * MIB).unwrap() / MIB).collect();
        assert_eq!(starts, [0, 25, 50, 75]);
        let full = |taken: u64, largest: u64| {
            Err(NoHole {
                taken: taken * MIB,
                largest: largest * MIB,
            })
        };
        assert_eq!(window.place(1), full(100, 0));
        window.free(25 * MIB);
        window.free(75 * MIB);
        assert_eq!(window.place(26 * MIB), full(50, 25));
        assert_eq!(window.place(20 * MIB), Ok(25 * MIB));
        assert_eq!(window.place(25 * MIB), Ok(75 * MIB));
        assert_eq!(window.place(1), Ok(45 * MIB));
        assert_eq!(window.place(1), Ok(45 * MIB + 4096));
        assert!(window.place(u64::MAX).is_err());
    }

    #[test]
    fn a_late_free_is_a_matter_of_calls_or_time() {
        let late = |calls, time| Some(LateFree { calls, time });
        let mut window = Window::new(MIB, late(2, Duration::from_secs(3600)));
        let place = window.place(MIB).unwrap();
        window.free(place);
        assert!(window.place(MIB).is_err());
        assert!(window.place(MIB).is_err());
        assert_eq!(window.place(MIB), Ok(place));
        let mut window = Window::new(MIB, late(u32::MAX, Duration::ZERO));
        let place = window.place(MIB).unwrap();
        window.free(place);
        assert_eq!(window.place(MIB), Ok(place));
        window.free(place);
        assert_eq!((window.settle(), window.settle()), ((true, false), (false, false)));
        let mut window = Window::new(MIB, late(1, Duration::from_secs(3600)));
        let place = window.place(MIB).unwrap();
        window.free(place);
        assert_eq!((window.settle(), window.settle()), ((false, true), (false, true)));
    }
}
