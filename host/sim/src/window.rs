//! The DSP's 32-bit window: first-fit placement, which fragments as the real one does.

/// Placements in a window of limited size.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: u64,
    /// Start and end of each placement, sorted.
    live: Vec<(u64, u64)>,
}

impl Window {
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            live: Vec::new(),
        }
    }

    /// Takes the first hole of at least `bytes`; gives its start.
    pub(crate) fn place(&mut self, bytes: u64) -> Option<u64> {
        let mut start = 0;
        let mut at = self.live.len();
        for (idx, &(from, to)) in self.live.iter().enumerate() {
            if from - start >= bytes {
                at = idx;
                break;
            }
            start = to;
        }
        let end = start.checked_add(bytes)?;
        if end > self.bytes {
            return None;
        }
        self.live.insert(at, (start, end));
        Some(start)
    }

    /// Gives a placement back.
    pub(crate) fn free(&mut self, start: u64) {
        self.live.retain(|&(from, _)| from != start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_fit_fragments() {
        let mut window = Window::new(100);
        let starts: Vec<_> = (0..4).map(|_| window.place(25).unwrap()).collect();
        assert_eq!(starts, [0, 25, 50, 75]);
        assert_eq!(window.place(1), None);
        window.free(25);
        window.free(75);
        assert_eq!(window.place(26), None);
        assert_eq!(window.place(20), Some(25));
        assert_eq!(window.place(25), Some(75));
    }
}
