//! All schedules, where they can be listed: the cycle of least mean cost in the graph of what can be mapped after each
//! batch.
//!
//! Nothing is gained by mapping before a batch asks or by dropping more than must go, so only such steps are edges. A
//! round is taken for the best until a cycle of lower mean turns up as a negative cycle; when relaxation comes to rest,
//! the distances prove that there is none.

use std::cmp::Reverse;
use std::collections::HashMap;

use hexloom_abi::limits::MAX_MAPPINGS;

use super::cycle::{Set, Sets, members};
use super::schedule::Round;

/// Up to so many buffers all schedules are looked at; beyond, where there are no more states and steps than
/// `MAX_NODES` and `MAX_EDGES`.
pub const EXACT_BUFFERS: usize = 12;
/// More than twelve batches of twelve buffers can have.
const MAX_NODES: usize = 50_000;
const MAX_EDGES: usize = 2_000_000;

/// The best round there is, found from `known`; `None` when there are too many schedules.
pub(super) fn improve(sets: &Sets<'_>, known: &Round) -> Option<Round> {
    let graph = Graph::new(sets)?;
    let mut best = known.clone();
    while let Some(better) = graph.negative_cycle(&best) {
        debug_assert!(better.beats(&best, sets));
        best = better;
    }
    Some(best)
}

/// A batch that has run, with what was mapped then.
struct Node {
    mapped: Set,
    next: Vec<u32>,
}

struct Graph<'a> {
    sets: &'a Sets<'a>,
    nodes: Vec<Node>,
    /// Nodes of each batch.
    layers: Vec<Vec<u32>>,
}

impl<'a> Graph<'a> {
    /// Everything that can follow what may be mapped after the last batch, as much of it as fits.
    fn new(sets: &'a Sets<'a>) -> Option<Self> {
        let n_batches = sets.batches.len();
        let mut graph = Self {
            sets,
            nodes: Vec::new(),
            layers: vec![Vec::new(); n_batches],
        };
        let mut index: HashMap<(usize, Set), u32> = HashMap::new();
        let all = sets.batches.iter().fold(0, |all, batch| all | batch);
        let limits = match all.count_ones() as usize {
            0..=EXACT_BUFFERS => (usize::MAX, usize::MAX),
            n if n <= MAX_MAPPINGS => (MAX_NODES, MAX_EDGES),
            _ => return None,
        };
        let mut edges = 0;
        let last = n_batches - 1;
        let mut open: Vec<(usize, u32)> = Vec::new();
        for mapped in fullest(sets, all, sets.batches[last], limits.0)? {
            open.push((last, graph.node(&mut index, last, mapped).0));
        }
        while let Some((batch, node)) = open.pop() {
            let to = (batch + 1) % n_batches;
            let with = graph.nodes[node as usize].mapped | sets.batches[to];
            for mapped in fullest(sets, with, sets.batches[to], limits.0)? {
                edges += 1;
                let (next, new) = graph.node(&mut index, to, mapped);
                graph.nodes[node as usize].next.push(next);
                if new {
                    open.push((to, next));
                }
            }
            if graph.nodes.len() > limits.0 || edges > limits.1 {
                return None;
            }
        }
        Some(graph)
    }

    fn node(&mut self, index: &mut HashMap<(usize, Set), u32>, batch: usize, mapped: Set) -> (u32, bool) {
        let new = self.nodes.len() as u32;
        let node = *index.entry((batch, mapped)).or_insert(new);
        if node == new {
            self.nodes.push(Node {
                mapped,
                next: Vec::new(),
            });
            self.layers[batch].push(node);
        }
        (node, node == new)
    }

    /// A cycle whose mean cost is below that of `best`.
    fn negative_cycle(&self, best: &Round) -> Option<Round> {
        let (cost, tokens) = (best.cost(self.sets).weight(), best.tokens(self.sets) as i128);
        let mut distance = vec![0i128; self.nodes.len()];
        let mut parent = vec![u32::MAX; self.nodes.len()];
        let n_batches = self.layers.len();
        loop {
            let mut changed = false;
            // A token starts with the step out of the last batch.
            for from in (n_batches - 1..n_batches).chain(0..n_batches - 1) {
                let start = if from == n_batches - 1 { cost } else { 0 };
                for &node in &self.layers[from] {
                    let Node { mapped, next } = &self.nodes[node as usize];
                    for &to in next {
                        let new = self.nodes[to as usize].mapped & !mapped;
                        let through = distance[node as usize] + self.sets.cost(new).weight() * tokens - start;
                        if through < distance[to as usize] {
                            distance[to as usize] = through;
                            parent[to as usize] = node;
                            changed = true;
                        }
                    }
                }
            }
            if !changed {
                return None;
            }
            if let Some(cycle) = self.parents_cycle(&parent) {
                return Some(cycle);
            }
        }
    }

    /// A cycle among `parent` links, as a round that starts with batch 0.
    fn parents_cycle(&self, parent: &[u32]) -> Option<Round> {
        let mut seen = vec![u32::MAX; parent.len()];
        for &start in &self.layers[0] {
            let mut at = start;
            while at != u32::MAX && seen[at as usize] == u32::MAX {
                seen[at as usize] = start;
                at = parent[at as usize];
            }
            if at == u32::MAX || seen[at as usize] != start {
                continue;
            }
            let mut cycle = vec![at];
            let mut node = parent[at as usize];
            while node != at {
                cycle.push(node);
                node = parent[node as usize];
            }
            cycle.reverse();
            let first = cycle
                .iter()
                .position(|node| self.layers[0].binary_search(node).is_ok())?;
            cycle.rotate_left(first);
            let mapped = cycle.iter().map(|&node| self.nodes[node as usize].mapped).collect();
            return Some(Round { mapped });
        }
        None
    }
}

/// The subsets of `all` with all of `needed` that fit and to which nothing of `all` can be added; `None` when there are
/// more than `most`.
fn fullest(sets: &Sets<'_>, all: Set, needed: Set, most: usize) -> Option<Vec<Set>> {
    let mut others: Vec<usize> = members(all & !needed).collect();
    others.sort_by_key(|&buffer| Reverse(sets.bytes[buffer]));
    let mut found = Vec::new();
    // Largest first: what goes last is the smallest that goes, and without it too little would go.
    let excess = sets.sum(all).saturating_sub(sets.window);
    let mut open = vec![(0, excess, all)];
    while let Some((next, excess, kept)) = open.pop() {
        if excess == 0 {
            found.push(kept);
        } else if let Some(&buffer) = others.get(next) {
            open.push((next + 1, excess, kept));
            open.push((
                next + 1,
                excess.saturating_sub(sets.bytes[buffer]),
                kept & !(1 << buffer),
            ));
        }
        if found.len() > most || open.len() > most {
            return None;
        }
    }
    Some(found)
}
