//! A free list of slot numbers that merges: what is given back side by side can be taken again as one run.

use std::collections::BTreeMap;

/// Free runs of slots: first slot to length; no two touch.
#[derive(Debug)]
pub(crate) struct FreeRuns {
    runs: BTreeMap<u32, u32>,
}

impl FreeRuns {
    /// Slots `0..n`, all free.
    pub(crate) fn new(n: u32) -> Self {
        let runs = (n > 0).then_some((0, n));
        Self {
            runs: runs.into_iter().collect(),
        }
    }

    /// Takes `n` slots side by side and gives the first; from the shortest run that holds them, so that long runs last.
    pub(crate) fn take(&mut self, n: u32) -> Option<u32> {
        let fitting = self.runs.iter().filter(|&(_, &len)| len >= n && n > 0);
        let (&first, &len) = fitting.min_by_key(|&(_, &len)| len)?;
        self.runs.remove(&first);
        if len > n {
            self.runs.insert(first + n, len - n);
        }
        Some(first)
    }

    /// Gives back slots that [`FreeRuns::take`] gave.
    pub(crate) fn give_back(&mut self, first: u32, n: u32) {
        let (mut first, mut len) = (first, n);
        if let Some(after) = self.runs.remove(&(first + len)) {
            len += after;
        }
        let before = self.runs.range(..first).next_back().map(|(&start, &n)| (start, n));
        if let Some((start, n)) = before.filter(|&(start, n)| start + n == first) {
            first = start;
            len += n;
        }
        self.runs.insert(first, len);
    }

    /// Free slots in all, and in the longest run.
    pub(crate) fn free(&self) -> (u32, u32) {
        let longest = self.runs.values().max().copied().unwrap_or(0);
        (self.runs.values().sum(), longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge() {
        let mut free = FreeRuns::new(8);
        let firsts: Vec<_> = (0..4).map(|_| free.take(2).unwrap()).collect();
        assert_eq!(firsts, [0, 2, 4, 6]);
        assert_eq!((free.take(1), free.take(0)), (None, None));
        free.give_back(4, 2);
        free.give_back(0, 2);
        assert_eq!((free.free(), free.take(4)), ((4, 2), None));
        free.give_back(2, 2);
        assert_eq!(free.free(), (6, 6));
        assert_eq!(free.take(6), Some(0));
    }

    proptest::proptest! {
        /// Against a plain bitmap: nothing is given twice, and what is free is found whenever it lies side by side.
        #[test]
        fn as_a_bitmap(steps in proptest::collection::vec((0u32..6, 0usize..8), 0..60)) {
            let mut free = FreeRuns::new(24);
            let mut taken = [false; 24];
            let mut held: Vec<(u32, u32)> = Vec::new();
            for (n, which) in steps {
                if n == 0 {
                    if held.is_empty() {
                        continue;
                    }
                    let (first, n) = held.remove(which % held.len());
                    free.give_back(first, n);
                    taken[first as usize..(first + n) as usize].fill(false);
                } else if let Some(first) = free.take(n) {
                    let range = &mut taken[first as usize..(first + n) as usize];
                    assert!(range.iter().all(|taken| !taken));
                    range.fill(true);
                    held.push((first, n));
                } else {
                    assert!(!taken.windows(n as usize).any(|run| run.iter().all(|taken| !taken)));
                }
                assert_eq!(free.free().0 as usize, taken.iter().filter(|taken| !**taken).count());
            }
        }
    }
}
