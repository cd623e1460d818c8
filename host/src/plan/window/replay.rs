//! A history replayed over a modelled window: hexloom's way, the reference's, and none.

use std::collections::BTreeMap;

use hexloom_abi::limits::MAX_BUFFERS;

use super::history::{Event, Tensors};
use super::{Costs, Making, Need, Outlook, Table, Window};
use crate::plan::buffers::{BufferLimits, BufferPlanError, Layer, PAGE_BYTES, TensorNeed};

/// How tensors become buffers and buffers become mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Buffers planned for the window as the host sees it, mapped largest first; see [`Outlook`].
    Hexloom(BufferLimits),
    /// The reference's buffers, runs of one layer put first-fit below a cap, under its rule of making room or ours.
    FirstFit {
        /// Cap in bytes.
        cap_bytes: u64,
        /// The rule.
        making: Making,
    },
    /// No plan: a buffer for each tensor, mapped as they come.
    Apart,
}

/// Buffers of a group and, for each of its tensors, which one it is in.
#[derive(Debug)]
struct Group {
    names: Vec<String>,
    buffers: Vec<Need>,
    buffer_of: Vec<usize>,
}

/// A live model.
#[derive(Debug)]
struct Loaded {
    weights: Group,
    cache: Group,
    compute: Group,
    /// Buffers of each batch of one token.
    batches: Vec<Vec<Need>>,
}

/// What the mapping table was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// [`Table::resolve`] with the buffers of a batch.
    Resolve(Vec<Need>),
    /// [`Table::forget`].
    Forget(Vec<u32>),
}

/// A session that replays histories.
#[derive(Debug)]
pub struct Replay {
    table: Table,
    way: Way,
    outlook: Option<Outlook>,
    next_id: u32,
    models: BTreeMap<usize, Loaded>,
    calls: Option<Vec<Call>>,
}

impl Replay {
    /// A session over an empty window.
    pub fn new(window: Window, way: Way) -> Self {
        let making = match way {
            Way::Hexloom(_) => Making::Stretch,
            Way::FirstFit { making, .. } => making,
            Way::Apart => Making::DropAllUnsorted,
        };
        Self {
            outlook: matches!(way, Way::Hexloom(_)).then(|| Outlook::new(window.bytes())),
            table: Table::new(window, making),
            way,
            next_id: 0,
            models: BTreeMap::new(),
            calls: None,
        }
    }

    /// The same with what the mapping table is asked for kept for [`Replay::take_calls`], to ask another table.
    pub fn with_calls(mut self) -> Self {
        self.calls = Some(Vec::new());
        self
    }

