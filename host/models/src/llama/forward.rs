//! The graph of one forward pass over a batch of tokens.
//!
//! Shapes: residual stream `[n_embd, T]`; queries `[head, heads, T]`; caches `[n_embd_kv, n_ctx]` F16, one row per
//! position; mask F16 `[n_ctx, T]`, of which the graph sees the first `n_kv` columns. `n_kv` and with it the views of
//! caches and mask are patched as the conversation grows.

use hexloom::graph::AttentionParams;
use hexloom::{Buffer, DType, Graph, GraphError, TensorId};

use super::Model;

/// A KV cache: keys and values of every layer.
pub(super) struct Cache {
    pub(super) keys: Vec<(Buffer, u64)>,
    pub(super) values: Vec<(Buffer, u64)>,
    pub(super) n_ctx: u32,
}

/// A graph with the tensors that a run writes and reads.
pub(super) struct Forward {
    pub(super) graph: Graph,
    pub(super) tokens: TensorId,
    pub(super) positions: TensorId,
    pub(super) cache_rows: TensorId,
    pub(super) output_rows: Option<TensorId>,
    pub(super) mask: TensorId,
    pub(super) mask_view: TensorId,
    /// Views of the caches, whose second dimension is `n_kv`.
    pub(super) cache_views: Vec<TensorId>,
    pub(super) logits: TensorId,
}

/// The forward pass over `n_tokens`, seeing `n_kv` positions; logits of the last token only.
pub(super) fn build(model: &Model, cache: &Cache, n_tokens: u32, n_kv: u32) -> Result<Forward, GraphError> {
    let config = model.config();
    let mut g = Graph::new();
    let tokens = g.input("tokens", DType::I32, [n_tokens, 1, 1, 1])?;
    let positions = g.input("positions", DType::I32, [n_tokens, 1, 1, 1])?;
    let cache_rows = g.input("cache rows", DType::I32, [n_tokens, 1, 1, 1])?;
    let output_rows = match n_tokens {
        1 => None,
        _ => Some(g.input("output rows", DType::I32, [1, 1, 1, 1])?),
    };
    let mask = g.input("mask", DType::F16, [cache.n_ctx, n_tokens, 1, 1])?;
    let mask_shape = *g.shape(mask);
    let mask_view = g.view("mask view", mask, [n_kv, n_tokens, 1, 1], mask_shape.nb, 0)?;
    g.patchable(mask_view);
    let table = required(model, &mut g, "token_embd.weight")?;
    let factors = model.find(&mut g, "rope_freqs.weight")?;
    let mut layers = Layers {
        model,
        cache,
        n_tokens,
        n_kv,
        positions,
        cache_rows,
        mask_view,
        factors,
        cache_views: Vec::new(),
    };
    let mut x = g.get_rows("embedding", table, tokens)?;
    for layer in 0..config.n_layers {
        let last = layer + 1 == config.n_layers;
        x = layers.layer(&mut g, x, layer, output_rows.filter(|_| last))?;
    }
    let x = layers.norm(&mut g, "output_norm", x)?;
    let output = match model.find(&mut g, "output.weight")? {
        Some(output) => output,
        None => table,
    };
    let logits = g.mul_mat("logits", output, x)?;
    g.output(logits);
    Ok(Forward {
        tokens,
        positions,
        cache_rows,
        output_rows,
        mask,
        mask_view,
        cache_views: layers.cache_views,
        logits,
        graph: g,
    })
}

/// What every layer uses.
struct Layers<'a> {
    model: &'a Model,
    cache: &'a Cache,
    n_tokens: u32,
    n_kv: u32,
    positions: TensorId,
    cache_rows: TensorId,
    mask_view: TensorId,
    factors: Option<TensorId>,
    cache_views: Vec<TensorId>,
}

