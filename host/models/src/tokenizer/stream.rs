//! Text as it is generated.
//!
//! A character can be spread over tokens. What is printed must be whole characters, so the beginning of one waits
//! here until the rest comes.

use super::Tokenizer;
use crate::ModelError;

/// Turns tokens into text, one at a time; made by [`Tokenizer::stream`].
#[derive(Clone, Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The beginning of a character, three bytes at most.
    pending: Vec<u8>,
    text: String,
}

impl<'a> TextStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self {
            tokenizer,
            pending: Vec::new(),
            text: String::new(),
        }
    }

    /// The text that `token` completes, maybe none. Control tokens have no text; bytes that cannot be part of a
    /// character become U+FFFD.
    ///
    /// # Errors
    /// [`ModelError::TokenRange`]; the stream goes on unchanged.
    pub fn push(&mut self, token: u32) -> Result<&str, ModelError> {
        let bytes = self.tokenizer.token_bytes(token)?;
        self.text.clear();
        if !self.tokenizer.is_control(token)? {
            self.pending.extend(bytes);
            self.take_characters();
        }
        Ok(&self.text)
    }

    /// The end of the stream: U+FFFD if it ends inside a character, otherwise nothing.
    pub fn finish(mut self) -> String {
        self.text.clear();
        if !self.pending.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        self.text
    }

    /// Moves whole and broken characters from `pending` to `text`; the beginning of one stays.
    fn take_characters(&mut self) {
        let mut rest: &[u8] = &self.pending;
        let mut keep = 0;
        for chunk in self.pending.utf8_chunks() {
            self.text.push_str(chunk.valid());
            rest = &rest[chunk.valid().len()..];
            let at_end = rest.len() == chunk.invalid().len();
            if at_end && is_beginning(rest) {
                keep = rest.len();
            } else if !chunk.invalid().is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
            rest = &rest[chunk.invalid().len()..];
        }
        self.pending.drain(..self.pending.len() - keep);
    }
}

/// Whether more bytes could make `bytes` a character.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
