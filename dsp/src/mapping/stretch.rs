//! Which mappings to move when the window has room enough, but in holes that are too small.
//!
//! Of all stretches of neighbouring mappings, that with the fewest bytes after whose removal it and all that is missing find
//! room again, largest first, in the first hole each.

use core::cmp::Reverse;
use core::ops::Range;

use heapless::Vec;
use hexloom_abi::limits::{MAX_BUFFERS, MAX_MAPPINGS};

/// Most that lies in the window or is to: mappings, a batch's buffers, the session's own.
pub(super) const MAX_SPANS: usize = MAX_MAPPINGS + MAX_BUFFERS as usize + 1;

/// What lies in the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    start: u64,
    bytes: u64,
    is_fixed: bool,
}

impl Span {
    /// A mapping that may move.
    pub(super) fn new(start: u64, bytes: u64) -> Self {
        Self {
            start,
            bytes,
            is_fixed: false,
        }
    }

    /// What must stay where it is.
    pub(super) fn fixed(start: u64, bytes: u64) -> Self {
        Self {
            is_fixed: true,
            ..Self::new(start, bytes)
        }
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }
}

/// The places from which to drop mappings so that `missing` can be mapped too; `None` when the window does not hold all.
/// Sorts what lies there.
pub(super) fn cheapest(
    live: &mut [Span],
    missing: impl Iterator<Item = u64>,
    window: Range<u64>,
) -> Option<Range<u64>> {
    sort_by_key(live, |span| span.start);
    let indices = live.iter().enumerate().filter(|(_, span)| !span.is_fixed);
    let mut sizes: Vec<(u64, Option<usize>), MAX_SPANS> = indices.map(|(idx, span)| (span.bytes, Some(idx))).collect();
    for bytes in missing {
        sizes.push((bytes, None)).ok()?;
    }
    sort_by_key(&mut sizes, |&(bytes, _)| Reverse(bytes));
    let mut best: Option<(u64, Range<usize>)> = None;
    // What is fixed begins no stretch: the one without it is as good.
    let firsts = (0..=live.len()).filter(|&first| live.get(first).is_none_or(|span| !span.is_fixed));
    for first in firsts {
        let mut bytes = 0;
        for last in first..=live.len() {
            if best.as_ref().is_some_and(|(least, _)| bytes >= *least) {
                break;
            }
            if fit(live, &sizes, first..last, &window) {
                best = Some((bytes, first..last));
                break;
            }
            bytes += live
                .get(last)
                .filter(|span| !span.is_fixed)
                .map_or(0, |span| span.bytes);
        }
    }
    let (_, inside) = best?;
    let dropped = &live[inside];
    Some(match (dropped.first(), dropped.last()) {
        (Some(first), Some(last)) => first.start..last.end(),
        _ => 0..0,
    })
}

/// Sorts few: core's sorts are fast for many, and take 8 KiB of code for each type.
pub(super) fn sort_by_key<T, K: Ord>(all: &mut [T], key: impl Fn(&T) -> K) {
    for end in 1..all.len() {
        for at in (1..=end).rev() {
            if key(&all[at - 1]) <= key(&all[at]) {
                break;
            }
            all.swap(at - 1, at);
        }
    }
}

/// Whether what is dropped and what is missing find room beside what is kept.
fn fit(live: &[Span], sizes: &[(u64, Option<usize>)], dropped: Range<usize>, window: &Range<u64>) -> bool {
    let kept = live.iter().enumerate();
    let kept = kept.filter(|(idx, span)| span.is_fixed || !dropped.contains(idx));
    let mut taken: Vec<(u64, u64), MAX_SPANS> = kept.map(|(_, span)| (span.start, span.end())).collect();
    sizes
        .iter()
        .filter(|(_, idx)| idx.is_none_or(|idx| dropped.contains(&idx)))
        .all(|&(bytes, _)| {
            let (mut start, mut at) = (window.start, taken.len());
            for (idx, &(from, to)) in taken.iter().enumerate() {
                if from.min(window.end).saturating_sub(start) >= bytes {
                    at = idx;
                    break;
                }
                start = start.max(to);
            }
            window.end.saturating_sub(start) >= bytes && taken.insert(at, (start, start + bytes)).is_ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places moved in a window of 100 from 1000 on.
    fn moved(live: &[Span], missing: &[u64]) -> Option<Range<u64>> {
        cheapest(&mut live.to_vec(), missing.iter().copied(), 1000..1100)
    }

    #[test]
    fn the_fewest_bytes_that_are_enough() {
        // Holes of 10, 20 and 20: moving the 5 joins the last two.
        let live = [Span::new(1075, 5), Span::new(1010, 20), Span::new(1030, 25)];
        assert_eq!(moved(&live, &[20]), Some(0..0));
        assert_eq!(moved(&live, &[35]), Some(1075..1080));
        assert_eq!(moved(&live, &[50]), Some(1010..1055));
        assert_eq!(moved(&live, &[51]), None);
        assert_eq!(moved(&[], &[100]), Some(0..0));
    }

    #[test]
    fn what_is_fixed_stays_and_costs_nothing() {
        let live = [Span::new(1010, 20), Span::fixed(1030, 25), Span::new(1075, 5)];
        assert_eq!(moved(&live, &[35]), Some(1075..1080));
        assert_eq!(moved(&live, &[46]), None);
        // Beyond the window, as far as the table knows where it ends.
        let live = [Span::fixed(5000, 100), Span::new(1050, 10)];
        assert_eq!(moved(&live, &[60]), Some(1050..1060));
        assert_eq!(moved(&live, &[91]), None);
    }
}
