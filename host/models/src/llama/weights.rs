//! Loading: every weight is checked for its role, given a place, repacked into tiles and written to shared memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use hexloom::abi::tile::{TILE_ROWS, TileLayout};
use hexloom::plan::buffers::{BufferLimits, BufferPlan, BufferPlanError, TensorNeed};
use hexloom::{Buffer, DType, Graph, GraphError, MapError, Session, TensorId, repack};

use super::config::LlamaConfig;
use crate::ModelError;
use crate::gguf::{Gguf, TensorSource, TensorType};

/// Is told how many of how many bytes are loaded.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// A model's weights in the memory of one session.
pub struct Model {
    config: LlamaConfig,
    session: Session,
    weights: HashMap<String, Weight>,
    bytes: u64,
}

/// Where one weight lies.
#[derive(Debug)]
struct Weight {
    dtype: DType,
    ne: [u32; 4],
    buffer: Buffer,
    offset: u64,
}

/// A weight on its way from the file to its place.
struct Pending<'a> {
    source: TensorSource<'a>,
    dtype: DType,
    ne: [u32; 4],
    bytes: u64,
}

/// What a tensor must be for its role: name, shape, whether it may be quantised.
struct Role {
    name: String,
    ne: Vec<u32>,
    matrix: bool,
    optional: bool,
}

/// Sizes of a model in shared memory, known without loading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightPlan {
    /// Bytes of all weights.
    pub bytes: u64,
    /// Buffers and places.
    pub layout: BufferPlan,
    /// Names, in the order of the places.
    pub names: Vec<String>,
    /// Bytes of each.
    pub tensor_bytes: Vec<u64>,
    /// The tensors that a token's ops use, in order, by index.
    pub uses: Vec<usize>,
}

impl Model {
    /// Loads a model into a session.
    pub fn load(gguf: &Gguf, session: &Session, progress: Progress<'_>) -> Result<Self, ModelError> {
        let config = LlamaConfig::from_gguf(gguf)?;
        let pending = pending(gguf, &config)?;
        let model = Self::place(config, &pending, session)?;
        write_all(gguf, &pending, &model, progress)?;
        Ok(model)
    }

    /// Gives every weight its place and leaves its bytes zero: all that a planner needs of a model, at no cost.
    pub fn reserve(gguf: &Gguf, session: &Session) -> Result<Self, ModelError> {
        let config = LlamaConfig::from_gguf(gguf)?;
        let pending = pending(gguf, &config)?;
        Self::place(config, &pending, session)
    }

    fn place(config: LlamaConfig, pending: &[Pending<'_>], session: &Session) -> Result<Self, ModelError> {
        let plan = plan(pending, &session.buffer_limits())?;
        let buffers = plan.layout.buffers.iter().enumerate();
        let buffers: Vec<Buffer> = buffers
            .map(|(idx, planned)| session.alloc(&format!("weights {idx}"), planned.bytes))
            .collect::<Result<_, MapError>>()?;
        let places = plan.layout.places.iter().flatten();
        let weights = pending.iter().zip(places).map(|(pending, place)| {
            let weight = Weight {
                dtype: pending.dtype,
                ne: pending.ne,
                buffer: buffers[place.buffer].clone(),
                offset: place.offset,
            };
            (pending.source.name().to_owned(), weight)
        });
        Ok(Self {
            config,
            session: session.clone(),
            weights: weights.collect(),
            bytes: plan.bytes,
        })
    }

    /// Sizes and places of a model's weights, without loading them.
    pub fn plan_weights(gguf: &Gguf, limits: &BufferLimits) -> Result<WeightPlan, ModelError> {
        let config = LlamaConfig::from_gguf(gguf)?;
        Ok(plan(&pending(gguf, &config)?, limits)?)
    }

    /// Hyper-parameters.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// The session that holds the weights.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Bytes of all weights in shared memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the weight `name` to a graph, if the model has it.
    pub(super) fn find(&self, graph: &mut Graph, name: &str) -> Result<Option<TensorId>, GraphError> {
        let Some(weight) = self.weights.get(name) else {
            return Ok(None);
        };
        graph
            .weight(name, weight.dtype, weight.ne, &weight.buffer, weight.offset)
            .map(Some)
    }
}

/// Every tensor of the model, in the order in which a token uses them.
fn roles(config: &LlamaConfig) -> Vec<Role> {
    let LlamaConfig {
        n_embd,
        n_ff,
        n_vocab,
        n_heads,
        head_size,
        ..
    } = *config;
    let (n_q, n_kv) = (head_size * n_heads, config.n_embd_kv());
    let role = |name: String, ne: &[u32], matrix, optional| Role {
        name,
        ne: ne.to_vec(),
        matrix,
        optional,
    };
    let mut roles = vec![role("token_embd.weight".into(), &[n_embd, n_vocab], true, false)];
    for layer in 0..config.n_layers {
        let matrices = [
            ("attn_q", [n_embd, n_q]),
            ("attn_k", [n_embd, n_kv]),
            ("attn_v", [n_embd, n_kv]),
            ("attn_output", [n_q, n_embd]),
            ("ffn_gate", [n_embd, n_ff]),
            ("ffn_up", [n_embd, n_ff]),
            ("ffn_down", [n_ff, n_embd]),
        ];
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        roles.push(role(name("attn_norm"), &[n_embd], false, false));
        roles.push(role(name("ffn_norm"), &[n_embd], false, false));
        roles.extend(matrices.map(|(part, ne)| role(name(part), &ne, true, false)));
    }
    roles.push(role("output_norm.weight".into(), &[n_embd], false, false));
    roles.push(role("output.weight".into(), &[n_embd, n_vocab], true, true));
    roles.push(role("rope_freqs.weight".into(), &[config.rope.n_dims / 2], false, true));
    roles
}

fn pending<'a>(gguf: &'a Gguf, config: &LlamaConfig) -> Result<Vec<Pending<'a>>, ModelError> {
    const MATRIX: &[TensorType] = &[
        TensorType::F32,
        TensorType::F16,
        TensorType::Q4_0,
        TensorType::Q4_1,
        TensorType::Q8_0,
    ];
    let mut all = Vec::new();
    for role in roles(config) {
        let Some(source) = gguf.find_tensor(&role.name) else {
            if role.optional {
                continue;
            }
            gguf.tensor(&role.name)?;
            continue;
        };
        let ne: Vec<u64> = role.ne.iter().copied().map(u64::from).collect();
        let types = if role.matrix { MATRIX } else { &MATRIX[..1] };
        let source = source.with_shape(&ne)?.with_type(types)?;
        all.push(Pending::new(gguf, source, &role.ne)?);
    }
    Ok(all)
}

