//! Hyper-parameters of a model, from the metadata of its file.

use hexloom::graph::RopeParams;

use super::family::{ARCHITECTURES, Family, LocalLayers};
use crate::ModelError;
use crate::gguf::Gguf;

/// Hyper-parameters of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    /// Layers.
    pub n_layers: u32,
    /// Width of the residual stream.
    pub n_embd: u32,
    /// Query heads.
    pub n_heads: u32,
    /// Key and value heads.
    pub n_kv_heads: u32,
    /// Elements of one head.
    pub head_size: u32,
    /// Width of the feed-forward layer.
    pub n_ff: u32,
    /// Tokens of the vocabulary.
    pub n_vocab: u32,
    /// Context length the model was trained with.
    pub n_ctx_train: u32,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// Rotary embedding.
    pub rope: RopeParams,
    /// What the layers that look back over a window only have of their own, if there are any.
    pub local: Option<LocalConfig>,
    /// Logits are bent so that none is larger than this, in either direction.
    pub logit_cap: Option<f32>,
    pub(crate) family: &'static Family,
}

/// Layers that look back over a window only.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalConfig {
    /// Positions that a token sees, itself included.
    pub window: u32,
    /// The last of so many layers sees everything, the others a window; with 0 all layers see a window.
    pub period: u32,
    /// Rotary embedding.
    pub rope: RopeParams,
}

impl LlamaConfig {
    /// Reads and checks the parameters; sizes that contradict each other are errors.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ModelError> {
        let arch = gguf.architecture(&ARCHITECTURES)?;
        let family = Family::of(arch);
        let key = |name: &str| format!("{arch}.{name}");
        let count = |name: &str, max: u32| -> Result<u32, ModelError> {
            let value: u32 = gguf.get(&key(name))?;
            in_range(gguf, &key(name), value, max)
        };
        let n_embd = count("embedding_length", 1 << 20)?;
        let n_heads = count("attention.head_count", 4096)?;
        let n_kv_heads = match gguf.find::<u32>(&key("attention.head_count_kv"))? {
            Some(value) => in_range(gguf, &key("attention.head_count_kv"), value, n_heads)?,
            None => n_heads,
        };
        let head_size = match gguf.find::<u32>(&key("attention.key_length"))? {
            Some(value) => in_range(
                gguf,
                &key("attention.key_length"),
                value,
                hexloom::abi::support::MAX_HEAD,
            )?,
            None => n_embd / n_heads,
        };
        if !n_heads.is_multiple_of(n_kv_heads) {
            return Err(bad(
                gguf,
                &key("attention.head_count_kv"),
                n_kv_heads,
                &format!("a divisor of {n_heads}"),
            ));
        }
        let fits = head_size > 0 && head_size.is_multiple_of(8) && head_size <= hexloom::abi::support::MAX_HEAD;
        if !fits {
            let allowed = "multiples of 8 up to 576 per head";
            return Err(bad(gguf, &key("embedding_length"), n_embd, allowed));
        }
        let n_ctx_train = count("context_length", 1 << 24)?;
        let vocabulary = gguf.tensor("token_embd.weight")?.ne()[1];
        let n_vocab = u32::try_from(vocabulary).ok().filter(|&n| n < 1 << 24);
        let n_vocab = n_vocab.ok_or_else(|| bad(gguf, "rows of token_embd.weight", vocabulary, "below 2^24"))?;
        let rope = rope(gguf, family, head_size, n_ctx_train)?;
        Ok(Self {
            n_layers: count("block_count", 1000)?,
            n_embd,
            n_heads,
            n_kv_heads,
            head_size,
            n_ff: count("feed_forward_length", 1 << 22)?,
            n_vocab,
            n_ctx_train,
            norm_eps: gguf.get(&key("attention.layer_norm_rms_epsilon"))?,
            local: match &family.local {
                Some(layers) => local(gguf, family, layers, &rope, head_size)?,
                None => None,
            },
            rope,
            logit_cap: match family.capped_logits {
                true => logit_cap(gguf, &key("final_logit_softcapping"))?,
                false => None,
            },
            family,
        })
    }

    /// What scores of attention are multiplied by.
    pub(crate) fn attention_scale(&self) -> f32 {
        let width = match self.family.wide_scale_layers {
            Some(n_layers) if n_layers == self.n_layers => self.n_embd as f32 / self.n_heads as f32,
            _ => self.head_size as f32,
        };
        1.0 / width.sqrt()
    }

    /// The window of `layer`, if it has one.
    pub(crate) fn local_of(&self, layer: u32) -> Option<&LocalConfig> {
        let local = self.local.as_ref()?;
        (!(layer + 1).is_multiple_of(local.period)).then_some(local)
    }

    /// Elements of one token's keys, and of its values.
    pub fn n_embd_kv(&self) -> u32 {
        self.head_size * self.n_kv_heads
    }

    /// Bytes of the KV cache per token of context.
    pub fn cache_bytes_per_token(&self) -> u64 {
        2 * 2 * u64::from(self.n_embd_kv()) * u64::from(self.n_layers)
    }
}

