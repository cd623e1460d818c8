//! The bytes that every token stands for, in one piece of memory.

use super::alphabet::Alphabet;
use super::description::{BYTE, CONTROL, Description, Kind, USER_DEFINED};
use super::scored;
use crate::ModelError;

#[derive(Debug)]
pub(super) struct Vocabulary {
    bytes: Vec<u8>,
    /// End of each token's text in `bytes`, and whether it is a control token.
    ends: Vec<(usize, bool)>,
}

impl Vocabulary {
    pub(super) fn new(description: &Description<'_>) -> Self {
        let alphabet = Alphabet::new();
        let mut vocabulary = Self {
            bytes: Vec::new(),
            ends: Vec::new(),
        };
        for (token, ty) in description.tokens.iter().zip(&description.types) {
            // Special tokens are written as they are.
            match &description.kind {
                _ if matches!(*ty, CONTROL | USER_DEFINED) => vocabulary.bytes.extend(token.as_bytes()),
                Kind::Ranks { .. } => alphabet.decode(token, &mut vocabulary.bytes),
                Kind::Scores { .. } => match scored::byte_of(token).filter(|_| *ty == BYTE) {
                    Some(byte) => vocabulary.bytes.push(byte),
                    None => vocabulary.bytes.extend(scored::text_of(token).as_bytes()),
                },
            }
            vocabulary.ends.push((vocabulary.bytes.len(), *ty == CONTROL));
        }
        vocabulary
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of `token`, and whether it is a control token.
    pub(super) fn get(&self, token: u32) -> Result<(&[u8], bool), ModelError> {
        let i = token as usize;
        let vocabulary = self.len();
        let &(end, control) = self.ends.get(i).ok_or(ModelError::TokenRange { token, vocabulary })?;
        let start = if i == 0 { 0 } else { self.ends[i - 1].0 };
        Ok((&self.bytes[start..end], control))
    }
}
