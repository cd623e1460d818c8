//! Text to tokens and back, with the vocabulary that the model file carries.
//!
//! Byte-level BPE in the manner of GPT-2: text is split by the model's pre-tokenizer, each byte of a piece becomes one
//! letter of a printable alphabet, and letters are merged by rank. Merging is left to the `tokenizers` crate; which
//! text a token stands for is kept here, byte by byte, because a token may end in the middle of a character.

mod alphabet;
mod pre;
mod stream;

use std::path::Path;

use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, Vocab};

use crate::ModelError;
use crate::gguf::Gguf;
use alphabet::Alphabet;
use pre::PreTokenizer;

pub use stream::TextStream;

const MODEL_KEY: &str = "tokenizer.ggml.model";
const PRE_KEY: &str = "tokenizer.ggml.pre";
const TOKENS_KEY: &str = "tokenizer.ggml.tokens";
const TYPES_KEY: &str = "tokenizer.ggml.token_type";
const MERGES_KEY: &str = "tokenizer.ggml.merges";
const ADD_BOS_KEY: &str = "tokenizer.ggml.add_bos_token";
const BOS_KEY: &str = "tokenizer.ggml.bos_token_id";
const EOS_KEY: &str = "tokenizer.ggml.eos_token_id";
/// End of turn and end of message: a model that has them stops there, too.
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

/// GGUF's token types that matter here; the numbers are GGUF's.
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// The longest run of white space that [`Tokenizer::encode`] accepts, in characters.
///
/// The splitting expressions back-track over such a run, and the regex engine gives up at a million steps.
pub const WHITE_SPACE_RUN_LIMIT: usize = 250_000;

/// A model's tokenizer. It owns all it needs; the file can be closed.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    vocabulary: Vocabulary,
    add_bos: bool,
    bos: Option<u32>,
    eos: Option<u32>,
    end: Vec<u32>,
}

/// The text of every token, in one piece of memory.
#[derive(Debug, Default)]
struct Vocabulary {
    bytes: Vec<u8>,
    /// End of each token's text in `bytes`, and whether it is a control token.
    ends: Vec<(usize, bool)>,
}

impl Tokenizer {
    /// Builds the tokenizer that `gguf` describes.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] for a kind or pre-tokenizer that is not supported, and what a damaged vocabulary
    /// calls for: a missing or ill-typed key, a merge of unknown tokens, a special token out of range.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ModelError> {
        let path = gguf.path();
        let kind: &str = gguf.get(MODEL_KEY)?;
        if kind != "gpt2" {
            let (path, found) = (path.into(), kind.into());
            return Err(ModelError::Tokenizer {
                path,
                key: MODEL_KEY,
                found,
                supported: vec!["gpt2"],
            });
        }
        // Files from before the key existed behave as "default".
        let pre = PreTokenizer::find(gguf.find(PRE_KEY)?.unwrap_or("default"), path)?;
        let tokens: Vec<&str> = gguf.get(TOKENS_KEY)?;
        let types = types(gguf, tokens.len())?;
        let merges = merges(gguf.get(MERGES_KEY)?, path)?;

        let model = BPE::builder()
            .vocab_and_merges(
                tokens.iter().map(|token| token.to_string()).zip(0..).collect::<Vocab>(),
                merges,
            )
            .ignore_merges(pre.whole_words_first)
            .build()
            .map_err(|error| bad_value(path, MERGES_KEY, error.to_string(), "pairs of tokens of the vocabulary"))?;
        let mut inner = tokenizers::Tokenizer::new(model);
        inner.with_pre_tokenizer(Some(pre.build()?));
        let special = |ty| {
            tokens
                .iter()
                .zip(&types)
                .filter(move |(token, t)| **t == ty && !token.is_empty())
        };
        let added = |ty, special_token| {
            special(ty).map(move |(token, _)| AddedToken::from(*token, special_token).normalized(false))
        };
        inner.add_special_tokens(&added(CONTROL, true).collect::<Vec<_>>());
        inner.add_tokens(&added(USER_DEFINED, false).collect::<Vec<_>>());