/// Local layers turn by a base of their own and are never stretched to longer contexts. A window of 0 is none, and of a
/// pattern of 1 no layer is local.
fn local(
    gguf: &Gguf,
    family: &Family,
    layers: &LocalLayers,
    rope: &RopeParams,
    head_size: u32,
) -> Result<Option<LocalConfig>, ModelError> {
    let key = |name: &str| format!("{}.{name}", family.architecture);
    let window = gguf.find::<u32>(&key("attention.sliding_window"))?.unwrap_or(0);
    let period = gguf.find::<u32>(&key("attention.sliding_window_pattern"))?;
    let period = period.unwrap_or(layers.period);
    if window == 0 || period == 1 {
        return Ok(None);
    }
    let base_key = key("rope.freq_base_swa");
    let freq_base = gguf.find::<f32>(&base_key)?.unwrap_or(layers.freq_base);
    Ok(Some(LocalConfig {
        window: in_range(gguf, &key("attention.sliding_window"), window, 1 << 24)?,
        period,
        rope: RopeParams {
            n_dims: head_size,
            mode: family.rope_mode,
            attn_factor: rope.attn_factor,
            freq_base: positive(gguf, &base_key, freq_base)?,
            ..RopeParams::default()
        },
    }))
}

fn rope(gguf: &Gguf, family: &Family, head_size: u32, n_ctx_train: u32) -> Result<RopeParams, ModelError> {
    let key = |name: &str| format!("{}.rope.{name}", family.architecture);
    let n_dims = gguf.find::<u32>(&key("dimension_count"))?.unwrap_or(head_size);
    if n_dims == 0 || !n_dims.is_multiple_of(2) || n_dims > head_size {
        let allowed = format!("even numbers up to {head_size}");
        return Err(bad(gguf, &key("dimension_count"), n_dims, &allowed));
    }
    let mut rope = RopeParams {
        n_dims,
        mode: family.rope_mode,
        n_ctx_orig: n_ctx_train,
        freq_base: gguf.find::<f32>(&key("freq_base"))?.unwrap_or(10_000.0),
        ..RopeParams::default()
    };
    positive(gguf, &key("freq_base"), rope.freq_base)?;
    let attn_factor_key = key("scaling.attn_factor");
    let attn_factor = gguf.find::<f32>(&attn_factor_key)?.unwrap_or(1.0);
    rope.attn_factor = positive(gguf, &attn_factor_key, attn_factor)?;
    // Files from before there were kinds of scaling have the old key. A factor of 0 stands for none.
    let (factor_key, factor) = match gguf.find::<f32>(&key("scaling.factor"))? {
        Some(factor) => (key("scaling.factor"), factor),
        None => {
            let old = key("scale_linear");
            let factor = gguf.find::<f32>(&old)?.unwrap_or(0.0);
            (old, factor)
        }
    };
    let factor = if factor == 0.0 { 1.0 } else { factor };
    match gguf.find::<&str>(&key("scaling.type"))?.unwrap_or("linear") {
        "none" => {}
        kind @ ("linear" | "yarn") => {
            if !(factor.is_finite() && factor >= 1.0) {
                return Err(bad(gguf, &factor_key, factor, "0 and numbers from 1 upward"));
            }
            rope.freq_scale = 1.0 / factor;
            if kind == "yarn" {
                rope.ext_factor = 1.0;
                let trained = gguf.find::<u32>(&key("scaling.original_context_length"))?;
                rope.n_ctx_orig = trained.unwrap_or(n_ctx_train);
            }
        }
        other => return Err(bad(gguf, &key("scaling.type"), other, "none, linear and yarn")),
    }
    Ok(rope)
}

/// The cap of the logits; 0 is none.
fn logit_cap(gguf: &Gguf, key: &str) -> Result<Option<f32>, ModelError> {
    let cap = gguf.find::<f32>(key)?.filter(|&cap| cap != 0.0);
    cap.map(|cap| positive(gguf, key, cap)).transpose()
}

fn positive(gguf: &Gguf, key: &str, value: f32) -> Result<f32, ModelError> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(bad(gguf, key, value, "positive numbers"))
    }
}

fn in_range(gguf: &Gguf, key: &str, value: u32, max: u32) -> Result<u32, ModelError> {
    if (1..=max).contains(&value) {
        Ok(value)
    } else {
        Err(bad(gguf, key, value, &format!("1 to {max}")))
    }
}

fn bad(gguf: &Gguf, key: &str, value: impl ToString, allowed: &str) -> ModelError {
    ModelError::BadValue {
        path: gguf.path().to_owned(),
        key: key.to_owned(),
        value: value.to_string(),
        allowed: allowed.to_owned(),
    }
}
