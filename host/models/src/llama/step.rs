//! A prepared forward pass over a fixed number of tokens: its graphs, their inputs, and the mask that grows.

use hexloom::prepared::InFlight;
use hexloom::{MapError, PreparedGraph, RunError};

use super::Model;
use super::forward::{self, Cache, Forward, Joints};
use crate::ModelError;

/// Positions by which the part of the cache that graphs see grows: one block of attention.
pub(super) const KV_STEP: u32 = hexloom::abi::scratch::ATTENTION_BLOCK;
/// A prepared forward pass.
pub(super) struct Step {
    pub(super) n_tokens: u32,
    n_kv: u32,
    parts: Vec<PreparedPart>,
    joints: Joints,
    /// First position of the last run, so that masks are only changed where they differ.
    last: Option<u32>,
}

/// One graph of the pass, on one session.
struct PreparedPart {
    prepared: PreparedGraph,
    tensors: Forward,
}

impl Step {
    pub(super) fn new(model: &Model, cache: &Cache, n_tokens: u32) -> Result<Self, ModelError> {
        let n_kv = KV_STEP.min(cache.n_ctx);
        let joints = Joints::new(model, n_tokens)?;
        let name = match n_tokens {
            1 => "decode".to_owned(),
            n => format!("prompt of {n}"),
        };
        let sessions = model.split().sessions();
        let mut parts = Vec::new();
        for mut tensors in forward::build(model, cache, &joints, n_tokens, n_kv)? {
            let graph = std::mem::take(&mut tensors.graph);
            let name = match sessions.len() {
                1 => name.clone(),
                n => format!("{name}, part {} of {n}", tensors.session + 1),
            };
            let prepared = sessions[tensors.session].prepare(&name, graph)?;
            tensors.masks.hide_all(&prepared)?;
            parts.push(PreparedPart { prepared, tensors });
        }
        Ok(Self {
            n_tokens,
            n_kv,
            parts,
            joints,
            last: None,
        })
    }

    /// The graphs, in order.
    pub(super) fn graphs(&self) -> impl Iterator<Item = &PreparedGraph> {
        self.parts.iter().map(|part| &part.prepared)
    }

    pub(super) fn set_profile(&mut self, profile: bool) {
        for part in &mut self.parts {
            part.prepared.set_profile(profile);
        }
    }

    /// The logits of the last run.
    pub(super) fn logits(&self) -> Result<&[f32], ModelError> {
        let part = self.parts.iter().find_map(|part| Some((part, part.tensors.logits?)));
        match part {
            Some((part, logits)) => Ok(part.prepared.floats(logits)?),
            None => Ok(&[]),
        }
    }

    /// Evaluates `tokens` at positions `n_past..`.
    pub(super) fn run(&mut self, tokens: &[u32], n_past: u32, n_ctx: u32) -> Result<(), ModelError> {
        let end = n_past + self.n_tokens;
        self.grow(end.next_multiple_of(KV_STEP).min(n_ctx))?;
        for part in &self.parts {
            part.tensors.masks.show(&part.prepared, self.last, n_past)?;
            part.write_inputs(tokens, n_past)?;
        }
        self.last = Some(n_past);
        let result = self.run_parts();
        if let (Err(_), Some(reduction)) = (&result, &self.joints.reduction) {
            reduction.realign();
        }
        Ok(result?)
    }

    /// Starts every part before any is waited for: they wait for each other on the DSP. The first failure that is not
    /// another part's is the run's.
    fn run_parts(&mut self) -> Result<(), RunError> {
        if let [part] = &mut self.parts[..] {
            return part.prepared.run();
        }
        let mut result = Ok(());
        let mut flying: Vec<InFlight<'_>> = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            match part.prepared.start() {
                Ok(run) => flying.push(run),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        for run in flying {
            let Err(error) = run.wait() else { continue };
            let replaced = match &result {
                Ok(()) => true,
                Err(known) => RunError::is_from_peer(known) && !error.is_from_peer(),
            };
            if replaced {
                result = Err(error);
            }
        }
        result
    }

    /// Lets the graphs see `n_kv` positions.
    fn grow(&mut self, n_kv: u32) -> Result<(), ModelError> {
        if n_kv == self.n_kv {
            return Ok(());
        }
        for PreparedPart { prepared, tensors } in &mut self.parts {
            let caches = tensors.cache_views.iter().map(|&view| (view, 1));
            let masks = tensors.masks.views().map(|view| (view, 0));
            let mut changes = Vec::with_capacity(tensors.cache_views.len() + 2);
            for (view, dim) in caches.chain(masks) {
                let mut ne = prepared.shape(view).ne;
                ne[dim] = n_kv;
                changes.push((view, ne));
            }
            prepared.patch(&changes)?;
        }
        self.n_kv = n_kv;
        Ok(())
    }
}

impl PreparedPart {
    fn write_inputs(&self, tokens: &[u32], n_past: u32) -> Result<(), MapError> {
        let (prepared, tensors) = (&self.prepared, &self.tensors);
        for (idx, &token) in (0u32..).zip(tokens) {
            let at = u64::from(idx) * 4;
            let position = (n_past + idx).to_le_bytes();
            if let Some(input) = tensors.tokens {
                prepared.write(input, at, &token.to_le_bytes())?;
            }
            prepared.write(tensors.positions, at, &position)?;
            prepared.write(tensors.cache_rows, at, &position)?;
        }
        if let Some(rows) = tensors.output_rows {
            prepared.write(rows, 0, &(tokens.len() as u32 - 1).to_le_bytes())?;
        }
        Ok(())
    }
}
