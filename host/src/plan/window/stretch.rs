//! Which mappings to move when the window has room enough, but in holes that are too small.

use std::cmp::Reverse;
use std::ops::Range;

use super::Need;

/// Of all stretches of neighbouring mappings, the one with the fewest bytes after whose removal it and `missing` find room
/// again, largest first, in the first hole each. `live` is sorted by start; the answer is a range of it.
///
/// The whole window is such a stretch whenever everything fits at all, so `None` means that it does not.
pub(super) fn cheapest(live: &[(u64, Need)], missing: &[Need], window_bytes: u64) -> Option<Range<usize>> {
    let mut stretches: Vec<(u64, usize, usize)> = Vec::with_capacity((live.len() + 1) * (live.len() + 2) / 2);
    for first in 0..=live.len() {
        let mut inside = 0;
        for last in first..=live.len() {
            stretches.push((inside, first, last));
            inside += live.get(last).map_or(0, |(_, need)| need.bytes);
        }
    }
    stretches.sort_unstable();
    let enough = |&&(_, first, last): &&(u64, usize, usize)| {
        let kept = live[..first].iter().chain(&live[last..]);
        let mut again: Vec<Need> = live[first..last]
            .iter()
            .map(|&(_, need)| need)
            .chain(missing.iter().copied())
            .collect();
        sort_largest_first(&mut again);
        fit(
            kept.map(|&(start, need)| (start, start + need.bytes)).collect(),
            &again,
            window_bytes,
        )
    };
    stretches.iter().find(enough).map(|&(_, first, last)| first..last)
}

/// The order in which buffers are mapped.
pub(super) fn sort_largest_first(needs: &mut [Need]) {
    needs.sort_by_key(|need| (Reverse(need.bytes), need.id));
}

/// Whether `needs` find room one after another, first-fit, beside what is taken: starts and ends, sorted.
fn fit(mut taken: Vec<(u64, u64)>, needs: &[Need], window_bytes: u64) -> bool {
    needs.iter().all(|need| {
        let (mut start, mut at) = (0, taken.len());
        for (idx, &(from, to)) in taken.iter().enumerate() {
            if from - start >= need.bytes {
                at = idx;
                break;
            }
            start = to;
        }
        let fits = window_bytes - start >= need.bytes;
        if fits {
            taken.insert(at, (start, start + need.bytes));
        }
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mappings as (start, bytes) in a window of 100.
    fn moved(live: &[(u64, u64)], missing: &[u64]) -> Option<Range<usize>> {
        let need = |(id, bytes): (usize, u64)| Need { id: id as u32, bytes };
        let live: Vec<(u64, Need)> = live
            .iter()
            .enumerate()
            .map(|(id, &(start, bytes))| (start, need((id, bytes))))
            .collect();
        let missing: Vec<Need> = missing
            .iter()
            .enumerate()
            .map(|(id, &bytes)| need((100 + id, bytes)))
            .collect();
        cheapest(&live, &missing, 100)
    }

    #[test]
    fn the_fewest_bytes_that_are_enough() {
        // Holes of 10, 20 and 20: moving the 5 joins the last two.
        let live = [(10, 20), (30, 25), (75, 5)];
        assert_eq!(moved(&live, &[20]), Some(0..0));
        assert_eq!(moved(&live, &[35]), Some(2..3));
        assert_eq!(moved(&live, &[50]), Some(0..2));
        assert_eq!(moved(&live, &[51]), None);
        assert_eq!(moved(&[], &[100]), Some(0..0));
    }
}
