//! The graphs of one forward pass over a batch of tokens: one for each part of the model's split.
//!
//! Shapes: residual stream `[n_embd, T]`; queries `[head, heads, T]`; caches `[n_embd_kv, n_ctx]` F16, one row per
//! position; masks F16 `[n_ctx, T]`, of which the graph sees the first `n_kv` columns. `n_kv` and with it the views of
//! caches and masks are patched as the conversation grows.

use hexloom::abi::Opcode;
use hexloom::abi::limits::LINE_BYTES;
use hexloom::{Buffer, DType, Event, Graph, GraphError, MapError, Reduction, SubmitError, TensorId};

use super::Model;
use super::layers::Layers;
use super::masks::Masks;
use super::split::Part;
use crate::ModelError;

/// A KV cache: keys and values of every layer and rank.
pub(super) struct Cache {
    pub(super) keys: Vec<Vec<(Buffer, u64)>>,
    pub(super) values: Vec<Vec<(Buffer, u64)>>,
    pub(super) n_ctx: u32,
}

/// A graph with the tensors that a run writes and reads.
pub(super) struct Forward {
    pub(super) graph: Graph,
    /// Index of the session that runs it.
    pub(super) session: usize,
    pub(super) tokens: Option<TensorId>,
    pub(super) positions: TensorId,
    pub(super) cache_rows: TensorId,
    pub(super) output_rows: Option<TensorId>,
    pub(super) masks: Masks,
    /// Views of the caches, whose second dimension is `n_kv`.
    pub(super) cache_views: Vec<TensorId>,
    pub(super) logits: Option<TensorId>,
}

/// What the graphs of one forward pass share: how the parts hand over, or sum up.
pub(super) struct Joints {
    /// Residual stream and signal from each part by layers to the next.
    hand_overs: Vec<(Buffer, Event)>,
    /// Result of each rank's segment, replaced by the sum; one place for each half of a layer.
    pub(super) partials: Vec<Buffer>,
    /// Bytes of such a place, on whole lines.
    partial_bytes: u64,
    pub(super) reduction: Option<Reduction>,
}

/// What ends in a sum and a residual.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Attention,
    FeedForward,
}

impl Joints {
    /// Where a half's partial results are in their buffers.
    pub(super) fn partial_offset(&self, half: Half) -> u64 {
        match half {
            Half::Attention => 0,
            Half::FeedForward => self.partial_bytes,
        }
    }

    /// Buffers and events for batches of `n_tokens`; none for a single session.
    pub(super) fn new(model: &Model, n_tokens: u32) -> Result<Self, ModelError> {
        let (split, n_embd) = (model.split(), model.config().n_embd);
        let sessions = split.sessions();
        let bytes = u64::from(n_embd) * u64::from(n_tokens) * 4;
        let mut joints = Self {
            hand_overs: Vec::new(),
            partials: Vec::new(),
            partial_bytes: bytes.next_multiple_of(LINE_BYTES),
            reduction: None,
        };
        if split.reduces() {
            let buffers = sessions
                .iter()
                .map(|session| session.alloc("segment sum", 2 * joints.partial_bytes));
            joints.partials = buffers.collect::<Result<_, MapError>>()?;
            joints.reduction = Some(Reduction::new("segment sum", sessions)?);
        } else {
            for session in &sessions[..sessions.len() - 1] {
                let hidden = session.alloc("residual stream", bytes)?;
                joints.hand_overs.push((hidden, session.event("residual stream")?));
            }
        }
        Ok(joints)
    }
}

/// The forward pass over `n_tokens`, seeing `n_kv` positions; logits of the last token only, from the last part by layers
/// or the first by segments.
pub(super) fn build(
    model: &Model,
    cache: &Cache,
    joints: &Joints,
    n_tokens: u32,
    n_kv: u32,
) -> Result<Vec<Forward>, SubmitError> {
    let parts = model.split().parts(model.config().n_layers);
    let part = |part: &Part| Ok(build_part(model, cache, joints, part, n_tokens, n_kv)?);
    parts.iter().map(part).collect()
}

fn build_part(
    model: &Model,
    cache: &Cache,
    joints: &Joints,
    part: &Part,
    n_tokens: u32,
    n_kv: u32,
) -> Result<Forward, GraphError> {
    let config = model.config();
    let n_layers = config.n_layers;
    let (is_first, is_last) = (part.layers.start == 0, part.layers.end == n_layers);
    let mut g = Graph::new();
    let column = [n_tokens, 1, 1, 1];
    let tokens = is_first.then(|| g.input("tokens", DType::I32, column)).transpose()?;
    let positions = g.input("positions", DType::I32, column)?;
    let cache_rows = g.input("cache rows", DType::I32, column)?;
    let output_rows = (n_tokens > 1 && is_last).then(|| g.input("output rows", DType::I32, [1, 1, 1, 1]));
    let output_rows = output_rows.transpose()?;
    let masks = Masks::new(&mut g, config, cache.n_ctx, n_kv, n_tokens)?;
    let mut x = match tokens {
        Some(tokens) => {
            let table = required(model, &mut g, "token_embd.weight")?;
            let rows = g.get_rows("embedding", table, tokens)?;
            match config.family.scaled_embedding {
                true => g.scale("embedding scale", rows, (config.n_embd as f32).sqrt(), 0.0)?,
                false => rows,
            }
        }
        None => {
            let (hidden, event) = &joints.hand_overs[part.session - 1];
            g.wait_for(event)?;
            g.placed(
                "residual stream",
                DType::F32,
                [config.n_embd, n_tokens, 1, 1],
                hidden,
                0,
            )?
        }
    };
    let factors = model.find(&mut g, "rope_freqs.weight", 0)?;
    let mut layers = Layers {
        model,
        cache,
        joints,
        ranks: part.ranks.clone(),
        n_tokens,
        n_kv,
        positions,
        cache_rows,
        masks: &masks,
        factors,
        cache_views: Vec::new(),
    };
    for layer in part.layers.clone() {
        let last = layer + 1 == n_layers;
        x = layers.layer(&mut g, x, layer, output_rows.filter(|_| last))?;
    }
    let mut logits = None;
    if !is_last {
        let (hidden, event) = &joints.hand_overs[part.session];
        let into = g.placed(
            "residual stream",
            DType::F32,
            [config.n_embd, n_tokens, 1, 1],
            hidden,
            0,
        )?;
        g.cpy_signal(x, into, event)?;
    } else if part.ranks.start == 0 {
        let x = layers.norm(&mut g, "output_norm", x)?;
        let output = match model.find(&mut g, "output.weight", 0)? {
            Some(output) => output,
            None => required(model, &mut g, "token_embd.weight")?,
        };
        let mut result = g.mul_mat("logits", output, x)?;
        if let Some(cap) = config.logit_cap {
            let small = g.scale("logits over cap", result, 1.0 / cap, 0.0)?;
            let bent = g.unary("logits bent", Opcode::Tanh, small)?;
            result = g.scale("logits capped", bent, cap, 0.0)?;
        }
        g.output(result);
        logits = Some(result);
    }
    Ok(Forward {
        session: part.session,
        tokens,
        positions,
        cache_rows,
        output_rows,
        cache_views: layers.cache_views,
        masks,
        logits,
        graph: g,
    })
}

/// A weight that the roles guarantee.
fn required(model: &Model, g: &mut Graph, name: &str) -> Result<TensorId, GraphError> {
    super::layers::required(model, g, name, 0)
}
