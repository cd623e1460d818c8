//! The layers of one part of a model, as ops.

use std::ops::Range;

use hexloom::abi::Opcode;
use hexloom::abi::limits::MAX_PARAMS;
use hexloom::graph::AttentionParams;
use hexloom::{Buffer, DType, Graph, GraphError, TensorId};

use super::Model;
use super::forward::{Cache, Half, Joints};
use super::masks::Masks;

/// What every layer uses.
pub(super) struct Layers<'a> {
    pub(super) model: &'a Model,
    pub(super) cache: &'a Cache,
    pub(super) joints: &'a Joints,
    /// Segments that this part computes.
    pub(super) ranks: Range<usize>,
    pub(super) n_tokens: u32,
    pub(super) n_kv: u32,
    pub(super) positions: TensorId,
    pub(super) cache_rows: TensorId,
    pub(super) masks: &'a Masks,
    pub(super) factors: Option<TensorId>,
    pub(super) cache_views: Vec<TensorId>,
}

impl Layers<'_> {
    /// Attention and feed-forward with their residuals; only `rows` of the result when given.
    pub(super) fn layer(
        &mut self,
        g: &mut Graph,
        x: TensorId,
        layer: u32,
        rows: Option<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let normed = self.norm(g, &name("attn_norm"), x)?;
        let residual = match rows {
            Some(rows) => g.get_rows(&name("residual_rows"), x, rows)?,
            None => x,
        };
        let half = (name("attn_output"), name("post_attention_norm"), Half::Attention);
        let x = self.sum(g, &half, residual, |this, g, rank| {
            let attention = this.attention(g, normed, layer, rank)?;
            match rows {
                Some(rows) => g.get_rows(&name("attn_rows"), attention, rows),
                None => Ok(attention),
            }
        })?;
        let normed = self.norm(g, &name("ffn_norm"), x)?;
        let half = (name("ffn_down"), name("post_ffw_norm"), Half::FeedForward);
        self.sum(g, &half, x, |this, g, rank| {
            let gate = this.project(g, &name("ffn_gate"), normed, rank)?;
            let up = this.project(g, &name("ffn_up"), normed, rank)?;
            g.gated(&name("ffn_act"), this.model.config().family.gate, gate, up)
        })
    }

    /// The product of the weight that is named first with what `segment` makes for each rank, summed over the ranks in
    /// their order: here if this part has them all, otherwise between the sessions. Then its bias, where the model has
    /// one, the norm that is named second, in families that have it, and `residual`.
    fn sum(
        &mut self,
        g: &mut Graph,
        (name, post_norm, half): &(String, String, Half),
        residual: TensorId,
        mut segment: impl FnMut(&mut Self, &mut Graph, usize) -> Result<TensorId, GraphError>,
    ) -> Result<TensorId, GraphError> {
        // Once, after the sum: not by each rank.
        let bias = self.model.find(g, &format!("{name}.bias"), 0)?;
        if let Some(reduction) = &self.joints.reduction {
            let rank = self.ranks.start;
            let x = segment(self, g, rank)?;
            let weight = required(self.model, g, &format!("{name}.weight"), rank)?;
            let ([_, n, ..], [_, m, ..]) = (g.shape(weight).ne, g.shape(x).ne);
            // The sum of one half is the residual of the other, so they lie apart.
            let offset = self.joints.partial_offset(*half);
            let place = |buffer: &Buffer| g.placed(name, DType::F32, [n, m, 1, 1], buffer, offset);
            let partials: Vec<TensorId> = self.joints.partials.iter().map(place).collect::<Result<_, _>>()?;
            let srcs = vec![Some(weight), Some(x)];
            g.node(name, Opcode::MulMat, [0; MAX_PARAMS], srcs, vec![partials[rank]])?;
            let sum = format!("{name} sum");
            if !self.model.config().family.post_norms && bias.is_none() {
                return g.all_reduce_add(&sum, reduction, rank, &partials, residual);
            }
            let total = g.all_reduce(&sum, reduction, rank, &partials)?;
            return self.finish(g, (name, post_norm), total, bias, residual);
        }
        let mut total = None;
        for rank in self.ranks.clone() {
            let x = segment(self, g, rank)?;
            let product = self.product(g, name, x, rank)?;
            total = Some(match total {
                Some(total) => g.add(&format!("{name} sum"), total, product)?,
                None => product,
            });
        }
        let total = total.ok_or_else(|| GraphError::Tensor {
            name: name.to_owned(),
            what: "a part without ranks computes nothing".to_owned(),
        })?;
        self.finish(g, (name, post_norm), total, bias, residual)
    }

    /// What follows the sum over the ranks.
    fn finish(
        &self,
        g: &mut Graph,
        (name, post_norm): (&str, &str),
        total: TensorId,
        bias: Option<TensorId>,
        residual: TensorId,
    ) -> Result<TensorId, GraphError> {
        let total = match bias {
            Some(bias) => g.add(&format!("{name} bias"), total, bias)?,
            None => total,
        };
        if self.model.config().family.post_norms {
            return self.add_normed(g, post_norm, total, residual);
        }
        g.add(&format!("{name} residual"), total, residual)
    }

    fn add_normed(&self, g: &mut Graph, name: &str, x: TensorId, residual: TensorId) -> Result<TensorId, GraphError> {
        let normed = self.norm(g, name, x)?;
        g.add(&format!("{name} residual"), normed, residual)
    }

    /// Attention of one rank's heads.
    fn attention(&mut self, g: &mut Graph, x: TensorId, layer: u32, rank: usize) -> Result<TensorId, GraphError> {
        let config = self.model.config();
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (head, n_tokens) = (config.head_size, self.n_tokens);
        let n_kv_heads = self.model.split().share(config, rank).kv_heads.len() as u32;
        let n_heads = n_kv_heads * (config.n_heads / config.n_kv_heads);
        let q = self.project(g, &name("attn_q"), x, rank)?;
        let k = self.project(g, &name("attn_k"), x, rank)?;
        let v = self.project(g, &name("attn_v"), x, rank)?;
        let q = g.reshape(&name("q"), q, [head, n_heads, n_tokens, 1])?;
        let k = g.reshape(&name("k"), k, [head, n_kv_heads, n_tokens, 1])?;
        let (q, k) = match config.family.head_norms {
            true => (
                self.norm(g, &name("attn_q_norm"), q)?,
                self.norm(g, &name("attn_k_norm"), k)?,
            ),
            false => (q, k),
        };
        let (rope, factors) = match config.local_of(layer) {
            Some(local) => (&local.rope, None),
            None => (&config.rope, self.factors),
        };
        let q = g.rope(&name("q_rope"), q, self.positions, factors, rope)?;
        let k = g.rope(&name("k_rope"), k, self.positions, factors, rope)?;
        let k = g.reshape(&name("k_rows"), k, [head * n_kv_heads, n_tokens, 1, 1])?;
        let [keys, values] = [&self.cache.keys, &self.cache.values].map(|cache| cache[layer as usize][rank].clone());
        let keys = self.store(g, &format!("cache_k_l{layer}"), keys, k, n_kv_heads)?;
        let values = self.store(g, &format!("cache_v_l{layer}"), values, v, n_kv_heads)?;
        let [b0, b1, b2, b3] = g.shape(q).nb;
        let q = g.view(&name("q_heads"), q, [head, n_tokens, n_heads, 1], [b0, b2, b1, b3], 0)?;
        let attention = AttentionParams {
            scale: config.attention_scale(),
            max_bias: 0.0,
            softcap: 0.0,
        };
        let mask = self.masks.view_for(config.local_of(layer).is_some());
        let out = g.flash_attn(&name("attn"), q, keys, values, Some(mask), None, &attention)?;
        g.reshape(&name("attn_flat"), out, [head * n_heads, n_tokens, 1, 1])
    }

    /// Stores rows in a cache and gives the view of it that attention reads.
    fn store(
        &mut self,
        g: &mut Graph,
        name: &str,
        (buffer, offset): (Buffer, u64),
        rows: TensorId,
        n_kv_heads: u32,
    ) -> Result<TensorId, GraphError> {
        let head = self.model.config().head_size;
        let width = head * n_kv_heads;
        let cache = g.placed(name, DType::F16, [width, self.cache.n_ctx, 1, 1], &buffer, offset)?;
        let stored = g.set_rows(&format!("{name} store"), cache, rows, self.cache_rows)?;
        let [b0, row, whole, _] = g.shape(stored).nb;
        let ne = [head, self.n_kv, n_kv_heads, 1];
        let view = g.view(&format!("{name} view"), stored, ne, [b0, row, b0 * head, whole], 0)?;
        g.patchable(view);
        self.cache_views.push(view);
        Ok(view)
    }

    /// A rank's results of a matrix that is cut by rows, its bias added where the model has one.
    fn project(&self, g: &mut Graph, name: &str, x: TensorId, rank: usize) -> Result<TensorId, GraphError> {
        let product = self.product(g, name, x, rank)?;
        match self.model.find(g, &format!("{name}.bias"), rank)? {
            Some(bias) => g.add(&format!("{name} bias"), product, bias),
            None => Ok(product),
        }
    }

    fn product(&self, g: &mut Graph, name: &str, x: TensorId, rank: usize) -> Result<TensorId, GraphError> {
        let weight = required(self.model, g, &format!("{name}.weight"), rank)?;
        g.mul_mat(name, weight, x)
    }

    /// RMS norm of x, scaled by a weight that all ranks share.
    pub(super) fn norm(&self, g: &mut Graph, name: &str, x: TensorId) -> Result<TensorId, GraphError> {
        let weight = required(self.model, g, &format!("{name}.weight"), 0)?;
        let normed = g.rms_norm(&format!("{name}.rms"), x, self.model.config().norm_eps)?;
        g.mul(name, normed, weight)
    }
}

/// A weight that the roles guarantee.
pub(super) fn required(model: &Model, g: &mut Graph, name: &str, rank: usize) -> Result<TensorId, GraphError> {
    model.find(g, name, rank)?.ok_or_else(|| GraphError::Tensor {
        name: name.to_owned(),
        what: "the model has no such weight".to_owned(),
    })
}
