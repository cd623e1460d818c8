//! What a model needs of a device's window, known before it is loaded.
//!
//! Graphs are prepared for the `null` device with weights that are placed but not written, so that the numbers are the
//! planner's own and no memory is touched. Only masks grow with the context; beyond [`MEASURED`] tokens they are added
//! by arithmetic. Whether it fits is told with room for the guards and page rounding of a full mapping table.

use hexloom::abi::limits::{MAX_MAPPINGS, window_bytes};
use hexloom::abi::scratch::ATTENTION_BLOCK;
use hexloom::memory::compute::{ChunkReport, ComputeReport};
use hexloom::plan::buffers::{BufferLimits, PAGE_BYTES};
use hexloom::session::TensorUse;
use hexloom::{Session, SessionOptions};
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::{BATCH_TOKENS, Context, LlamaConfig, Model, WeightPlan};

use crate::device::{Device, DeviceChoice};
use crate::failure::Failure;
use crate::output::{grouped, mib};

/// Room for what graphs compute, masks not counted, where they are not prepared to find out.
const COMPUTE_BYTES: u64 = 4 << 20;
/// Longest context that graphs are prepared for here.
const MEASURED: u32 = 4096;
/// Guards and page rounding of as many buffers as can be mapped.
const GUARDS: u64 = (MAX_MAPPINGS as u64) * 2 * PAGE_BYTES;

/// Bytes by use, for one context length.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Footprint {
    /// Tokens of context.
    pub(crate) n_ctx: u32,
    /// Tokens of context that the model was trained with.
    pub(crate) n_ctx_train: u32,
    /// Tokens of a prompt that are evaluated together.
    pub(crate) n_batch: u32,
    pub(crate) weight_bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) compute_bytes: u64,
    pub(crate) pinned_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) window_bytes: u64,
    pub(crate) fits: bool,
    /// Buffers that the weights are packed into, and the bytes of each.
    pub(crate) weight_buffers: Vec<u64>,
    /// What the device can map.
    #[serde(skip)]
    pub(crate) limits: BufferLimits,
    /// The plan behind `weight_buffers`, and the weights in order of use.
    #[serde(skip)]
    pub(crate) weights: Option<WeightPlan>,
    /// Graphs of one decode step and of one prompt piece.
    pub(crate) graphs: Vec<GraphMemory>,
    /// The largest context that fits, whatever the model was trained with; 0 when the weights alone do not fit.
    pub(crate) n_ctx_max: u32,
}

/// Memory of one graph's computed tensors, measured at a context of at most [`MEASURED`] tokens.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct GraphMemory {
    pub(crate) name: String,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) lower_bound: u64,
}

/// One chunk and who fills it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Chunk {
    pub(crate) bytes: u64,
    /// Tensors alive at the fullest moment and their bytes, largest first.
    pub(crate) alive: Vec<(String, u64)>,
}

impl Footprint {
    /// Plans a model for a context of `n_ctx` tokens: weights, cache, the graphs of a decode step and of a prompt piece
    /// of `n_batch` tokens.
    pub(crate) fn of(gguf: &Gguf, n_ctx: u32, n_batch: u32, target: Target) -> Result<Self, Failure> {
        let session = Session::open(
            Device::Null.transport(&DeviceChoice::default())?,
            SessionOptions::default(),
        )?;
        let model = Model::reserve(gguf, &session)?;
        let n_batch = n_batch.min(n_ctx);
        let measured = n_ctx.clamp(n_batch, MEASURED.max(n_batch));
        let mut context = Context::with_batch(&model, measured, n_batch as usize)?;
        context.eval(&vec![0; n_batch as usize])?;
        let masks = |n_ctx| cache_rows(n_ctx) * mask_bytes(n_batch);
        let reports = context.compute_reports()?;
        let arch = target.arch.unwrap_or(session.hw().arch);
        let window_bytes = target.window_bytes.unwrap_or(window_bytes(arch));
        let budget = window_bytes.saturating_sub(session.pinned_bytes());
        // Packed for the window, but not refused when it is too small: that is for the report to tell.
        let limits = BufferLimits {
            budget_bytes: u64::MAX,
            ..BufferLimits::new(arch, budget)
        };
        let footprint = Self::from_parts(Parts {
            n_ctx,
            n_batch,
            weights: model.bytes(),
            compute_without_masks: context.compute_bytes().saturating_sub(masks(measured)),
            pinned: session.pinned_bytes(),
            window: window_bytes,
            config: model.config(),
        });
        let weights = Model::plan_weights(gguf, &limits)?;
        Ok(Self {
            weight_buffers: weights.layout.buffers.iter().map(|buffer| buffer.bytes).collect(),
            weights: Some(weights),
            limits,
            graphs: reports.into_iter().map(GraphMemory::new).collect(),
            ..footprint
        })
    }

