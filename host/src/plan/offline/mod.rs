//! Planning with all lifetimes known: rectangles of time and bytes are packed, largest first, and the
//! graph order is one of the orders tried, so the result is never larger than the on-line one.

pub(crate) mod buffers;
mod failures;
pub(crate) mod greedy;
pub(crate) mod pack;
mod portfolio;
mod skyline;

use self::buffers::{Buffer, Buffers};
use self::pack::{Budget, Meter};
use self::portfolio::Portfolio;
use super::dynamic::{Address, DynamicAllocator};
use super::error::PlanError;
use super::graph::{Graph, TensorId};
use super::lifetimes::{Lifetimes, Unread};
use super::limits::Limits;
use super::online::{OnlinePlanner, check, within_range};
use super::result::{KindPlan, Method, NOWHERE, Plan, StructureKey};
use super::validate::validate;

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
        self.plan(graph, limits, None)
    }

    /// Search mode: what quick mode finds, improved until the lower bound is met or the budget is used up.
    ///
    /// With a budget of steps only the result is the same on every run and machine.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn search(&mut self, graph: &Graph, limits: &[Limits], budget: Budget) -> Result<Plan, PlanError> {
        self.plan(graph, limits, Some(Meter::start(budget)))
    }

    fn plan(&mut self, graph: &Graph, limits: &[Limits], mut meter: Option<Meter>) -> Result<Plan, PlanError> {
        let mut places = vec![NOWHERE; graph.tensors.len()];
        let mut room = vec![0; graph.tensors.len()];
        check(graph, limits, &mut room)?;
        self.life.compute(graph, Unread::Freed);
        let mut kinds = Vec::with_capacity(limits.len());
        let mut online = None;
        for kind in 0..limits.len() {
            let kind = Kind {
                graph,
                limits,
                room: &room,
                kind: kind as u8,
            };
            kinds.push(self.plan_kind(&kind, &mut online, meter.as_mut(), &mut places)?);
        }
        let key = StructureKey::of(graph);
        let plan = Plan {
            kinds,
            places,
            room,
            nodes: graph.nodes.len(),
            key,
        };
        debug_assert_eq!(validate(graph, limits, &plan), Ok(()));
        Ok(plan)
    }

    fn plan_kind(
        &mut self,
        kind: &Kind<'_>,
        online: &mut Option<Result<InGraphOrder, PlanError>>,
        meter: Option<&mut Meter>,
        places: &mut [Address],
    ) -> Result<KindPlan, PlanError> {
        let l = &kind.limits[kind.kind as usize];
        self.buffers
            .collect(kind.graph, &self.life, kind.room, kind.kind, l.alignment);
        let lower_bound = self.buffers.lower_bound(kind.graph)?;
        let buffers = &self.buffers.list;
        if buffers.is_empty() {
            return Ok(KindPlan::empty());
        }
        let portfolio = &mut self.portfolio;
        portfolio.start(buffers, l, lower_bound);
        portfolio.try_order(buffers, l, Method::BySize);
        let mut in_order: Option<&InGraphOrder> = None;
        if !portfolio.settled() {
            in_order = online
                .get_or_insert_with(|| in_graph_order(&mut self.online, kind))
                .as_ref()
                .ok();
            if let Some(o) = in_order {
                portfolio.allow_chunks(o.chunks[kind.kind as usize].len());
            }
            portfolio.try_others(buffers, l);
            if let Some(meter) = meter {
                let bytes = in_order.map_or(u64::MAX, |o| sum(&o.chunks[kind.kind as usize]));
                portfolio.improve(buffers, l, bytes, meter);
            }
        }
        if let Some(o) = in_order {
            let chunks = &o.chunks[kind.kind as usize];
            if portfolio.wants(sum(chunks), chunks.len()) {
                for (idx, t) in kind
                    .graph
                    .tensors
                    .iter()
                    .enumerate()
                    .filter(|(_, t)| t.kind == kind.kind)
                {
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
                _ => no_room(kind.graph, &self.buffers, l),
            });
        };
        self.buffers
            .spread(kind.graph, kind.room, kind.kind, &portfolio.best.at, places);
        let chunks = within_range(kind.graph, kind.room, kind.kind, portfolio.best.chunks.clone())?;
        Ok(KindPlan {
            chunks,
            lower_bound,
            method,
        })
    }
}

/// What is to be planned: the tensors of one buffer kind.
struct Kind<'a> {
    graph: &'a Graph,
    limits: &'a [Limits],
    room: &'a [u64],
    kind: u8,
}

fn sum(chunks: &[u64]) -> u64 {
    chunks.iter().fold(0, |sum, &c| sum.saturating_add(c))
}

/// The on-line plan under ggml's lifetimes, so that it is never larger than ggml's.
fn in_graph_order(online: &mut OnlinePlanner, kind: &Kind<'_>) -> Result<InGraphOrder, PlanError> {
    let mut places = vec![NOWHERE; kind.graph.tensors.len()];
    let chunks = online.place(kind.graph, kind.limits, Unread::Kept, kind.room, &mut places)?;
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

/// Packs `buffers`, ordered by start, by all quick passes; returns addresses and bytes.
pub(crate) fn pack_greedily(buffers: &[Buffer], limits: &Limits, lower_bound: u64) -> (Vec<Address>, u64) {
    let mut portfolio = Portfolio::default();
    portfolio.start(buffers, limits, lower_bound);
    portfolio.try_order(buffers, limits, Method::BySize);
    portfolio.try_others(buffers, limits);
    let (at, height) = in_time_order(buffers, limits);
    if portfolio.wants(height, 1) {
        return (at, height);
    }
    (portfolio.best.at.clone(), portfolio.best.bytes())
}

/// What the block allocator makes of `buffers` as they come and go.
fn in_time_order(buffers: &[Buffer], limits: &Limits) -> (Vec<Address>, u64) {
    let mut allocator = DynamicAllocator::new(*limits);
    let mut at: Vec<Address> = Vec::with_capacity(buffers.len());
    let mut by_end: Vec<u32> = (0..buffers.len() as u32).collect();
    by_end.sort_by_key(|&i| (buffers[i as usize].end, i));
    let mut ending = by_end.into_iter().peekable();
    for b in buffers {
        while let Some(i) = ending.next_if(|&i| buffers[i as usize].end <= b.start) {
            allocator.free(at[i as usize], buffers[i as usize].bytes);
        }
        // Without chunk limits there is room for what the caller has checked to add up to an address.
        at.push(allocator.alloc(b.bytes).unwrap_or(NOWHERE));
    }
    let height = allocator.peaks().sum();
    (at, height)
}
