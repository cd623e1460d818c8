//! Search for a packing within a given height: depth first, always deciding what lies next at the
//! tightest place of the skyline.
//!
//! Everything is put down bottom up, each buffer as low as those below it let it go; every packing can be
//! pushed down into such a one. At the edge of a valley of the skyline only buffers that begin right there
//! can come next, or the edge stays empty for a while, which costs room. So one edge is chosen, the one
//! with least to choose and least room, and each choice is tried. A branch ends when
//! - some moment has more to come than room above its skyline, after every place is lifted to the lowest
//!   buffer that can still go there,
//! - a buffer would float, with nothing right below it (then the packing was not pushed down),
//! - the same rest on the same skyline has failed before.
//!
//! Whenever the buffers left fall apart in time, the parts are solved on their own, tightest first.

use super::failures::{Failures, mix};

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All rectangles have offsets.
    Solved,
    /// There is no packing of that height.
    Failed,
    /// The steps ran out.
    OutOfSteps,
}

/// A rectangle: sections `[first, end)` in time, `size` units high.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rect {
    pub(crate) first: u32,
    pub(crate) end: u32,
    pub(crate) size: i32,
}

const WALL: i32 = i32::MAX / 4;
/// Deepest nesting; what needs more counts as out of steps. Bounds the stack.
const MAX_DEPTH: u32 = 20_000;

/// Search state over one set of rectangles.
pub(crate) struct Skyline {
    /// By `first`.
    rects: Vec<Rect>,
    capacity: i32,
    rank: Vec<u32>,
    /// Lowest place anything to come may take, by section.
    height: Vec<i32>,
    /// Top of what was placed, by section; not above `height`.
    top: Vec<i32>,
    /// Units still to be placed, by section.
    to_come: Vec<i32>,
    /// Offset of a rectangle: lowest possible, final once placed.
    offset: Vec<i32>,
    base: Vec<i32>,
    valley_of: Vec<u32>,
    valleys: Vec<Valley>,
    changed: Vec<(u32, i32, i32)>,
    put: Vec<u32>,
    lists: Vec<u32>,
    parts: Vec<Part>,
    choices: Vec<(u32, u32)>,
    failures: Failures,
    steps: u64,
    max_steps: u64,
    depth: u32,
    by_product: bool,
}

/// Rectangles `lists[from..to]`, which hang together in sections `[first, end)`.
#[derive(Debug, Clone, Copy)]
struct Part {
    from: usize,
    to: usize,
    first: u32,
    end: u32,
    slack: i32,
}

/// Sections `[left, right)` of equal height between higher neighbours.
#[derive(Debug, Clone, Copy)]
struct Valley {
    left: u32,
    right: u32,
    /// Rectangles that fit in and begin at the left, end at the right, or do neither: how many, smallest size.
    at_left: u32,
    at_right: u32,
    off_left: i32,
    off_right: i32,
}

impl Skyline {
    /// Takes rectangles ordered by `first`.
    pub(crate) fn new(rects: Vec<Rect>) -> Self {
        let n = rects.len();
        let sections = rects.iter().map(|r| r.end).max().unwrap_or(0) as usize;
        Self {
            capacity: 0,
            rank: vec![0; n],
            height: vec![0; sections],
            top: vec![0; sections],
            to_come: vec![0; sections],
            offset: vec![0; n],
            base: vec![0; sections],
            valley_of: vec![0; sections],
            valleys: Vec::new(),
            changed: Vec::new(),
            put: Vec::new(),
            lists: Vec::new(),
            parts: Vec::new(),
            choices: Vec::new(),
            failures: Failures::default(),
            steps: 0,
            max_steps: 0,
            depth: 0,
            by_product: false,
            rects,
        }
    }

    /// Looks for a packing within `capacity`, trying what can go to one place by `rank`.
    ///
    /// The place with least room comes first, or with `by_product` the one with the smallest product of room and choices.
    pub(crate) fn solve(&mut self, capacity: i32, rank: &[u32], by_product: bool, max_steps: u64) -> Outcome {
        if capacity != self.capacity {
            self.failures.clear();
        }
        self.capacity = capacity;
        self.rank.copy_from_slice(rank);
        self.steps = 0;
        self.max_steps = max_steps;
        self.by_product = by_product;
        self.depth = 0;
        self.height.fill(0);
        self.top.fill(0);
        self.offset.fill(0);
        self.to_come.fill(0);
        for r in &self.rects {
            self.to_come[r.first as usize..r.end as usize]
                .iter_mut()
                .for_each(|t| *t += r.size);
        }
        self.changed.clear();
        self.put.clear();
        self.parts.clear();
        self.choices.clear();
        self.lists.clear();
        self.lists.extend(0..self.rects.len() as u32);
        self.solve_rest(0)
    }

    /// States looked at by the last [`solve`](Self::solve).
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Offsets after [`Outcome::Solved`], by rectangle.
    pub(crate) fn offsets(&self) -> &[i32] {
        &self.offset
    }

