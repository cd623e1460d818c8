//! A conversation: KV cache, position, and the prepared graphs that extend it.

use hexloom::memory::compute::ComputeReport;
use hexloom::plan::buffers::{BufferPlan, TensorNeed};
use hexloom::prepared::{BatchTrace, OpCost};
use hexloom::{Buffer, MapError, PreparedGraph};

use super::Model;
use super::forward::{self, Cache, Forward};
use crate::ModelError;

/// Positions by which the part of the cache that graphs see grows: one block of attention.
const KV_STEP: u32 = hexloom::abi::scratch::ATTENTION_BLOCK;
/// Tokens of a prompt that are evaluated together at most.
pub const BATCH_TOKENS: usize = 64;
/// Prepared graphs for prompt pieces that are kept beside the one for single tokens.
const KEPT_GRAPHS: usize = 2;
/// f16 bits of 0 and of minus infinity.
const VISIBLE: u16 = 0;
const HIDDEN: u16 = 0xfc00;

/// One conversation with a model.
pub struct Context<'m> {
    model: &'m Model,
    cache: Cache,
    n_ctx: u32,
    n_batch: usize,
    n_past: u32,
    decode: Step,
    prompts: Vec<Step>,
    profile: bool,
}

/// A prepared forward pass over a fixed number of tokens.
struct Step {
    n_tokens: u32,
    n_kv: u32,
    prepared: PreparedGraph,
    tensors: Forward,
    /// First position of the last run, so that a mask of one row is only extended.
    mask_end: u32,
}

impl<'m> Context<'m> {
    /// An empty conversation of at most `n_ctx` tokens, with prompts in pieces of [`BATCH_TOKENS`].
    pub fn new(model: &'m Model, n_ctx: u32) -> Result<Self, ModelError> {
        Self::with_batch(model, n_ctx, BATCH_TOKENS)
    }

    /// The same with prompts in pieces of at most `n_batch` tokens; 0 counts as 1.
    pub fn with_batch(model: &'m Model, n_ctx: u32, n_batch: usize) -> Result<Self, ModelError> {
        let padded = n_ctx
            .max(1)
            .checked_next_multiple_of(KV_STEP)
            .unwrap_or(u32::MAX / KV_STEP * KV_STEP);
        let cache = new_cache(model, padded)?;
        let decode = Step::new(model, &cache, 1)?;
        Ok(Self {
            model,
            cache,
            n_ctx,
            n_batch: n_batch.max(1),
            n_past: 0,
            decode,
            prompts: Vec::new(),
            profile: false,
        })
    }

    /// Tokens evaluated so far.
    pub fn n_past(&self) -> u32 {
        self.n_past
    }

    /// Tokens that fit.
    pub fn n_ctx(&self) -> u32 {
        self.n_ctx
    }

    /// Tokens of a prompt that are evaluated together at most.
    pub fn n_batch(&self) -> usize {
        self.n_batch
    }

    /// Forgets all but the first `n_past` tokens.
    pub fn rewind(&mut self, n_past: u32) {
        self.n_past = self.n_past.min(n_past);
    }

    /// Whether later evaluations record what each op costs.
    pub fn set_profile(&mut self, profile: bool) {
        self.profile = profile;
    }

    /// What each DSP thread did in the last profiled decode step, if the session has room for trace records.
    pub fn trace(&self) -> &[BatchTrace] {
        self.decode.prepared.trace()
    }

    /// Costs of the ops of the last profiled decode step.
    pub fn costs(&self) -> &[OpCost] {
        self.decode.prepared.costs()
    }

    /// Ops of one decode step, after fusion.
    pub fn n_ops(&self) -> usize {
        self.decode.prepared.n_ops()
    }

    /// What the computed tensors of each graph prepared so far need, by the graph's name.
    pub fn compute_reports(&self) -> Result<Vec<(String, ComputeReport)>, ModelError> {
        let steps = [&self.decode].into_iter().chain(&self.prompts);
        let report = |step: &Step| {
            let report = step.prepared.compute_report().map_err(hexloom::SubmitError::from)?;
            Ok((step.prepared.name().to_owned(), report))
        };
        steps.map(report).collect()
    }

    /// Bytes of the buffers for computed tensors, of all graphs prepared so far.
    pub fn compute_bytes(&self) -> u64 {
        let steps = self.prompts.iter().chain([&self.decode]);
        steps.map(|step| step.prepared.compute_bytes()).sum()
    }

    /// Appends tokens and gives the logits `[n_vocab]` after the last one.
    pub fn eval(&mut self, tokens: &[u32]) -> Result<&[f32], ModelError> {
        self.check(tokens)?;
        let mut last_len = 1;
        for piece in tokens.chunks(self.n_batch) {
            self.eval_piece(piece)?;
            last_len = piece.len();
        }
        let step = match last_len {
            1 => &self.decode,
            _ => self.prompts.last().unwrap_or(&self.decode),
        };
        Ok(step.prepared.floats(step.tensors.logits)?)
    }

    fn eval_piece(&mut self, tokens: &[u32]) -> Result<(), ModelError> {
        let step = match tokens.len() {
            1 => &mut self.decode,
            n => {
                let n = n as u32;
                let known = self.prompts.iter().position(|step| step.n_tokens == n);
                let step = match known {
                    Some(idx) => self.prompts.remove(idx),
                    None => {
                        if self.prompts.len() == KEPT_GRAPHS {
                            self.prompts.remove(0);
                        }
                        Step::new(self.model, &self.cache, n)?
                    }
                };
                self.prompts.push(step);
                let newest = self.prompts.len() - 1;
                &mut self.prompts[newest]
            }
        };
        step.prepared.set_profile(self.profile);
        step.run(tokens, self.n_past, self.cache.n_ctx)?;
        self.n_past += tokens.len() as u32;
        Ok(())
    }