impl<'a> Pending<'a> {
    fn new(gguf: &Gguf, source: TensorSource<'a>, ne: &[u32]) -> Result<Self, ModelError> {
        let dtype = match source.ty() {
            TensorType::F32 => DType::F32,
            TensorType::F16 => DType::F16,
            TensorType::Q4_0 => DType::Q4_0,
            TensorType::Q4_1 => DType::Q4_1,
            TensorType::Q8_0 => DType::Q8_0,
        };
        let mut all = [1; 4];
        all.iter_mut().zip(ne).for_each(|(to, from)| *to = *from);
        let bytes = match dtype.is_quantized() {
            true => TileLayout::new(dtype, all[0]).and_then(|layout| {
                layout.strides(dtype, all)?;
                layout.tensor_bytes(all)
            }),
            false => Some(source.bytes().len() as u64),
        };
        let bytes = bytes.ok_or_else(|| ModelError::BadValue {
            path: gguf.path().to_owned(),
            key: format!("shape of {}", source.name()),
            value: format!("{all:?}"),
            allowed: "rows of a multiple of 32 elements and below 4 GiB in all".to_owned(),
        })?;
        Ok(Self {
            source,
            dtype,
            ne: all,
            bytes,
        })
    }

    /// Pieces that can be written apart: groups of 32 rows of a tiled weight, or the whole.
    fn n_pieces(&self) -> usize {
        match self.dtype.is_quantized() {
            true => TileLayout::groups(self.ne[1]) as usize,
            false => 1,
        }
    }

    fn write_piece(&self, piece: usize, weight: &Weight, group: &mut Vec<u8>) -> Result<u64, MapError> {
        let Some(layout) = TileLayout::new(self.dtype, self.ne[0]) else {
            weight.buffer.write(weight.offset, self.source.bytes())?;
            return Ok(self.bytes);
        };
        let row_bytes = (u64::from(layout.k_tiles) * self.dtype.block_bytes()) as usize;
        let first = piece * TILE_ROWS as usize;
        let n_rows = (self.ne[1] as usize - first).min(TILE_ROWS as usize);
        let rows = &self.source.bytes()[first * row_bytes..][..n_rows * row_bytes];
        group.resize(layout.group_bytes as usize, 0);
        repack::pack_group(self.dtype, &layout, rows, group);
        let offset = weight.offset + piece as u64 * u64::from(layout.group_bytes);
        weight.buffer.write(offset, group)?;
        Ok(group.len() as u64)
    }
}

fn plan(pending: &[Pending<'_>], limits: &BufferLimits) -> Result<WeightPlan, BufferPlanError> {
    let need = |pending: &Pending<'_>| (pending.source.name().to_owned(), pending.bytes);
    let needs: Vec<(String, u64)> = pending.iter().map(need).collect();
    let listed: Vec<TensorNeed<'_>> = needs
        .iter()
        .map(|(name, bytes)| TensorNeed::new(name, *bytes))
        .collect();
    Ok(WeightPlan {
        bytes: needs.iter().map(|(_, bytes)| bytes).sum(),
        layout: BufferPlan::new(&listed, limits)?,
        uses: uses(&listed),
        tensor_bytes: needs.iter().map(|(_, bytes)| *bytes).collect(),
        names: needs.into_iter().map(|(name, _)| name).collect(),
    })
}

/// The list's order, with the embedding once more at the end where there is no head of its own.
fn uses(listed: &[TensorNeed<'_>]) -> Vec<usize> {
    let tied = listed.iter().all(|tensor| tensor.name != "output.weight");
    (0..listed.len()).chain(tied.then_some(0)).collect()
}

/// Repacks and writes everything, on all processors; the file's pages are given back as soon as they are used.
fn write_all(gguf: &Gguf, pending: &[Pending<'_>], model: &Model, progress: Progress<'_>) -> Result<(), ModelError> {
    let total = model.bytes;
    let next = AtomicUsize::new(0);
    let done = AtomicU64::new(0);
    let failure = Mutex::new(None);
    let work = || {
        let mut group = Vec::new();
        loop {
            let idx = next.fetch_add(1, Ordering::Relaxed);
            let Some(pending) = pending.get(idx) else {
                return;
            };
            let weight = &model.weights[pending.source.name()];
            for piece in 0..pending.n_pieces() {
                match pending.write_piece(piece, weight, &mut group) {
                    Ok(bytes) => {
                        let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
                        if piece.is_multiple_of(64) {
                            progress(done, total);
                        }
                    }
                    Err(error) => {
                        *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        return;
                    }
                }
            }
            gguf.release(&pending.source);
        }
    };
    std::thread::scope(|scope| {
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 1..n_threads {
            scope.spawn(work);
        }
        work();
    });
    progress(total, total);
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}