    /// Places all of `lists[from..]`, part by part; undoes everything unless it is solved.
    fn solve_rest(&mut self, from: usize) -> Outcome {
        let (list_end, part_start) = (self.lists.len(), self.parts.len());
        let (changed, put) = (self.changed.len(), self.put.len());
        let mut outcome = Outcome::Solved;
        let mut part_from = from;
        let mut reach = 0;
        for at in from..=list_end {
            let next = self.lists.get(at).map(|&i| self.rects[i as usize]);
            if at > part_from && next.is_none_or(|r| r.first >= reach) {
                let first = self.rects[self.lists[part_from] as usize].first;
                let part = Part {
                    from: part_from,
                    to: at,
                    first,
                    end: reach,
                    slack: 0,
                };
                if at - part_from == 1 {
                    // Nothing else is left where it lives, so its lowest place is as good as any.
                    let i = self.lists[part_from] as usize;
                    self.offset[i] = self.lowest(i);
                    if self.offset[i] + self.rects[i].size > self.capacity {
                        outcome = Outcome::Failed;
                        break;
                    }
                    self.place(i as u32);
                } else {
                    let heights = self.height[first as usize..reach as usize].iter();
                    let fullest = heights
                        .zip(&self.to_come[first as usize..reach as usize])
                        .map(|(h, t)| h + t);
                    let slack = self.capacity - fullest.max().unwrap_or(0);
                    self.parts.push(Part { slack, ..part });
                }
                part_from = at;
            }
            reach = next.map_or(reach, |r| r.end.max(reach));
        }
        if outcome == Outcome::Solved {
            let part_end = self.parts.len();
            self.parts[part_start..].sort_unstable_by_key(|p| (p.slack, p.from));
            for at in part_start..part_end {
                outcome = self.solve_part(self.parts[at]);
                if outcome != Outcome::Solved {
                    break;
                }
            }
        }
        self.parts.truncate(part_start);
        if outcome != Outcome::Solved {
            self.undo(changed, put);
        }
        outcome
    }

    fn solve_part(&mut self, part: Part) -> Outcome {
        self.steps += 1;
        if self.steps > self.max_steps || self.depth > MAX_DEPTH {
            return Outcome::OutOfSteps;
        }
        self.depth += 1;
        let outcome = self.decide(part);
        self.depth -= 1;
        outcome
    }

    /// Picks the tightest edge and tries what can lie there.
    fn decide(&mut self, part: Part) -> Outcome {
        let (changed, put) = (self.changed.len(), self.put.len());
        let Some(hash) = self.lift(part) else {
            self.undo(changed, put);
            return Outcome::Failed;
        };
        if self.failures.contains(hash) {
            self.undo(changed, put);
            return Outcome::Failed;
        }
        self.find_valleys(part);
        let (edge, valley, leave_empty) = self.tightest_edge(part);
        let first_choice = self.choices.len();
        for at in part.from..part.to {
            let i = self.lists[at];
            let r = self.rects[i as usize];
            let there = if edge == valley.left {
                r.first == edge
            } else {
                r.end == edge + 1
            };
            if there && r.first >= valley.left && r.end <= valley.right && self.supported(i as usize) {
                self.choices.push((self.rank[i as usize], i));
            }
        }
        self.choices[first_choice..].sort_unstable();
        let mut outcome = Outcome::Failed;
        let low = self.height[edge as usize];
        for choice in first_choice..self.choices.len() {
            let i = self.choices[choice].1;
            let (changed, put) = (self.changed.len(), self.put.len());
            self.offset[i as usize] = low;
            self.place(i);
            let list = self.lists.len();
            let own = self.lists[part.from..part.to].iter().position(|&j| j == i).unwrap_or(0);
            self.lists.extend_from_within(part.from..part.from + own);
            self.lists.extend_from_within(part.from + own + 1..part.to);
            outcome = self.solve_rest(list);
            self.lists.truncate(list);
            if outcome != Outcome::Failed {
                break;
            }
            self.undo(changed, put);
        }
        self.choices.truncate(first_choice);
        if let (Outcome::Failed, Some(above)) = (outcome, leave_empty) {
            self.raise(edge, above);
            outcome = self.solve_part(part);
        }
        match outcome {
            Outcome::Failed => {
                self.failures.insert(hash);
                self.undo(changed, put);
            }
            Outcome::OutOfSteps | Outcome::Solved => {}
        }
        outcome
    }

    /// Lifts every section to the lowest rectangle that can still go there; returns a hash of what is
    /// left and where, or `None` when something has no room.
    fn lift(&mut self, part: Part) -> Option<u64> {
        let (first, end) = (part.first as usize, part.end as usize);
        self.base[first..end].fill(WALL);
        let mut hash = 0u64;
        for at in part.from..part.to {
            let i = self.lists[at] as usize;
            let r = self.rects[i];
            let span = r.first as usize..r.end as usize;
            let low = self.lowest(i);
            if low + r.size > self.capacity {
                return None;
            }
            let top = self.top[span.clone()].iter().fold(0, |m, &t| m.max(t));
            self.offset[i] = low;
            self.base[span].iter_mut().for_each(|b| *b = (*b).min(low));
            hash = hash.wrapping_add(mix(i as u64 ^ (low as u64) << 16 ^ (top as u64) << 40));
        }
        for s in first..end {
            if self.base[s] + self.to_come[s] > self.capacity {
                return None;
            }
            if self.base[s] > self.height[s] {
                self.raise(s as u32, self.base[s]);
            }
        }
        Some(hash)
    }

