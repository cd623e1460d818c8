//! The 32-bit window as a device has it: first-fit placement, and space that comes back some time after an unmap.

/// Placements in a window of limited size.
#[derive(Clone, Debug)]
pub struct Window {
    bytes: u64,
    /// Sorted by start, without overlaps.
    taken: Vec<Taken>,
    /// Map and unmap calls so far.
    clock: u64,
    /// Unmapped space comes back after a number of calls up to this.
    late_max: u64,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    start: u64,
    end: u64,
    /// Unmapped, and free from this call on.
    free_from: Option<u64>,
}

impl Window {
    /// An empty window whose unmaps give space back at once.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            taken: Vec::new(),
            clock: 0,
            late_max: 0,
            seed: 0,
        }
    }

    /// The same with unmaps that give space back up to `calls` calls later, each as `seed` has it.
    pub fn with_late_frees(mut self, calls: u64, seed: u64) -> Self {
        self.late_max = calls;
        self.seed = seed;
        self
    }

    /// Takes the first hole of at least `bytes`; gives its start.
    pub fn map(&mut self, bytes: u64) -> Option<u64> {
        self.tick();
        let (mut start, mut at) = (0, self.taken.len());
        for (idx, taken) in self.taken.iter().enumerate() {
            if taken.start - start >= bytes {
                at = idx;
                break;
            }
            start = taken.end;
        }
        let end = start.checked_add(bytes).filter(|&end| end <= self.bytes)?;
        let free_from = None;
        self.taken.insert(at, Taken { start, end, free_from });
        Some(start)
    }

    /// Gives a placement back, now or later.
    pub fn unmap(&mut self, start: u64) {
        let late = match self.late_max {
            0 => 0,
            max => scramble(self.seed ^ self.clock) % (max + 1),
        };
        if let Ok(idx) = self.taken.binary_search_by_key(&start, |taken| taken.start) {
            self.taken[idx].free_from = Some(self.clock + late);
        }
        self.tick();
    }

    /// Waits until everything unmapped is free; false when nothing was to come.
    pub fn wait(&mut self) -> bool {
        let before = self.taken.len();
        self.taken.retain(|taken| taken.free_from.is_none());
        self.taken.len() < before
    }

    /// Bytes of the window.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holes as (start, bytes), by start.
    pub fn holes(&self) -> Vec<(u64, u64)> {
        let mut start = 0;
        let mut holes = Vec::new();
        for (from, to) in self
            .taken
            .iter()
            .map(|taken| (taken.start, taken.end))
            .chain([(self.bytes, self.bytes)])
        {
            if from > start {
                holes.push((start, from - start));
            }
            start = to;
        }
        holes
    }

    /// Bytes of the largest hole.
    pub fn largest_hole(&self) -> u64 {
        self.holes().into_iter().map(|(_, bytes)| bytes).max().unwrap_or(0)
    }

    fn tick(&mut self) {
        self.clock += 1;
        let clock = self.clock;
        self.taken.retain(|taken| taken.free_from.is_none_or(|at| at >= clock));
    }
}

/// A number that looks random, the same for equal input: the finaliser of SplitMix64.
pub(super) fn scramble(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hole_that_fits() {
        let mut window = Window::new(100);
        let starts: Vec<_> = (0..4).map(|_| window.map(25)).collect();
        assert_eq!(starts, [Some(0), Some(25), Some(50), Some(75)]);
        assert_eq!(window.map(1), None);
        window.unmap(25);
        window.unmap(75);
        assert_eq!(window.holes(), [(25, 25), (75, 25)]);
        assert_eq!(window.map(26), None);
        assert_eq!(window.map(20), Some(25));
        assert_eq!(window.map(25), Some(75));
        assert_eq!(window.largest_hole(), 5);
    }

    #[test]
    fn late_space_comes_back_by_waiting_or_in_time() {
        let mut window = Window::new(100).with_late_frees(5, 1);
        let mut late = 0;
        for _ in 0..100 {
            if window.map(100).is_none() {
                assert!(window.wait());
                assert_eq!(window.map(100), Some(0));
            }
            window.unmap(0);
            late += u32::from(window.largest_hole() == 0);
        }
        assert!((50..100).contains(&late), "{late} of 100 came late");
        for _ in 0..5 {
            assert_eq!(window.map(101), None);
        }
        assert_eq!(window.largest_hole(), 100);
    }
}
