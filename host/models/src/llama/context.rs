//! A conversation: KV cache, position, and the prepared graphs that extend it.

use hexloom::PreparedGraph;
use hexloom::memory::compute::ComputeReport;
use hexloom::plan::buffers::TensorNeed;
use hexloom::prepared::{BatchTrace, OpCost};
use hexloom::session::TensorUse;

use super::Model;
use super::forward::Cache;
use super::step::{KV_STEP, Step};
use crate::ModelError;

/// Tokens of a prompt that are evaluated together at most.
pub const BATCH_TOKENS: usize = 64;
/// Prepared graphs for prompt pieces that are kept beside the one for single tokens.
const KEPT_GRAPHS: usize = 2;

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

    /// What each DSP thread of the first session did in the last profiled decode step, if that session has room for trace
    /// records.
    pub fn trace(&self) -> &[BatchTrace] {
        self.decode.graphs().next().map_or(&[], PreparedGraph::trace)
    }

    /// Costs of the ops of the last profiled decode step in the first session.
    pub fn costs(&self) -> &[OpCost] {
        self.decode.graphs().next().map_or(&[], PreparedGraph::costs)
    }

    /// Mappings that the DSPs made for the last decode step: 0 where everything fits the window.
    pub fn maps_per_token(&self) -> u32 {
        self.decode.graphs().map(PreparedGraph::n_maps).sum()
    }

    /// Ops of one decode step, after fusion, of all sessions.
    pub fn n_ops(&self) -> usize {
        self.decode.graphs().map(PreparedGraph::n_ops).sum()
    }

    /// What the computed tensors of each graph prepared so far need, by the graph's name.
    pub fn compute_reports(&self) -> Result<Vec<(String, ComputeReport)>, ModelError> {
        let steps = [&self.decode].into_iter().chain(&self.prompts);
        let report = |graph: &PreparedGraph| {
            let report = graph.compute_report().map_err(hexloom::SubmitError::from)?;
            Ok((graph.name().to_owned(), report))
        };
        steps.flat_map(Step::graphs).map(report).collect()
    }

    /// Bytes of the buffers for computed tensors, of all graphs prepared so far.
    pub fn compute_bytes(&self) -> u64 {
        let steps = self.prompts.iter().chain([&self.decode]);
        steps.flat_map(Step::graphs).map(PreparedGraph::compute_bytes).sum()
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
        step.logits()
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
        step.set_profile(self.profile);
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

/// Allocates the cache, each layer's and rank's part in the session that computes it. Sessions come in the order of their
/// ranks, so each layer's ranks are added in order.
fn new_cache(model: &Model, n_ctx: u32) -> Result<Cache, ModelError> {
    let (config, split) = (model.config(), model.split());
    let n_ranks = split.n_ranks();
    let empty = || vec![Vec::with_capacity(n_ranks); config.n_layers as usize];
    let (mut keys, mut values) = (empty(), empty());
    for (number, session) in split.sessions().iter().enumerate() {
        let pieces = (0..config.n_layers).flat_map(|layer| (0..n_ranks).map(move |rank| (layer, rank)));
        let own: Vec<(u32, usize)> = pieces
            .filter(|&(layer, rank)| split.session_of(config.n_layers, layer, rank) == number)
            .collect();
        let sizes = own.iter().flat_map(|&(layer, rank)| {
            let heads = split.share(config, rank).kv_heads.len() as u64;
            let bytes = heads * u64::from(config.head_size) * u64::from(n_ctx) * 2;
            ["k", "v"].map(|part| (format!("cache_{part}_l{layer}"), bytes))
        });
        let sizes: Vec<(String, u64)> = sizes.collect();
        let needs: Vec<TensorNeed<'_>> = sizes
            .iter()
            .map(|(name, bytes)| TensorNeed::new(name, *bytes))
            .collect();
        let found = session.alloc_tensors("KV cache", &needs, TensorUse::State)?;
        let mut found = found.into_iter().flatten();
        for &(layer, _) in &own {
            keys[layer as usize].extend(found.next());
            values[layer as usize].extend(found.next());
        }
    }
    Ok(Cache { keys, values, n_ctx })
}