        let alphabet = Alphabet::new();
        let mut vocabulary = Vocabulary::default();
        for (token, ty) in tokens.iter().zip(&types) {
            vocabulary.push(token, *ty, &alphabet);
        }
        let id = |key| special_token(gguf, key, tokens.len());
        let (bos, eos) = (id(BOS_KEY)?, id(EOS_KEY)?);
        let mut end = Vec::new();
        for key in END_KEYS {
            end.extend(id(key)?);
        }
        end.extend(
            (0..)
                .zip(&tokens)
                .zip(&types)
                .filter_map(|((id, token), ty)| (*ty == CONTROL && END_NAMES.contains(token)).then_some(id)),
        );
        end.sort_unstable();
        end.dedup();
        let add_bos = gguf.find(ADD_BOS_KEY)?.unwrap_or(pre.add_bos);
        Ok(Self {
            inner,
            vocabulary,

            add_bos,
            bos,
            eos,
            end,
        })
    }

    /// Number of tokens; they are 0 to this, excluded.
    pub fn n_tokens(&self) -> usize {
        self.vocabulary.ends.len()
    }

    /// The token that opens a text, if the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that the file names as the end of a text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether generation ends with `token`: EOS, end of turn, end of message, or a control token known by name.
    pub fn is_end(&self, token: u32) -> bool {
        self.end.binary_search(&token).is_ok()
    }

    /// The tokens of `text`, with control tokens such as `<|im_start|>` recognised in it.
    ///
    /// Where the model wants a BOS token it is put first, unless the text starts with one already (a chat template
    /// may have written it).
    ///
    /// # Errors
    /// [`ModelError::NoTokenForByte`] (vocabularies leave out some control characters and bytes), and
    /// [`ModelError::WhiteSpaceRun`] beyond [`WHITE_SPACE_RUN_LIMIT`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        check_white_space(text)?;
        let encoding = self
            .inner
            .encode_fast(text, false)
            .map_err(|error| ModelError::Tokenize {
                detail: error.to_string(),
            })?;
        self.check_complete(text, encoding.get_ids())?;
        let mut tokens = encoding.get_ids().to_vec();
        if let (true, Some(bos)) = (self.add_bos, self.bos) {
            if tokens.first() != Some(&bos) {
                tokens.insert(0, bos);
            }
        }
        Ok(tokens)
    }

    /// The library leaves out what it has no token for; this finds it.
    fn check_complete(&self, text: &str, tokens: &[u32]) -> Result<(), ModelError> {
        let mut bytes = Vec::with_capacity(text.len());
        for token in tokens {
            bytes.extend(self.token_bytes(*token)?);
        }
        match text
            .bytes()
            .enumerate()
            .find(|(offset, byte)| bytes.get(*offset) != Some(byte))
        {
            Some((offset, byte)) => Err(ModelError::NoTokenForByte { byte, offset }),
            None => Ok(()),
        }
    }

    /// The text of `tokens`, control tokens included as they are written. What is not UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// [`ModelError::TokenRange`].
    pub fn decode(&self, tokens: &[u32]) -> Result<String, ModelError> {
        let mut bytes = Vec::new();
        for token in tokens {
            bytes.extend(self.token_bytes(*token)?);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A stream that turns tokens into text as they come; see [`TextStream::push`].
    pub fn stream(&self) -> TextStream<'_> {
        TextStream::new(self)
    }

    /// The bytes `token` stands for, maybe a part of a character.
    ///
    /// # Errors
    /// [`ModelError::TokenRange`].
    pub fn token_bytes(&self, token: u32) -> Result<&[u8], ModelError> {
        Ok(self.vocabulary.get(token)?.0)
    }

    /// Whether `token` steers the model (end of text, start of a turn) rather than being text.
    ///
    /// # Errors
    /// [`ModelError::TokenRange`].
    pub fn is_control(&self, token: u32) -> Result<bool, ModelError> {
        Ok(self.vocabulary.get(token)?.1)
    }
}

impl Vocabulary {
    fn push(&mut self, token: &str, ty: i32, alphabet: &Alphabet) {
        if matches!(ty, CONTROL | USER_DEFINED) {
            self.bytes.extend(token.as_bytes());
        } else {
            alphabet.decode(token, &mut self.bytes);
        }
        self.ends.push((self.bytes.len(), ty == CONTROL));
    }

    fn get(&self, token: u32) -> Result<(&[u8], bool), ModelError> {
        let i = token as usize;
        let vocabulary = self.ends.len();
        let &(end, control) = self.ends.get(i).ok_or(ModelError::TokenRange { token, vocabulary })?;
        let start = if i == 0 { 0 } else { self.ends[i - 1].0 };
        Ok((&self.bytes[start..end], control))
    }
}

/// The type of each token; a file without types has normal tokens only.
fn types(gguf: &Gguf, n_tokens: usize) -> Result<Vec<i32>, ModelError> {
    const NORMAL: i32 = 1;
    let Some(types) = gguf.find::<Vec<i32>>(TYPES_KEY)? else {
        return Ok(vec![NORMAL; n_tokens]);
    };
    if types.len() != n_tokens {
        let allowed = format!("{n_tokens}, one per token");
        return Err(bad_value(
            gguf.path(),
            TYPES_KEY,
            format!("an array of {}", types.len()),
            &allowed,
        ));
    }
    Ok(types)
}

/// Splits "left right". The first letter may itself be a space, so the search starts behind it.
fn merges(merges: Vec<&str>, path: &Path) -> Result<Vec<(String, String)>, ModelError> {
    let split = |merge: &str| {
        let first = merge.chars().next()?.len_utf8();
        let at = first + merge.get(first..)?.find(' ')?;
        Some((merge[..at].to_owned(), merge[at + 1..].to_owned()))
    };
    let entries = merges.into_iter().enumerate();
    entries
        .map(|(i, merge)| {
            split(merge).ok_or_else(|| {
                bad_value(
                    path,
                    MERGES_KEY,
                    format!("{merge:?} at index {i}"),
                    "two tokens with a space between",
                )
            })
        })
        .collect()
}

fn special_token(gguf: &Gguf, key: &str, n_tokens: usize) -> Result<Option<u32>, ModelError> {
    match gguf.find::<u32>(key)? {
        Some(id) if id as usize >= n_tokens => Err(bad_value(
            gguf.path(),
            key,
            id.to_string(),
            &format!("less than {n_tokens}, the number of tokens"),
        )),
        id => Ok(id),
    }
}

fn check_white_space(text: &str) -> Result<(), ModelError> {
    let (mut start, mut run) = (0, 0);
    for (offset, character) in text.char_indices() {
        if !character.is_whitespace() {
            run = 0;
            continue;
        }
        if run == 0 {
            start = offset;
        }
        run += 1;
        if run > WHITE_SPACE_RUN_LIMIT {
            let run = text[start..].chars().take_while(|c| c.is_whitespace()).count();
            return Err(ModelError::WhiteSpaceRun {
                offset: start,
                run,
                limit: WHITE_SPACE_RUN_LIMIT,
            });
        }
    }
    Ok(())
}

fn bad_value(path: &Path, key: &str, value: String, allowed: &str) -> ModelError {
    ModelError::BadValue {
        path: path.into(),
        key: key.into(),
        value,
        allowed: allowed.into(),
    }
}