    /// Finds the valleys of a part and counts what can go to their edges.
    fn find_valleys(&mut self, part: Part) {
        self.valleys.clear();
        let (first, end) = (part.first as usize, part.end as usize);
        let mut left = first;
        while left < end {
            let h = self.height[left];
            let right = left + self.height[left..end].iter().take_while(|&&x| x == h).count();
            let low = (left == first || self.height[left - 1] > h) && (right == end || self.height[right] > h);
            self.valley_of[left..right].fill(if low { self.valleys.len() as u32 } else { u32::MAX });
            if low {
                let (left, right) = (left as u32, right as u32);
                self.valleys.push(Valley {
                    left,
                    right,
                    at_left: 0,
                    at_right: 0,
                    off_left: WALL,
                    off_right: WALL,
                });
            }
            left = right;
        }
        for at in part.from..part.to {
            let i = self.lists[at] as usize;
            let r = self.rects[i];
            let Some(&v) = self.valleys.get(self.valley_of[r.first as usize] as usize) else {
                continue;
            };
            if r.end > v.right {
                continue;
            }
            let supported = self.supported(i);
            let v = &mut self.valleys[self.valley_of[r.first as usize] as usize];
            if r.first == v.left {
                v.at_left += u32::from(supported);
            } else {
                v.off_left = v.off_left.min(r.size);
            }
            if r.end == v.right {
                v.at_right += u32::from(supported);
            } else {
                v.off_right = v.off_right.min(r.size);
            }
        }
    }

    /// The edge to decide next, its valley, and to what height it may be left empty, if at all.
    fn tightest_edge(&self, part: Part) -> (u32, Valley, Option<i32>) {
        let mut best: Option<(_, u32, Valley, Option<i32>)> = None;
        for v in &self.valleys {
            let low = self.height[v.left as usize];
            // Nothing to come reaches out of the part.
            let before = if v.left == part.first {
                WALL
            } else {
                self.height[v.left as usize - 1]
            };
            let after = if v.right == part.end {
                WALL
            } else {
                self.height[v.right as usize]
            };
            let beside = before.min(after);
            for (edge, count, off) in [(v.left, v.at_left, v.off_left), (v.right - 1, v.at_right, v.off_right)] {
                let above = beside.min(low.saturating_add(off));
                let room = self.capacity - self.to_come[edge as usize];
                let leave_empty = (above <= room).then_some(above);
                let slack = room - low;
                let count = count as i32 + i32::from(leave_empty.is_some());
                let free = if self.by_product {
                    count.saturating_mul(slack)
                } else {
                    2
                };
                // Where there is no choice the answer is free; elsewhere little room means few wrong answers.
                let key = (if count < 2 { count - 2 } else { free }, slack, edge);
                if best.as_ref().is_none_or(|&(k, ..)| key < k) {
                    best = Some((key, edge, *v, leave_empty));
                }
            }
        }
        let (_, edge, valley, leave_empty) = best.expect("the lowest section of a part is in a valley");
        (edge, valley, leave_empty)
    }

    fn lowest(&self, i: usize) -> i32 {
        let r = self.rects[i];
        self.height[r.first as usize..r.end as usize]
            .iter()
            .fold(0, |m, &h| m.max(h))
    }

    /// Whether something placed reaches up to the lowest place of `i`.
    fn supported(&self, i: usize) -> bool {
        let r = self.rects[i];
        self.top[r.first as usize..r.end as usize].contains(&self.offset[i])
    }

    fn place(&mut self, i: u32) {
        let r = self.rects[i as usize];
        let top = self.offset[i as usize] + r.size;
        for s in r.first..r.end {
            self.changed.push((s, self.height[s as usize], self.top[s as usize]));
            self.height[s as usize] = top;
            self.top[s as usize] = top;
            self.to_come[s as usize] -= r.size;
        }
        self.put.push(i);
    }

    fn raise(&mut self, section: u32, height: i32) {
        let s = section as usize;
        self.changed.push((section, self.height[s], self.top[s]));
        self.height[s] = height;
    }

    fn undo(&mut self, changed: usize, put: usize) {
        for &(s, height, top) in self.changed[changed..].iter().rev() {
            self.height[s as usize] = height;
            self.top[s as usize] = top;
        }
        self.changed.truncate(changed);
        for &i in &self.put[put..] {
            let r = self.rects[i as usize];
            self.to_come[r.first as usize..r.end as usize]
                .iter_mut()
                .for_each(|t| *t += r.size);
        }
        self.put.truncate(put);
    }
}