    /// Refuses tokens outside the vocabulary, and more than fit.
    pub(crate) fn check(&self, tokens: &[u32]) -> Result<(), ModelError> {
        let n_vocab = self.model.config().n_vocab;
        if let Some(&token) = tokens.iter().find(|&&token| token >= n_vocab) {
            return Err(ModelError::TokenRange {
                token,
                vocabulary: n_vocab as usize,
            });
        }
        let n_tokens = self.n_past as usize + tokens.len();
        if tokens.is_empty() || n_tokens > self.n_ctx as usize {
            return Err(ModelError::ContextFull {
                n_past: self.n_past,
                n_new: tokens.len(),
                n_ctx: self.n_ctx,
            });
        }
        Ok(())
    }
}

impl Step {
    fn new(model: &Model, cache: &Cache, n_tokens: u32) -> Result<Self, ModelError> {
        let mut tensors = forward::build(model, cache, n_tokens, KV_STEP.min(cache.n_ctx))?;
        let graph = std::mem::take(&mut tensors.graph);
        let name = match n_tokens {
            1 => "decode".to_owned(),
            n => format!("prompt of {n}"),
        };
        let prepared = model.session().prepare(&name, graph)?;
        let hidden = HIDDEN.to_le_bytes().repeat(cache.n_ctx as usize * n_tokens as usize);
        prepared.write(tensors.mask, 0, &hidden)?;
        Ok(Self {
            n_tokens,
            n_kv: KV_STEP.min(cache.n_ctx),
            prepared,
            tensors,
            mask_end: 0,
        })
    }

    /// Evaluates `tokens` at positions `n_past..`.
    fn run(&mut self, tokens: &[u32], n_past: u32, n_ctx: u32) -> Result<(), ModelError> {
        let end = n_past + self.n_tokens;
        self.grow(end.next_multiple_of(KV_STEP).min(n_ctx))?;
        self.write_mask(n_past, n_ctx)?;
        let (prepared, tensors) = (&mut self.prepared, &self.tensors);
        for (idx, &token) in (0u32..).zip(tokens) {
            let at = u64::from(idx) * 4;
            let position = (n_past + idx).to_le_bytes();
            prepared.write(tensors.tokens, at, &token.to_le_bytes())?;
            prepared.write(tensors.positions, at, &position)?;
            prepared.write(tensors.cache_rows, at, &position)?;
        }
        if let Some(rows) = tensors.output_rows {
            prepared.write(rows, 0, &(self.n_tokens - 1).to_le_bytes())?;
        }
        prepared.run()?;
        Ok(())
    }

    /// Lets the graph see `n_kv` positions.
    fn grow(&mut self, n_kv: u32) -> Result<(), ModelError> {
        if n_kv == self.n_kv {
            return Ok(());
        }
        let graph = &self.tensors;
        let mut changes = Vec::with_capacity(graph.cache_views.len() + 1);
        for &view in graph.cache_views.iter().chain([&graph.mask_view]) {
            let mut ne = self.prepared.shape(view).ne;
            let dim = if view == graph.mask_view { 0 } else { 1 };
            ne[dim] = n_kv;
            changes.push((view, ne));
        }
        self.prepared.patch(&changes)?;
        self.n_kv = n_kv;
        Ok(())
    }

    /// Row t sees positions up to `n_past + t`. Only what differs from the last run is written.
    fn write_mask(&mut self, n_past: u32, n_ctx: u32) -> Result<(), MapError> {
        let (prepared, mask) = (&self.prepared, self.tensors.mask);
        let row_bytes = u64::from(n_ctx) * 2;
        for row in 0..self.n_tokens {
            let (was, now) = (self.mask_end + row, n_past + row + 1);
            let was = if self.mask_end == 0 { 0 } else { was };
            let (from, to, bits) = if now >= was {
                (was, now, VISIBLE)
            } else {
                (now, was, HIDDEN)
            };
            let bytes = bits.to_le_bytes();
            let start = u64::from(row) * row_bytes + u64::from(from) * 2;
            match to - from {
                1 => prepared.write(mask, start, &bytes)?,
                n => prepared.write(mask, start, &bytes.repeat(n as usize))?,
            }
        }
        self.mask_end = n_past + 1;
        Ok(())
    }
}

fn new_cache(model: &Model, n_ctx: u32) -> Result<Cache, ModelError> {
    let config = model.config();
    let bytes = u64::from(config.n_embd_kv()) * u64::from(n_ctx) * 2;
    let names: Vec<String> = (0..config.n_layers)
        .flat_map(|layer| [format!("cache_k_l{layer}"), format!("cache_v_l{layer}")])
        .collect();
    let needs: Vec<TensorNeed<'_>> = names.iter().map(|name| TensorNeed::new(name, bytes)).collect();
    let plan = BufferPlan::new(&needs, &model.session().buffer_limits())?;
    let buffers = plan.buffers.iter().enumerate();
    let buffers: Vec<Buffer> = buffers
        .map(|(idx, planned)| model.session().alloc(&format!("KV cache {idx}"), planned.bytes))
        .collect::<Result<_, MapError>>()?;
    let places = plan.places.iter().flatten();
    let mut places = places.map(|place| (buffers[place.buffer].clone(), place.offset));
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    while let (Some(key), Some(value)) = (places.next(), places.next()) {
        keys.push(key);
        values.push(value);
    }
    Ok(Cache { keys, values, n_ctx })
}