    /// What the mapping table was asked for since this was last taken.
    pub fn take_calls(&mut self) -> Vec<Call> {
        self.calls.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What all events so far have cost.
    pub fn costs(&self) -> Costs {
        self.table.costs()
    }

    /// The mapping table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Lets one event happen.
    ///
    /// # Errors
    /// [`BufferPlanError`] when a tensor can never be mapped.
    pub fn step(&mut self, event: &Event) -> Result<(), BufferPlanError> {
        match event {
            Event::Load {
                model,
                weights,
                cache,
                compute,
            } => {
                let mut loaded = Loaded {
                    weights: self.group(weights)?,
                    cache: self.group(cache)?,
                    compute: self.group(compute)?,
                    batches: Vec::new(),
                };
                loaded.batches = loaded.batches(self.table.window().bytes());
                self.models.insert(*model, loaded);
            }
            Event::Resize { model, cache, copies } => self.resize(*model, cache, *copies)?,
            Event::Unload { model } => {
                if let Some(loaded) = self.models.remove(model) {
                    for group in [&loaded.compute, &loaded.cache, &loaded.weights] {
                        self.free(group);
                    }
                }
            }
            Event::Tokens(n) => {
                let batches: Vec<Vec<Need>> = self.models.values().flat_map(|loaded| loaded.batches.clone()).collect();
                for _ in 0..*n {
                    batches.iter().for_each(|batch| self.send(batch));
                }
            }
        }
        Ok(())
    }

    /// A batch, after whatever is to be mapped before it.
    fn send(&mut self, batch: &[Need]) {
        if let Some(outlook) = &mut self.outlook {
            for first in outlook.take_pending() {
                self.table.resolve(&first);
                self.calls
                    .iter_mut()
                    .for_each(|calls| calls.push(Call::Resolve(first.clone())));
            }
            outlook.batch(batch);
        }
        self.table.resolve(batch);
        self.calls
            .iter_mut()
            .for_each(|calls| calls.push(Call::Resolve(batch.to_vec())));
    }

    fn resize(&mut self, model: usize, cache: &Tensors, copies: bool) -> Result<(), BufferPlanError> {
        let Some(mut loaded) = self.models.remove(&model) else {
            return Ok(());
        };
        if !copies {
            self.free(&loaded.cache);
        }
        let old = std::mem::replace(&mut loaded.cache, self.group(cache)?);
        if copies {
            // Copies, half of each batch's buffers new and half old.
            let half = MAX_BUFFERS as usize / 2;
            for part in 0..loaded.cache.buffers.len().max(old.buffers.len()).div_ceil(half) {
                let some = |group: &Group| {
                    group
                        .buffers
                        .iter()
                        .skip(part * half)
                        .take(half)
                        .copied()
                        .collect::<Vec<_>>()
                };
                self.send(&[some(&loaded.cache), some(&old)].concat());
            }
            self.free(&old);
        }
        loaded.batches = loaded.batches(self.table.window().bytes());
        self.models.insert(model, loaded);
        Ok(())
    }

    fn free(&mut self, group: &Group) {
        let ids: Vec<u32> = group.buffers.iter().map(|need| need.id).collect();
        self.table.forget(&ids);
        self.calls
            .iter_mut()
            .for_each(|calls| calls.push(Call::Forget(ids.clone())));
        if let Some(outlook) = &mut self.outlook {
            outlook.free(&ids);
        }
    }

    fn group(&mut self, tensors: &Tensors) -> Result<Group, BufferPlanError> {
        let (sizes, buffer_of) = match (&self.way, &self.outlook) {
            (Way::Hexloom(limits), Some(outlook)) => {
                let needs: Vec<TensorNeed<'_>> = tensors
                    .iter()
                    .map(|(name, bytes)| TensorNeed::new(name, *bytes))
                    .collect();
                let plan = outlook.plan(&needs, limits)?;
                let sizes = plan.buffers.iter().map(|buffer| buffer.mapped_bytes()).collect();
                (sizes, plan.places.iter().flatten().map(|place| place.buffer).collect())
            }
            (Way::FirstFit { cap_bytes, .. }, _) => first_fit(tensors, *cap_bytes),
            _ => apart(tensors),
        };
        let mut next = || {
            self.next_id += 1;
            self.next_id
        };
        let buffers: Vec<Need> = sizes.into_iter().map(|bytes| Need { id: next(), bytes }).collect();
        if let Some(outlook) = &mut self.outlook {
            outlook.add(&buffers);
        }
        Ok(Group {
            names: tensors.iter().map(|(name, _)| name.clone()).collect(),
            buffers,
            buffer_of,
        })
    }
}

fn apart(tensors: &[(String, u64)]) -> (Vec<u64>, Vec<usize>) {
    let sizes = tensors.iter().map(|(_, bytes)| mapped(*bytes)).collect();
    (sizes, (0..tensors.len()).collect())
}

/// Runs of one layer, each into the first buffer with room.
fn first_fit(tensors: &[(String, u64)], cap: u64) -> (Vec<u64>, Vec<usize>) {
    let mut units: Vec<(Option<Layer>, u64, Vec<usize>)> = Vec::new();
    for (idx, (name, bytes)) in tensors.iter().enumerate() {
        let (layer, bytes) = (Layer::of(name), bytes.next_multiple_of(128));
        match units.last_mut() {
            Some((last, sum, inside)) if layer.is_some() && *last == layer && *sum + bytes <= cap => {
                *sum += bytes;
                inside.push(idx);
            }
            _ => units.push((layer, bytes, vec![idx])),
        }
    }
    let mut buffers: Vec<(u64, Vec<usize>)> = Vec::new();
    for (_, bytes, inside) in units {
        match buffers.iter_mut().find(|(sum, _)| *sum + bytes <= cap) {
            Some((sum, all)) => {
                *sum += bytes;
                all.extend(inside);
            }
            None => buffers.push((bytes, inside)),
        }
    }
    buffers.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let mut buffer_of = vec![0; tensors.len()];
    for (idx, (_, inside)) in buffers.iter().enumerate() {
        inside.iter().for_each(|&tensor| buffer_of[tensor] = idx);
    }
    (buffers.iter().map(|(bytes, _)| mapped(*bytes)).collect(), buffer_of)
}

fn mapped(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES
}

impl Loaded {
    /// Cuts the ops of one token into batches that keep to the wire's number of buffers and to the window.
    fn batches(&self, window_bytes: u64) -> Vec<Vec<Need>> {
        let mut batches: Vec<Vec<Need>> = Vec::new();
        let mut open: Vec<Need> = Vec::new();
        for op in self.ops() {
            let mut with: Vec<Need> = open.clone();
            op.iter().for_each(|need| {
                if !with.contains(need) {
                    with.push(*need);
                }
            });
            let bytes: u64 = with.iter().map(|need| need.bytes).sum();
            if with.len() > MAX_BUFFERS as usize || bytes > window_bytes {
                batches.push(std::mem::replace(&mut open, op));
            } else {
                open = with;
            }
        }
        batches.push(open);
        batches
    }

    /// Buffers of each op of a token: a weight with the computed tensors, and the layer's cache with its first one.
    fn ops(&self) -> Vec<Vec<Need>> {
        let buffer = |group: &Group, idx: usize| group.buffers[group.buffer_of[idx]];
        let names = &self.weights.names;
        // The head of a model with tied embeddings is its first tensor once more.
        let tied = names.iter().all(|name| !name.starts_with("output."));
        let mut ops = Vec::new();
        let mut before = None;
        for idx in (0..names.len()).chain(tied.then_some(0)) {
            let mut op = vec![buffer(&self.weights, idx)];
            op.extend(&self.compute.buffers);
            let layer = Layer::of(&names[idx]);
            if let (Some(Layer::Weights(layer)), true) = (layer, layer != before) {
                let of_layer = |&idx: &usize| Layer::of(&self.cache.names[idx]) == Some(Layer::Cache(layer));
                let inside = (0..self.cache.names.len()).filter(of_layer);
                op.extend(inside.map(|idx| buffer(&self.cache, idx)));
            }
            before = layer;
            ops.push(op);
        }
        ops
    }
}
