//! Pre-tokenizers: how each family of models splits text before merging.
//!
//! The names are those of `tokenizer.ggml.pre`; the expressions are those of the models' own tokenizers. Text between
//! matches stays a piece of its own. A model with another splitting would answer in subtly wrong tokens, so a name
//! that is not in the table is an error.

use std::path::Path;

use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::normalizer::SplitDelimiterBehavior;

use super::description::PRE_KEY;
use crate::ModelError;

/// One way of splitting.
pub(super) struct PreTokenizer {
    names: &'static [&'static str],
    /// Applied one after the other, each to the pieces of the one before.
    expressions: &'static [&'static str],
    /// A piece that is a token as it stands is taken without merging.
    pub(super) whole_words_first: bool,
    /// Whether a text starts with BOS when the file does not say.
    pub(super) add_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
const LLAMA3: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const TABLE: [PreTokenizer; 5] = [
    PreTokenizer {
        names: &["default"],
        expressions: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        whole_words_first: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["gpt-2"],
        expressions: &[GPT2],
        whole_words_first: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["smollm"],
        expressions: &[r"\p{N}", GPT2],
        whole_words_first: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3"],
        expressions: &[LLAMA3],
        whole_words_first: true,
        add_bos: true,
    },
    PreTokenizer {
        names: &["qwen2"],
        expressions: &[QWEN2],
        whole_words_first: false,
        add_bos: false,
    },
];

impl PreTokenizer {
    /// The pre-tokenizer called `name`.
    pub(super) fn find(name: &str, path: &Path) -> Result<&'static Self, ModelError> {
        TABLE
            .iter()
            .find(|pre| pre.names.contains(&name))
            .ok_or_else(|| ModelError::Tokenizer {
                path: path.into(),
                key: PRE_KEY,
                found: name.into(),
                supported: TABLE.iter().flat_map(|pre| pre.names).copied().collect(),
            })
    }

    /// The splitting, followed by the step from bytes to letters.
    pub(super) fn build(&self) -> Result<PreTokenizerWrapper, ModelError> {
        let mut steps = Vec::new();
        for expression in self.expressions {
            let pattern = SplitPattern::Regex((*expression).into());
            let split =
                Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(|error| ModelError::Tokenize {
                    detail: error.to_string(),
                })?;
            steps.push(split.into());
        }
        steps.push(ByteLevel::new(false, false, false).into());
        Ok(Sequence::new(steps).into())
    }
}
