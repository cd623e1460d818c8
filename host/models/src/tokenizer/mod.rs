//! Text to tokens and back, with the vocabulary that the model file carries.
//!
//! Two kinds. Byte-level BPE in the manner of GPT-2: text is split by the model's pre-tokenizer, each byte of a
//! piece becomes one letter of a printable alphabet, and letters are merged by rank. Merging is left
//! to the `tokenizers` crate. BPE in the manner of SentencePiece, which Gemma and Llama 2 have, merges
//! by the score of the result (`scored`). Which bytes a token stands for is kept here, because a
//! token may end in the middle of a character.

mod alphabet;
mod description;
mod pre;
mod ranked;
mod scored;
mod stream;
mod vocabulary;

use crate::ModelError;
use crate::gguf::Gguf;
use description::{Description, Kind};
use scored::Scored;
use vocabulary::Vocabulary;

pub use stream::TextStream;

/// The longest run of white space that [`Tokenizer::encode`] accepts, in characters.
///
/// The splitting expressions back-track over such a run, and the regex engine gives up at a million
/// steps.
pub const WHITE_SPACE_RUN_LIMIT: usize = 250_000;

/// A model's tokenizer. It owns all it needs; the file can be closed.
#[derive(Debug)]
pub struct Tokenizer {
    finder: Finder,
    vocabulary: Vocabulary,
    add_bos: bool,
    bos: Option<u32>,
    eos: Option<u32>,
    ends: Vec<u32>,
}

/// What finds the tokens of a text.
#[derive(Debug)]
enum Finder {
    Ranked(Box<tokenizers::Tokenizer>),
    Scored(Box<Scored>),
}

impl Tokenizer {
    /// Builds the tokenizer that `gguf` describes.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] for a kind or pre-tokenizer that is not supported, and what a damaged
    /// vocabulary calls for: a missing or ill-typed key, a merge of unknown tokens, a special token
    /// out of range.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ModelError> {
        let description = Description::read(gguf)?;
        let vocabulary = Vocabulary::new(&description);
        let finder = match &description.kind {
            Kind::Ranks { pre, merges } => {
                Finder::Ranked(Box::new(ranked::build(&description, pre, merges, gguf.path())?))
            }
            Kind::Scores { scores, space_prefix } => {
                Finder::Scored(Box::new(Scored::new(&description, scores, *space_prefix)))
            }
        };
        let Description {
            add_bos,
            bos,
            eos,
            ends,
            ..
        } = description;
        Ok(Self {
            finder,
            vocabulary,
            add_bos,
            bos,
            eos,
            ends,
        })
    }

    /// Number of tokens; they are 0 to this, excluded.
    pub fn n_tokens(&self) -> usize {
        self.vocabulary.len()
    }

    /// The token that opens a text, if the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that the file names as the end of a text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether generation ends with `token`: EOS, end of turn, end of message, or a control token
    /// known by name.
    pub fn is_end(&self, token: u32) -> bool {
        self.ends.binary_search(&token).is_ok()
    }

    /// The tokens of `text`, with control tokens such as `<|im_start|>` recognised in it.
    ///
    /// Where the model wants a BOS token it is put first, unless the text starts with one already (a
    /// chat template may have written it).
    ///
    /// # Errors
    /// [`ModelError::NoTokenForByte`] (vocabularies leave out some control characters), and
    /// [`ModelError::WhiteSpaceRun`] beyond [`WHITE_SPACE_RUN_LIMIT`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        check_white_space(text)?;
        let mut tokens = match &self.finder {
            Finder::Ranked(tokenizer) => {
                let encoding = tokenizer
                    .encode_fast(text, false)
                    .map_err(|error| ModelError::Tokenize {
                        detail: error.to_string(),
                    })?;
                self.check_complete(text, encoding.get_ids())?;
                encoding.get_ids().to_vec()
            }
            Finder::Scored(scored) => scored.encode(text)?,
        };
        if let Some(bos) = self.bos.filter(|_| self.add_bos)
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }

    /// The text of `tokens`, control tokens included as they are written. What is not UTF-8 becomes
    /// U+FFFD.
    ///
    /// # Errors
    /// [`ModelError::TokenRange`].
    pub fn decode(&self, tokens: &[u32]) -> Result<String, ModelError> {
        Ok(String::from_utf8_lossy(&self.bytes(tokens)?).into_owned())
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

    fn bytes(&self, tokens: &[u32]) -> Result<Vec<u8>, ModelError> {
        let mut bytes = Vec::new();
        for token in tokens {
            bytes.extend(self.token_bytes(*token)?);
        }
        Ok(bytes)
    }

    /// The library leaves out what it has no token for; this finds it.
    fn check_complete(&self, text: &str, tokens: &[u32]) -> Result<(), ModelError> {
        let bytes = self.bytes(tokens)?;
        match text
            .bytes()
            .enumerate()
            .find(|(offset, byte)| bytes.get(*offset) != Some(byte))
        {
            Some((offset, byte)) => Err(ModelError::NoTokenForByte { byte, offset }),
            None => Ok(()),
        }
    }
}

fn check_white_space(text: &str) -> Result<(), ModelError> {
    let limit = WHITE_SPACE_RUN_LIMIT;
    let mut offset = 0;
    for part in text.split_inclusive(|character: char| !character.is_whitespace()) {
        // A part is a run of white space and, but for the last, the character after it.
        let run = part.chars().filter(|character| character.is_whitespace()).count();
        if run > limit {
            return Err(ModelError::WhiteSpaceRun { offset, run, limit });
        }
        offset += part.len();
    }
    Ok(())
}