    fn from_parts(parts: Parts<'_>) -> Self {
        let cache_per_token = parts.config.cache_bytes_per_token();
        let rows = cache_rows(parts.n_ctx);
        let fixed = parts.weights + parts.compute_without_masks + parts.pinned;
        // The file says how large a row of the cache is and need not make sense; a sum beyond 64 bits fits no window.
        let (cache, masks) = (
            rows.saturating_mul(cache_per_token),
            rows.saturating_mul(mask_bytes(parts.n_batch)),
        );
        let per_token = cache_per_token + mask_bytes(parts.n_batch);
        let total = fixed.saturating_add(cache).saturating_add(masks);
        let usable = parts.window.saturating_sub(GUARDS);
        let left = usable.saturating_sub(fixed);
        let most = whole_blocks(left / per_token);
        Self {
            n_ctx: parts.n_ctx,
            n_batch: parts.n_batch,
            n_ctx_train: parts.config.n_ctx_train,
            weight_bytes: parts.weights,
            cache_bytes: cache,
            compute_bytes: parts.compute_without_masks + masks,
            pinned_bytes: parts.pinned,
            total_bytes: total,
            window_bytes: parts.window,
            fits: total <= usable,
            weight_buffers: Vec::new(),
            weights: None,
            limits: BufferLimits::new(0, parts.window),
            graphs: Vec::new(),
            n_ctx_max: most,
        }
    }
}

/// The device to plan for; what is left open is the simulator's, or the architecture's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Target {
    /// Bytes of the 32-bit window.
    pub(crate) window_bytes: Option<u64>,
    /// Architecture number.
    pub(crate) arch: Option<u32>,
}

/// What a footprint is made of.
struct Parts<'a> {
    n_ctx: u32,
    n_batch: u32,
    weights: u64,
    compute_without_masks: u64,
    pinned: u64,
    window: u64,
    config: &'a LlamaConfig,
}

/// Bytes of the window that caches and graphs take beside the weights in each session. Warns when not everything fits at
/// once; refuses a context for which these alone do not.
pub(crate) fn beside(gguf: &Gguf, n_ctx: u32, sessions: &[Session]) -> Result<u64, Failure> {
    let Some(first) = sessions.first() else { return Ok(0) };
    let limits = first.buffer_limits(TensorUse::Weights);
    let weights = match limits.extended {
        true => 0,
        false => Model::plan_weights(gguf, &limits)?.bytes,
    };
    let n_sessions = sessions.len() as u64;
    let footprint = Footprint::from_parts(Parts {
        n_ctx,
        n_batch: BATCH_TOKENS as u32,
        weights: weights / n_sessions,
        compute_without_masks: COMPUTE_BYTES,
        pinned: first.pinned_bytes(),
        window: first.window_bytes() + first.pinned_bytes(),
        config: &LlamaConfig::from_gguf(gguf)?,
    });
    let room = Room {
        window: first.window_bytes(),
        cache_per_row: LlamaConfig::from_gguf(gguf)?.cache_bytes_per_token(),
        n_sessions,
    };
    let beside = room.taken(n_ctx);
    if beside > room.window {
        return Err(Failure::Argument(format!(
            "{} with a context of {} tokens needs {} beside the weights, the device's window has {}; {}",
            gguf.path().display(),
            grouped(n_ctx.into()),
            mib(beside),
            mib(room.window),
            match room.n_ctx_max() {
                0 => format!("not even one of {ATTENTION_BLOCK} fits"),
                most => format!("use at most --ctx {most}"),
            }
        )));
    }
    if weights / n_sessions + beside > first.window_bytes() {
        eprintln!(
            "{} with a context of {} tokens needs {}, the device's window has {}: buffers take turns in it, which costs \
             time (`hexloom plan` tells how much); {}",
            gguf.path().display(),
            grouped(n_ctx.into()),
            mib(weights / n_sessions + beside),
            mib(first.window_bytes()),
            match footprint.n_ctx_max {
                0 => "the weights alone do not fit".to_owned(),
                most => format!("with --ctx {most} everything fits"),
            }
        );
    }
    Ok(beside)
}

