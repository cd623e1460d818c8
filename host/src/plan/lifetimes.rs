//! When each tensor lives, which operand a result may replace, and how many bytes live at once.
//!
//! Step 0 is the time before the first node, when inputs are filled; node `i` runs at step `i + 1`.
//! A tensor lives from the step that makes it to its last reader's, both included, so a result and
//! its operands never share bytes unless the result takes one over.

use super::graph::{Flags, Graph, Node};

/// Never freed: an output.
pub(crate) const FOREVER: u32 = u32::MAX;
const UNSET: u32 = u32::MAX - 1;

/// What becomes of a tensor that nobody reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unread {
    /// It dies at the end of its own step.
    #[default]
    Freed,
    /// It and the tensor it looks into are kept to the end, as ggml does.
    Kept,
}

/// First and last step of every tensor that is its own root; other entries mean nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lifetimes {
    pub(crate) start: Vec<u32>,
    pub(crate) last: Vec<u32>,
    read: Vec<bool>,
}

impl Lifetimes {
    /// Fills in the lifetimes of `graph`, reusing memory.
    pub(crate) fn compute(&mut self, graph: &Graph, unread: Unread) {
        self.start.clear();
        self.last.clear();
        self.start.extend(
            graph
                .tensors
                .iter()
                .map(|t| if t.leaf || t.flags.has(Flags::INPUT) { 0 } else { UNSET }),
        );
        self.last.extend(
            graph
                .tensors
                .iter()
                .map(|t| if t.flags.has(Flags::OUTPUT) { FOREVER } else { 0 }),
        );
        for (step, node) in (1..).zip(&graph.nodes) {
            for operand in graph.operands_of(node) {
                self.touch(graph.tensors[operand.0 as usize].root, step);
            }
            self.touch(graph.tensors[node.dst as usize].root, step);
        }
        if unread == Unread::Kept {
            self.keep_unread(graph);
        }
    }

    fn touch(&mut self, root: u32, step: u32) {
        let start = &mut self.start[root as usize];
        if *start == UNSET {
            *start = step;
        }
        let last = &mut self.last[root as usize];
        *last = (*last).max(step);
    }

    fn keep_unread(&mut self, graph: &Graph) {
        self.read.clear();
        self.read.resize(graph.tensors.len(), false);
        for operand in &graph.operands {
            self.read[operand.0 as usize] = true;
        }
        for (idx, (t, &read)) in graph.tensors.iter().zip(&self.read).enumerate() {
            if !read && (t.root == idx as u32 || !t.leaf) {
                self.last[t.root as usize] = FOREVER;
            }
        }
    }
}

/// How freely results take over operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// Only operands that are no views and are named once, as ggml does; smaller results too.
    Plain,
    /// Also through full-size views and operands named twice; equal sizes only.
    Full,
}

/// The operand's root that the result of `node`, run at `step`, may take over; the first in operand order.
pub(crate) fn operand_to_replace(
    graph: &Graph,
    life: &Lifetimes,
    node: &Node,
    step: u32,
    reuse: Reuse,
    same_bytes: impl Fn(u64, u64) -> bool,
) -> Option<u32> {
    let mask = node.in_place;
    if mask.0 == 0 || life.start[node.dst as usize] != step || !graph.owned(node.dst) {
        return None;
    }
    let operands = graph.operands_of(node);
    let dst = &graph.tensors[node.dst as usize];
    operands
        .iter()
        .enumerate()
        .filter(|&(idx, _)| mask.allows(idx))
        .find_map(|(idx, operand)| {
            let t = &graph.tensors[operand.0 as usize];
            let root = &graph.tensors[t.root as usize];
            let is_view = t.root != operand.0;
            // The last step is the cheap test that most operands fail.
            if life.last[t.root as usize] != step || !graph.owned(t.root) || root.kind != dst.kind {
                return None;
            }
            if t.view_offset != 0 || t.root == node.dst {
                return None;
            }
            let fits = match reuse {
                Reuse::Plain => !is_view && dst.bytes <= root.bytes,
                Reuse::Full => same_bytes(dst.bytes, root.bytes),
            };
            let others_bear_it = operands.iter().enumerate().all(|(i, o)| {
                let other = &graph.tensors[o.0 as usize];
                i == idx || other.root != t.root || (reuse == Reuse::Full && mask.allows(i) && other.view_offset == 0)
            });
            (fits && others_bear_it).then_some(t.root)
        })
}