impl Layers<'_> {
    /// Attention and feed-forward with their residuals; only `rows` of the result when given.
    fn layer(
        &mut self,
        g: &mut Graph,
        x: TensorId,
        layer: u32,
        rows: Option<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let normed = self.norm(g, &name("attn_norm"), x)?;
        let mut attention = self.attention(g, normed, layer)?;
        let mut residual = x;
        if let Some(rows) = rows {
            attention = g.get_rows(&name("attn_rows"), attention, rows)?;
            residual = g.get_rows(&name("residual_rows"), x, rows)?;
        }
        let projected = self.project(g, &name("attn_output"), attention)?;
        let x = g.add(&name("attn_residual"), projected, residual)?;
        let normed = self.norm(g, &name("ffn_norm"), x)?;
        let gate = self.project(g, &name("ffn_gate"), normed)?;
        let up = self.project(g, &name("ffn_up"), normed)?;
        let act = g.gated(&name("ffn_act"), hexloom::abi::Opcode::Swiglu, gate, up)?;
        let down = self.project(g, &name("ffn_down"), act)?;
        g.add(&name("ffn_residual"), down, x)
    }

    fn attention(&mut self, g: &mut Graph, x: TensorId, layer: u32) -> Result<TensorId, GraphError> {
        let config = self.model.config();
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (head, n_tokens) = (config.head_size, self.n_tokens);
        let q = self.project(g, &name("attn_q"), x)?;
        let k = self.project(g, &name("attn_k"), x)?;
        let v = self.project(g, &name("attn_v"), x)?;
        let q = g.reshape(&name("q"), q, [head, config.n_heads, n_tokens, 1])?;
        let k = g.reshape(&name("k"), k, [head, config.n_kv_heads, n_tokens, 1])?;
        let q = g.rope(&name("q_rope"), q, self.positions, self.factors, &config.rope)?;
        let k = g.rope(&name("k_rope"), k, self.positions, self.factors, &config.rope)?;
        let k = g.reshape(&name("k_rows"), k, [config.n_embd_kv(), n_tokens, 1, 1])?;
        let keys = self.store(
            g,
            &format!("cache_k_l{layer}"),
            self.cache.keys[layer as usize].clone(),
            k,
        )?;
        let values = self.store(
            g,
            &format!("cache_v_l{layer}"),
            self.cache.values[layer as usize].clone(),
            v,
        )?;
        let [b0, b1, b2, b3] = g.shape(q).nb;
        let q = g.view(
            &name("q_heads"),
            q,
            [head, n_tokens, config.n_heads, 1],
            [b0, b2, b1, b3],
            0,
        )?;
        let attention = AttentionParams {
            scale: 1.0 / (head as f32).sqrt(),
            max_bias: 0.0,
            softcap: 0.0,
        };
        let out = g.flash_attn(&name("attn"), q, keys, values, Some(self.mask_view), None, &attention)?;
        g.reshape(&name("attn_flat"), out, [head * config.n_heads, n_tokens, 1, 1])
    }

    /// Stores rows in a cache and gives the view of it that attention reads.
    fn store(
        &mut self,
        g: &mut Graph,
        name: &str,
        (buffer, offset): (Buffer, u64),
        rows: TensorId,
    ) -> Result<TensorId, GraphError> {
        let config = self.model.config();
        let cache = g.placed(
            name,
            DType::F16,
            [config.n_embd_kv(), self.cache.n_ctx, 1, 1],
            &buffer,
            offset,
        )?;
        let stored = g.set_rows(&format!("{name} store"), cache, rows, self.cache_rows)?;
        let [b0, row, whole, _] = g.shape(stored).nb;
        let head_bytes = b0 * config.head_size;
        let ne = [config.head_size, self.n_kv, config.n_kv_heads, 1];
        let view = g.view(&format!("{name} view"), stored, ne, [b0, row, head_bytes, whole], 0)?;
        g.patchable(view);
        self.cache_views.push(view);
        Ok(view)
    }

    fn project(&self, g: &mut Graph, name: &str, x: TensorId) -> Result<TensorId, GraphError> {
        let weight = required(self.model, g, &format!("{name}.weight"))?;
        g.mul_mat(name, weight, x)
    }

    fn norm(&self, g: &mut Graph, name: &str, x: TensorId) -> Result<TensorId, GraphError> {
        let weight = required(self.model, g, &format!("{name}.weight"))?;
        let normed = g.rms_norm(&format!("{name}.rms"), x, self.model.config().norm_eps)?;
        g.mul(name, normed, weight)
    }
}

/// A weight that the roles guarantee.
fn required(model: &Model, g: &mut Graph, name: &str) -> Result<TensorId, GraphError> {
    model.find(g, name)?.ok_or_else(|| GraphError::Tensor {
        name: name.to_owned(),
        what: "the model has no such weight".to_owned(),
    })
}
