//! What a model needs of a device's window, known before it is loaded.
//!
//! Graphs are prepared for the `null` device with weights that are placed but not written, so that the numbers are the
//! planner's own and no memory is touched. Only masks grow with the context; beyond [`MEASURED`] tokens they are added
//! by arithmetic. Guards and page rounding, below 8 KiB a buffer, are not counted.

use hexloom::abi::scratch::ATTENTION_BLOCK;
use hexloom::{Session, SessionOptions};
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::{BATCH_TOKENS, Context, LlamaConfig, Model};

use crate::device::Device;
use crate::failure::Failure;
use crate::output::{grouped, mib};

/// Longest context that graphs are prepared for here.
const MEASURED: u32 = 4096;
/// Bytes of mask per token of context: an f16 for the decode graph, and one for each token of a prompt piece.
const MASK_BYTES: u64 = 2 * (1 + BATCH_TOKENS as u64);

/// Bytes by use, for one context length.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Footprint {
    /// Tokens of context.
    pub(crate) n_ctx: u32,
    /// Tokens of context that the model was trained with.
    pub(crate) n_ctx_train: u32,
    pub(crate) weight_bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) compute_bytes: u64,
    pub(crate) pinned_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) window_bytes: u64,
    pub(crate) fits: bool,
    /// The largest context that fits, whatever the model was trained with; 0 when the weights alone do not fit.
    pub(crate) n_ctx_max: u32,
}

impl Footprint {
    /// Plans a model for a context of `n_ctx` tokens: weights, cache, the graphs of a decode step and of a prompt piece.
    pub(crate) fn of(gguf: &Gguf, n_ctx: u32) -> Result<Self, Failure> {
        let session = Session::open(Device::Null.transport()?, SessionOptions::default())?;
        let model = Model::reserve(gguf, &session)?;
        let measured = n_ctx.clamp(BATCH_TOKENS as u32, MEASURED);
        let mut context = Context::new(&model, measured)?;
        context.eval(&[0; BATCH_TOKENS])?;
        let masks = |n_ctx| cache_rows(n_ctx) * MASK_BYTES;
        Ok(Self::from_parts(Parts {
            n_ctx,
            weights: model.bytes(),
            compute_without_masks: context.compute_bytes().saturating_sub(masks(measured)),
            pinned: session.pinned_bytes(),
            window: session.hw().window_bytes,
            config: model.config(),
        }))
    }

    fn from_parts(parts: Parts<'_>) -> Self {
        let cache_per_token = parts.config.cache_bytes_per_token();
        let rows = cache_rows(parts.n_ctx);
        let fixed = parts.weights + parts.compute_without_masks + parts.pinned;
        let total = fixed + rows * (cache_per_token + MASK_BYTES);
        let left = parts.window.saturating_sub(fixed);
        let most = left / (cache_per_token + MASK_BYTES) / u64::from(ATTENTION_BLOCK) * u64::from(ATTENTION_BLOCK);
        Self {
            n_ctx: parts.n_ctx,
            n_ctx_train: parts.config.n_ctx_train,
            weight_bytes: parts.weights,
            cache_bytes: rows * cache_per_token,
            compute_bytes: parts.compute_without_masks + rows * MASK_BYTES,
            pinned_bytes: parts.pinned,
            total_bytes: total,
            window_bytes: parts.window,
            fits: total <= parts.window,
            n_ctx_max: u32::try_from(most).unwrap_or(u32::MAX),
        }
    }
}

/// What a footprint is made of.
struct Parts<'a> {
    n_ctx: u32,
    weights: u64,
    compute_without_masks: u64,
    pinned: u64,
    window: u64,
    config: &'a LlamaConfig,
}

/// Refuses a context for which the window is too small in any case, before anything large is allocated.
pub(crate) fn check(gguf: &Gguf, n_ctx: u32, session: &Session) -> Result<(), Failure> {
    let footprint = Footprint::from_parts(Parts {
        n_ctx,
        weights: Model::plan_weights(gguf, session.options().buffer_bytes_max)?.bytes,
        compute_without_masks: 0,
        pinned: session.pinned_bytes(),
        window: session.hw().window_bytes,
        config: &LlamaConfig::from_gguf(gguf)?,
    });
    if footprint.fits {
        return Ok(());
    }
    Err(Failure::Argument(format!(
        "{} with a context of {} tokens needs {}, the device's window has {}; {}",
        gguf.path().display(),
        grouped(n_ctx.into()),
        mib(footprint.total_bytes),
        mib(footprint.window_bytes),
        match footprint.n_ctx_max {
            0 => "the weights alone do not fit".to_owned(),
            most => format!("--ctx {most} is the most that can fit"),
        }
    )))
}

/// Tokens that a cache for `n_ctx` has room for: whole blocks of attention.
fn cache_rows(n_ctx: u32) -> u64 {
    u64::from(n_ctx.max(1)).next_multiple_of(u64::from(ATTENTION_BLOCK))
}
