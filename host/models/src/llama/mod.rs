//! Models of the Llama and Gemma families: weights in shared buffers, a KV cache, one prepared graph per batch shape.
//!
//! [`Model`] holds what does not change; [`Context`] holds a conversation: its cache, its position and its graphs. A
//! decode step is a graph of one token that is prepared once; per token the host writes the token, its position, its
//! cache row and one entry of each mask, and sends the same block again.

mod config;
mod context;
mod family;
mod forward;
mod layers;
mod masks;
mod pending;
mod roles;
mod split;
mod step;
mod stored;
mod weights;

pub use config::{LlamaConfig, LocalConfig};
pub use context::{BATCH_TOKENS, Context};
pub use split::Split;
pub use weights::{Model, Progress, WeightPlan};