impl GraphMemory {
    fn new((name, report): (String, ComputeReport)) -> Self {
        let chunk = |chunk: ChunkReport| Chunk {
            bytes: chunk.bytes,
            alive: chunk.alive,
        };
        Self {
            name,
            chunks: report.chunks.into_iter().map(chunk).collect(),
            lower_bound: report.lower_bound,
        }
    }
}

/// Bytes of mask per token of context: an f16 for the decode graph, and one for each token of a prompt piece.
fn mask_bytes(n_batch: u32) -> u64 {
    let prompt = if n_batch > 1 { u64::from(n_batch) } else { 0 };
    2 * (1 + prompt)
}

/// A session's window without its weights: what a context takes of it, and how long one may be.
struct Room {
    window: u64,
    /// Cache bytes of a token of context, in all sessions.
    cache_per_row: u64,
    n_sessions: u64,
}

impl Room {
    /// Bytes of cache, masks and computed tensors for a context of `n_ctx` tokens.
    fn taken(&self, n_ctx: u32) -> u64 {
        let rows = cache_rows(n_ctx);
        let cache = rows.saturating_mul(self.cache_per_row) / self.n_sessions;
        let masks = rows.saturating_mul(mask_bytes(BATCH_TOKENS as u32));
        cache.saturating_add(masks).saturating_add(COMPUTE_BYTES)
    }

    /// The longest context that fits, 0 if none does. Caches have whole blocks of rows, so this counts in blocks too.
    fn n_ctx_max(&self) -> u32 {
        let per_row = self.cache_per_row.div_ceil(self.n_sessions) + mask_bytes(BATCH_TOKENS as u32);
        whole_blocks(self.window.saturating_sub(COMPUTE_BYTES) / per_row)
    }
}

/// Tokens of the whole blocks of attention among `rows`.
fn whole_blocks(rows: u64) -> u32 {
    let block = u64::from(ATTENTION_BLOCK);
    (rows.min(u32::MAX.into()) / block * block) as u32
}

/// Tokens that a cache for `n_ctx` has room for: whole blocks of attention.
fn cache_rows(n_ctx: u32) -> u64 {
    u64::from(n_ctx.max(1)).next_multiple_of(u64::from(ATTENTION_BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_that_is_advised_fits_and_the_next_block_does_not() {
        // SmolLM2-135M and the usual window, then sizes that no division comes out even for.
        let smol = 2 * 2 * 192 * 30;
        for (window, cache_per_row, n_sessions) in [
            (3_347_054_592, smol, 1),
            (3_347_054_592, smol, 7),
            (1 << 32, 4, 3),
            (COMPUTE_BYTES + 64 * (smol + 130), smol, 1),
        ] {
            let room = Room {
                window,
                cache_per_row,
                n_sessions,
            };
            let most = room.n_ctx_max();
            assert!(most >= ATTENTION_BLOCK && most.is_multiple_of(ATTENTION_BLOCK));
            assert!(room.taken(most) <= window, "{most} tokens in {window}");
            // Rows that sessions share are rounded up, by less than a byte a row each.
            let slack = u64::from(most);
            assert!(room.taken(most + 1) + slack > window, "{most} tokens in {window}");
        }
    }

    #[test]
    fn sizes_beyond_64_bits_fit_nowhere() {
        let room = Room {
            window: 1 << 32,
            cache_per_row: u64::MAX / 8,
            n_sessions: 1,
        };
        assert!(room.taken(u32::MAX) > room.window);
        assert_eq!(room.n_ctx_max(), 0);
    }
}
