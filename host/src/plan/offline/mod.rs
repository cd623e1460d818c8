//! Planning with all lifetimes known: rectangles of time and bytes are packed, largest first, and the
//! graph order is one of the orders tried, so the result is never larger than the on-line one.

pub(crate) mod buffers;
pub(crate) mod greedy;
mod portfolio;

use self::buffers::Buffers;
use self::portfolio::{ORDERS, Portfolio};
use super::dynamic::Address;
use super::error::PlanError;
use super::graph::{Graph, TensorId};
use super::lifetimes::{Lifetimes, Unread};
use super::limits::Limits;
use super::online::{OnlinePlanner, check};
use super::result::{KindPlan, Method, NOWHERE, Plan, StructureKey};

/// Plans graphs offline; keeps its memory from one graph to the next.
#[derive(Debug, Clone, Default)]
pub struct Planner {
    online: OnlinePlanner,
    life: Lifetimes,
    buffers: Buffers,
    portfolio: Portfolio,
}

/// Addresses of all tensors and chunks of all kinds as the on-line planner has them.
struct InGraphOrder {
    places: Vec<Address>,
    chunks: Vec<Vec<u64>>,
}

impl Planner {
    /// A planner without memory of its own yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Quick mode: the best of a few passes; stops at the first that meets the lower bound.
    ///
    /// Never more bytes nor more chunks than [`OnlinePlanner`] needs with the same limits.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn quick(&mut self, graph: &Graph, limits: &[Limits]) -> Result<Plan, PlanError> {
        let mut places = vec![NOWHERE; graph.tensors.len()];
        let mut room = vec![0; graph.tensors.len()];
        check(graph, limits, &mut room)?;
        self.life.compute(graph, Unread::Freed);
        let mut kinds = Vec::with_capacity(limits.len());
        let mut online = None;
        for (kind, _) in (0u8..).zip(limits) {
            kinds.push(self.plan_kind(graph, limits, kind, &room, &mut online, &mut places)?);
        }
        let key = StructureKey::of(graph);
        Ok(Plan {
            kinds,
            places,
            room,
            nodes: graph.nodes.len(),
            key,
        })
    }

    fn plan_kind(
        &mut self,
        graph: &Graph,
        limits: &[Limits],
        kind: u8,
        room: &[u64],
        online: &mut Option<Result<InGraphOrder, PlanError>>,
        places: &mut [Address],
    ) -> Result<KindPlan, PlanError> {
        let l = &limits[kind as usize];
        self.buffers.collect(graph, &self.life, room, kind, l.alignment);
        let lower_bound = self.buffers.lower_bound(graph)?;
        let buffers = &self.buffers.list;
        if buffers.is_empty() {
            return Ok(KindPlan::empty());
        }
        let portfolio = &mut self.portfolio;
        portfolio.start(buffers, l, lower_bound);
        portfolio.try_order(buffers, l, Method::BySize);
        let mut in_order = None;
        if !portfolio.settled() {
            in_order = online
                .get_or_insert_with(|| in_graph_order(&mut self.online, graph, limits, room))
                .as_ref()
                .ok();
            if let Some(o) = in_order {
                portfolio.allow_chunks(o.chunks[kind as usize].len());
            }
            for method in ORDERS {
                if method != Method::BySize && !portfolio.at_bound() {
                    portfolio.try_order(buffers, l, method);
                }
            }
            for order in [Method::BySize, Method::ByLifetime] {
                if lower_bound > l.chunk_bytes && !portfolio.at_bound() {
                    portfolio.try_by_chunk(buffers, l, order);
                }
            }
        }
        if let Some(o) = in_order {
            let chunks = &o.chunks[kind as usize];
            if portfolio.wants(chunks.iter().fold(0, |s, &c| s.saturating_add(c)), chunks.len()) {
                for (idx, t) in graph.tensors.iter().enumerate().filter(|(_, t)| t.kind == kind) {
                    if t.root == idx as u32 {
                        places[idx] = o.places[idx];
                    }
                }
                return Ok(KindPlan {
                    chunks: chunks.clone(),
                    lower_bound,
                    method: Method::Online,
                });
            }
        }
        let Some(method) = portfolio.method else {
            return Err(match online.take() {
                Some(Err(error)) => error,
                _ => no_room(graph, &self.buffers, l),
            });
        };
        self.buffers.spread(graph, room, kind, &portfolio.best.at, places);
        Ok(KindPlan {
            chunks: portfolio.best.chunks.clone(),
            lower_bound,
            method,
        })
    }
}

/// The on-line plan under ggml's lifetimes, so that it is never larger than ggml's.
fn in_graph_order(
    online: &mut OnlinePlanner,
    graph: &Graph,
    limits: &[Limits],
    room: &[u64],
) -> Result<InGraphOrder, PlanError> {
    let mut places = vec![NOWHERE; graph.tensors.len()];
    online.life.compute(graph, Unread::Kept);
    let chunks = online.place(graph, limits, room, &mut places)?;
    Ok(InGraphOrder { places, chunks })
}

fn no_room(graph: &Graph, buffers: &Buffers, limits: &Limits) -> PlanError {
    let largest = buffers.list.iter().max_by_key(|b| b.bytes);
    PlanError::OutOfChunks {
        tensor: largest.map_or("?", |b| graph.name(TensorId(b.tensor))).to_owned(),
        bytes: largest.map_or(0, |b| b.bytes),
        chunk_bytes: limits.chunk_bytes,
        max_chunks: limits.max_chunks,
    }
}
