//! A plan in force and the chunks that back it: reserve once, then bind graph after graph.
//!
//! What a chunk is made of is the caller's: see [`MakeBuffer`]. A failed reserve changes nothing.

use super::error::PlanError;
use super::graph::Graph;
use super::lifetimes::Unread;
use super::limits::Limits;
use super::offline::Planner;
use super::online::OnlinePlanner;
use super::result::Plan;

/// Makes the memory of a chunk.
pub trait MakeBuffer {
    /// What a chunk is.
    type Buffer;

    /// Makes a chunk of `bytes` for buffer kind `kind`, its base aligned as the limits of the kind say.
    ///
    /// # Errors
    /// Why it could not be made, for the message.
    fn make(&mut self, kind: usize, bytes: u64) -> Result<Self::Buffer, String>;
}

/// Which planner a [`GraphMemory`] uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Graph order: cheapest to plan.
    Online,
    /// The best of a few passes.
    #[default]
    Quick,
}

/// Chunks held for graphs of one structure, and the plan that says what lies where.
#[derive(Debug)]
pub struct GraphMemory<B> {
    limits: Vec<Limits>,
    mode: Mode,
    planner: Planner,
    plan: Option<Plan>,
    held: Vec<Vec<Held<B>>>,
}

#[derive(Debug)]
struct Held<B> {
    buffer: B,
    bytes: u64,
}

impl<B> GraphMemory<B> {
    /// Holds nothing yet; `limits[k]` holds for buffer kind `k`.
    pub fn new(limits: Vec<Limits>, mode: Mode) -> Self {
        let held = limits.iter().map(|_| Vec::new()).collect();
        Self {
            limits,
            mode,
            planner: Planner::new(),
            plan: None,
            held,
        }
    }

    /// The plan that `graph` would get. Changes nothing that is held.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn measure(&mut self, graph: &Graph) -> Result<Plan, PlanError> {
        match self.mode {
            Mode::Online => OnlinePlanner::new().plan(graph, &self.limits, Unread::Freed),
            Mode::Quick => self.planner.quick(graph, &self.limits),
        }
    }

    /// Plans `graph`, remakes the chunks that are too small and puts the plan in force.
    ///
    /// Returns how many chunks were made. Old chunks go only after all new ones are there.
    ///
    /// # Errors
    /// See [`PlanError`]; the plan and the chunks from before are then still in force.
    pub fn reserve(&mut self, graph: &Graph, maker: &mut impl MakeBuffer<Buffer = B>) -> Result<usize, PlanError> {
        let plan = self.measure(graph)?;
        let mut made = Vec::new();
        for (kind, k) in plan.kinds.iter().enumerate() {
            for (chunk, &bytes) in k.chunks.iter().enumerate() {
                if self.held[kind].get(chunk).is_none_or(|h| h.bytes < bytes) {
                    let buffer = maker.make(kind, bytes);
                    let buffer = buffer.map_err(|reason| PlanError::Buffer {
                        kind,
                        chunk,
                        bytes,
                        reason,
                    })?;
                    made.push((kind, chunk, Held { buffer, bytes }));
                }
            }
        }
        let count = made.len();
        for (kind, chunk, new) in made {
            match self.held[kind].get_mut(chunk) {
                Some(old) => *old = new,
                None => self.held[kind].push(new),
            }
        }
        self.plan = Some(plan);
        Ok(count)
    }

    /// The plan in force, if `graph` can run with it. Never plans, never makes a chunk.
    ///
    /// # Errors
    /// [`PlanError::NotReserved`], or [`PlanError::GraphChanged`] with what changed.
    pub fn bind(&self, graph: &Graph) -> Result<&Plan, PlanError> {
        let plan = self.plan.as_ref().ok_or(PlanError::NotReserved)?;
        plan.check(graph).map_err(PlanError::GraphChanged)?;
        Ok(plan)
    }

    /// [`bind`](Self::bind), with a [`reserve`](Self::reserve) before it when the graph changed.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn alloc(&mut self, graph: &Graph, maker: &mut impl MakeBuffer<Buffer = B>) -> Result<&Plan, PlanError> {
        if self.bind(graph).is_err() {
            self.reserve(graph, maker)?;
        }
        self.bind(graph)
    }

    /// A chunk held.
    pub fn buffer(&self, kind: usize, chunk: usize) -> Option<&B> {
        self.held.get(kind)?.get(chunk).map(|h| &h.buffer)
    }

    /// Bytes of each chunk really held for `kind`; empty for a kind without limits.
    pub fn held_bytes(&self, kind: usize) -> impl Iterator<Item = u64> + '_ {
        self.held.get(kind).into_iter().flatten().map(|h| h.bytes)
    }
}
