//! A model's weights in shared memory: every piece has a place in the session that uses it.

use std::collections::HashMap;

use hexloom::plan::buffers::{BufferLimits, BufferPlan, TensorNeed};
use hexloom::plan::residency::stream;
use hexloom::session::TensorUse;
use hexloom::{Buffer, DType, Graph, GraphError, MapError, Session, TensorId};

use super::config::LlamaConfig;
use super::pending::{Pending, pending, write_all};
use super::roles::roles;
use super::split::Split;
use crate::ModelError;
use crate::gguf::Gguf;

/// Is told how many of how many bytes are loaded.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// A model's weights in the memory of its sessions.
pub struct Model {
    config: LlamaConfig,
    split: Split,
    /// By name and rank; what all ranks share is that of rank 0.
    weights: HashMap<(String, usize), Weight>,
    bytes: u64,
}

/// Where one weight lies.
#[derive(Debug)]
pub(super) struct Weight {
    pub(super) dtype: DType,
    pub(super) ne: [u32; 4],
    pub(super) buffer: Buffer,
    pub(super) offset: u64,
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
        Self::load_split(gguf, Split::single(session), progress)
    }

    /// Loads a model into several sessions.
    ///
    /// # Errors
    /// [`ModelError::Split`] when it has too few layers, heads or columns to go round.
    pub fn load_split(gguf: &Gguf, split: Split, progress: Progress<'_>) -> Result<Self, ModelError> {
        let (config, pending) = checked(gguf, &split)?;
        let model = Self::place(config, &pending, split)?;
        write_all(gguf, &pending, &model, progress)?;
        Ok(model)
    }

    /// Gives every weight its place and leaves its bytes zero: all that a planner needs of a model, at no cost.
    pub fn reserve(gguf: &Gguf, session: &Session) -> Result<Self, ModelError> {
        let split = Split::single(session);
        let (config, pending) = checked(gguf, &split)?;
        Self::place(config, &pending, split)
    }

    fn place(config: LlamaConfig, all: &[Pending<'_>], split: Split) -> Result<Self, ModelError> {
        let mut weights = HashMap::new();
        for (number, session) in split.sessions().iter().enumerate() {
            let own: Vec<&Pending<'_>> = all.iter().filter(|pending| pending.piece.session == number).collect();
            let needs: Vec<TensorNeed<'_>> = own.iter().map(|pending| pending.need()).collect();
            let plan = plan(session, &needs, split.beside())?;
            let places = session.alloc_planned("weights", &plan, TensorUse::Weights)?;
            for (pending, (buffer, offset)) in own.iter().zip(places.into_iter().flatten()) {
                let weight = Weight {
                    dtype: pending.dtype,
                    ne: pending.ne,
                    buffer,
                    offset,
                };
                weights.insert((pending.source.name().to_owned(), pending.piece.rank), weight);
            }
        }
        Ok(Self {
            config,
            split,
            weights,
            bytes: all.iter().map(|pending| pending.bytes).sum(),
        })
    }

    /// Sizes and places of a model's weights, without loading them.
    pub fn plan_weights(gguf: &Gguf, limits: &BufferLimits) -> Result<WeightPlan, ModelError> {
        let config = LlamaConfig::from_gguf(gguf)?;
        let pending = pending(gguf, &roles(&config, &Split::nowhere()))?;
        let needs: Vec<TensorNeed<'_>> = pending.iter().map(Pending::need).collect();
        Ok(WeightPlan {
            bytes: pending.iter().map(|pending| pending.bytes).sum(),
            layout: BufferPlan::new(&needs, limits).map_err(MapError::from)?,
            uses: uses(&needs),
            tensor_bytes: needs.iter().map(|need| need.bytes).collect(),
            names: needs.iter().map(|need| need.name.to_owned()).collect(),
        })
    }

    /// Hyper-parameters.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// The session that holds the first layer.
    pub fn session(&self) -> &Session {
        &self.split.sessions()[0]
    }

    /// The sessions that hold the weights, and how.
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// Bytes of all weights in shared memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn weight(&self, pending: &Pending<'_>) -> Option<&Weight> {
        self.weights
            .get(&(pending.source.name().to_owned(), pending.piece.rank))
    }

    /// Adds the piece of the weight `name` that `rank` uses to a graph, if the model has it.
    pub(super) fn find(&self, graph: &mut Graph, name: &str, rank: usize) -> Result<Option<TensorId>, GraphError> {
        let Some(weight) = self.weights.get(&(name.to_owned(), rank)) else {
            return Ok(None);
        };
        graph
            .weight(name, weight.dtype, weight.ne, &weight.buffer, weight.offset)
            .map(Some)
    }
}

/// Buffers for weights that share the window with `beside` bytes of other buffers: those that stay, or, when the window is
/// too small for all, those that take the fewest maps per token.
fn plan(session: &Session, needs: &[TensorNeed<'_>], beside: u64) -> Result<BufferPlan, ModelError> {
    let limits = session.buffer_limits(TensorUse::Weights);
    let plan = BufferPlan::new(needs, &limits).map_err(MapError::from)?;
    let budget = limits.budget_bytes.saturating_sub(beside);
    if limits.extended || plan.mapped_bytes() <= budget {
        return Ok(plan);
    }
    let limits = BufferLimits::new(limits.arch, budget);
    Ok(stream(needs, &uses(needs), &limits)?.plan)
}

/// The list's order, with the embedding once more at the end where there is no head of its own.
fn uses(listed: &[TensorNeed<'_>]) -> Vec<usize> {
    let has = |name: &str| listed.iter().any(|tensor| tensor.name == name);
    let tied = has("token_embd.weight") && !has("output.weight");
    (0..listed.len()).chain(tied.then_some(0)).collect()
}

fn checked<'a>(gguf: &'a Gguf, split: &Split) -> Result<(LlamaConfig, Vec<Pending<'a>>), ModelError> {
    let config = LlamaConfig::from_gguf(gguf)?;
    split.check(&config)?;
    let pending = pending(gguf, &roles(&config, split))?;
    Ok((config, pending))
}
