//! What families of models compute differently in the one graph of [`super::forward`].
//!
//! A family is data: a new one that needs no new op is a new row of the table. What sizes decide is in
//! [`super::LlamaConfig`], what is optional in a family's files shows in the files.

use hexloom::abi::Opcode;
use hexloom::abi::support::{ROPE_NEOX, ROPE_NORMAL};

/// One family. What it does not have is as in Llama.
#[derive(Debug, PartialEq)]
pub(crate) struct Family {
    /// The value of `general.architecture`.
    pub(crate) architecture: &'static str,
    /// How the gate and the other half of the feed-forward layer are combined.
    pub(crate) gate: Opcode,
    /// Which elements of a head the rotary embedding pairs.
    pub(crate) rope_mode: u32,
    /// Whether embeddings are scaled by the root of their width.
    pub(crate) scaled_embedding: bool,
    /// Whether queries and keys have a norm, head by head.
    pub(crate) head_norms: bool,
    /// Whether what attention and feed-forward layer give has a norm, before it is added to the residual stream.
    pub(crate) post_norms: bool,
    /// Models of so many layers scale attention by the width of the residual stream over the number of heads, the others by
    /// the width of a head.
    pub(crate) wide_scale_layers: Option<u32>,
    /// Layers that look back over a window only, where the file names its length.
    pub(crate) local: Option<LocalLayers>,
    /// Whether a file can name a cap for the logits.
    pub(crate) capped_logits: bool,
    /// Whether a file can have biases beside its matrices.
    pub(crate) biases: bool,
}

/// Which layers look back over a window only.
#[derive(Debug, PartialEq)]
pub(crate) struct LocalLayers {
    /// The last of so many layers sees everything, the others a window, where the file does not say.
    pub(crate) period: u32,
    /// Base of their rotary embedding, where the file names none.
    pub(crate) freq_base: f32,
}

const LLAMA: Family = Family {
    architecture: "llama",
    gate: Opcode::Swiglu,
    rope_mode: ROPE_NORMAL,
    scaled_embedding: false,
    head_norms: false,
    post_norms: false,
    wide_scale_layers: None,
    local: None,
    capped_logits: false,
    biases: true,
};

const GEMMA3: Family = Family {
    architecture: "gemma3",
    gate: Opcode::Geglu,
    rope_mode: ROPE_NEOX,
    scaled_embedding: true,
    head_norms: true,
    post_norms: true,
    // The one with 27 billion weights.
    wide_scale_layers: Some(62),
    local: Some(LocalLayers {
        period: 6,
        freq_base: 10_000.0,
    }),
    capped_logits: true,
    biases: false,
};

const FAMILIES: [&Family; 2] = [&LLAMA, &GEMMA3];

/// Architectures that the graph computes.
pub(crate) const ARCHITECTURES: [&str; 2] = [LLAMA.architecture, GEMMA3.architecture];

impl Family {
    /// The family of one of [`ARCHITECTURES`].
    pub(crate) fn of(architecture: &str) -> &'static Self {
        let mut families = FAMILIES.into_iter();
        families
            .find(|family| family.architecture == architecture)
            .unwrap_or(&LLAMA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_has_its_family() {
        for architecture in ARCHITECTURES {
            assert_eq!(Family::of(architecture).architecture, architecture);
        }
    }
}
