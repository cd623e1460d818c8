//! GGUF models for hexloom: the file, its tokenizer, its chat template and the choice of the next token.
//!
//! Everything here reads data that a stranger wrote, so every function answers a bad file with a [`ModelError`] that
//! names the file, the tensor or key, and the numbers. Models become graphs of [`hexloom`]; nothing in this crate knows a transport or the DSP.

pub mod chat;
pub mod error;
pub mod generate;
pub mod gguf;
pub mod llama;
pub mod log_probs;
pub mod sampler;
pub mod tokenizer;

pub use error::ModelError;
