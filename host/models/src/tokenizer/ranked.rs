//! Byte-level BPE by the `tokenizers` crate, from the file's vocabulary and merges.

use std::path::Path;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{AddedToken, Tokenizer};

use super::description::{CONTROL, Description, MERGES_KEY, USER_DEFINED, bad_value};
use super::pre::PreTokenizer;
use crate::ModelError;

/// The tokenizer of `description` that splits by `pre` and merges in the order of `merges`.
pub(super) fn build(
    description: &Description<'_>,
    pre: &PreTokenizer,
    merges: &[(String, String)],
    path: &Path,
) -> Result<Tokenizer, ModelError> {
    let numbered = description.tokens.iter().map(|token| token.to_string()).zip(0..);
    let model = BPE::builder()
        .vocab_and_merges(numbered.collect::<Vocab>(), merges.to_vec())
        .ignore_merges(pre.whole_words_first)
        .build()
        .map_err(|error| {
            let allowed = "pairs of tokens that make a token".into();
            bad_value(path, MERGES_KEY, error.to_string(), allowed)
        })?;
    let mut tokenizer = Tokenizer::new(model);
    tokenizer.with_pre_tokenizer(Some(pre.build()?));
    let added = |ty| -> Vec<AddedToken> {
        let tokens = description.of_type(ty);
        tokens
            .map(|token| AddedToken::from(token, ty == CONTROL).normalized(false))
            .collect()
    };
    tokenizer.add_special_tokens(&added(CONTROL));
    tokenizer.add_tokens(&added(USER_DEFINED));
    Ok(tokenizer)
}
