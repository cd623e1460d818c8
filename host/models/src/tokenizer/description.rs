//! What the model file says about its tokenizer, read and checked.

use std::path::Path;

use super::pre::PreTokenizer;
use crate::ModelError;
use crate::gguf::Gguf;

const MODEL_KEY: &str = "tokenizer.ggml.model";
pub(super) const PRE_KEY: &str = "tokenizer.ggml.pre";
const TOKENS_KEY: &str = "tokenizer.ggml.tokens";
const TYPES_KEY: &str = "tokenizer.ggml.token_type";
pub(super) const MERGES_KEY: &str = "tokenizer.ggml.merges";
const ADD_BOS_KEY: &str = "tokenizer.ggml.add_bos_token";
const BOS_KEY: &str = "tokenizer.ggml.bos_token_id";
const EOS_KEY: &str = "tokenizer.ggml.eos_token_id";
/// End of text, of a turn and of a message: a model that has them stops at each.
const END_KEYS: [&str; 3] = [EOS_KEY, "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

/// Control tokens that end a text by name, because files often name only one of several as EOS.
const END_NAMES: [&str; 10] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<EOT>",
    "</s>",
];

/// Byte-level BPE, whose merges have ranks.
const BY_RANK: &str = "gpt2";
/// SentencePiece's BPE, whose tokens have scores.
const BY_SCORE: &str = "llama";
const SCORES_KEY: &str = "tokenizer.ggml.scores";
const SPACE_PREFIX_KEY: &str = "tokenizer.ggml.add_space_prefix";

/// GGUF's token types that matter here; the numbers are GGUF's.
pub(super) const NORMAL: i32 = 1;
pub(super) const CONTROL: i32 = 3;
pub(super) const USER_DEFINED: i32 = 4;
pub(super) const BYTE: i32 = 6;

/// How tokens are found in text.
pub(super) enum Kind {
    Ranks {
        pre: &'static PreTokenizer,
        merges: Vec<(String, String)>,
    },
    Scores {
        /// One per token.
        scores: Vec<f32>,
        /// Whether text gets a space before it.
        space_prefix: bool,
    },
}

/// A tokenizer as the file describes it. Token numbers are in range, and there is a type for every token.
pub(super) struct Description<'a> {
    pub(super) kind: Kind,
    pub(super) tokens: Vec<&'a str>,
    pub(super) types: Vec<i32>,
    pub(super) add_bos: bool,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    /// The tokens that end a text, sorted.
    pub(super) ends: Vec<u32>,
}

impl<'a> Description<'a> {
    pub(super) fn read(gguf: &'a Gguf) -> Result<Self, ModelError> {
        let tokens: Vec<&str> = gguf.get(TOKENS_KEY)?;
        let types = types(gguf, tokens.len())?;
        let (kind, adds_bos) = kind(gguf, tokens.len())?;
        let id = |key| token_id(gguf, key, tokens.len());
        let (bos, eos) = (id(BOS_KEY)?, id(EOS_KEY)?);
        let mut ends = Vec::new();
        for key in END_KEYS {
            ends.extend(id(key)?);
        }
        let named = (0..).zip(tokens.iter().zip(&types));
        let named = named.filter(|(_, (token, ty))| **ty == CONTROL && END_NAMES.contains(*token));
        ends.extend(named.map(|(id, _)| id));
        ends.sort_unstable();
        ends.dedup();
        let add_bos = gguf.find(ADD_BOS_KEY)?.unwrap_or(adds_bos);
        Ok(Self {
            kind,
            tokens,
            types,
            add_bos,
            bos,
            eos,
            ends,
        })
    }

    /// The tokens of type `ty` that are not empty.
    pub(super) fn of_type(&self, ty: i32) -> impl Iterator<Item = &'a str> {
        let typed = self.tokens.iter().zip(&self.types);
        typed
            .filter(move |(token, t)| **t == ty && !token.is_empty())
            .map(|(token, _)| *token)
    }
}

pub(super) fn bad_value(path: &Path, key: &str, value: String, allowed: String) -> ModelError {
    ModelError::BadValue {
        path: path.into(),
        key: key.into(),
        value,
        allowed,
    }
}

/// How tokens are found, and whether text starts with BOS where the file does not say.
fn kind(gguf: &Gguf, n_tokens: usize) -> Result<(Kind, bool), ModelError> {
    let path = gguf.path();
    match gguf.get(MODEL_KEY)? {
        BY_RANK => {
            // Files from before the key existed behave as "default".
            let pre = PreTokenizer::find(gguf.find(PRE_KEY)?.unwrap_or("default"), path)?;
            let merges = merges(gguf.get(MERGES_KEY)?, path)?;
            Ok((Kind::Ranks { pre, merges }, pre.add_bos))
        }
        BY_SCORE => {
            let scores: Vec<f32> = gguf.get(SCORES_KEY)?;
            if scores.len() != n_tokens {
                let value = format!("an array of {}", scores.len());
                return Err(bad_value(path, SCORES_KEY, value, format!("{n_tokens}, one per token")));
            }
            let space_prefix = gguf.find(SPACE_PREFIX_KEY)?.unwrap_or(true);
            Ok((Kind::Scores { scores, space_prefix }, true))
        }
        other => Err(ModelError::Tokenizer {
            path: path.into(),
            key: MODEL_KEY,
            found: other.into(),
            supported: vec![BY_RANK, BY_SCORE],
        }),
    }
}

/// The type of each token; a file without types has normal tokens only.
fn types(gguf: &Gguf, n_tokens: usize) -> Result<Vec<i32>, ModelError> {
    let Some(types) = gguf.find::<Vec<i32>>(TYPES_KEY)? else {
        return Ok(vec![NORMAL; n_tokens]);
    };
    if types.len() != n_tokens {
        let value = format!("an array of {}", types.len());
        return Err(bad_value(
            gguf.path(),
            TYPES_KEY,
            value,
            format!("{n_tokens}, one per token"),
        ));
    }
    Ok(types)
}

fn merges(merges: Vec<&str>, path: &Path) -> Result<Vec<(String, String)>, ModelError> {
    let mut pairs = Vec::with_capacity(merges.len());
    for (i, merge) in merges.into_iter().enumerate() {
        let (left, right) = split_merge(merge).ok_or_else(|| {
            let value = format!("{merge:?} at index {i}");
            bad_value(path, MERGES_KEY, value, "two tokens with a space between".into())
        })?;
        pairs.push((left.into(), right.into()));
    }
    Ok(pairs)
}

/// Splits "left right". The first letter may itself be a space, so the search starts behind it.
fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let at = first + merge[first..].find(' ')?;
    Some((&merge[..at], &merge[at + 1..]))
}

fn token_id(gguf: &Gguf, key: &str, n_tokens: usize) -> Result<Option<u32>, ModelError> {
    match gguf.find::<u32>(key)? {
        Some(id) if id as usize >= n_tokens => {
            let allowed = format!("less than {n_tokens}, the number of tokens");
            Err(bad_value(gguf.path(), key, id.to_string(), allowed))
        }
        id => Ok(id),
    }
}
