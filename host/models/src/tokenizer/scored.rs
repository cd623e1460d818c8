//! BPE in the manner of SentencePiece: of all neighbours that make a token, those whose token has the best score are
//! merged first, the leftmost of equals.
//!
//! Spaces are written as U+2581. Special tokens are found first, and text is never merged across them. A character that
//! no token holds is spelt in tokens for single bytes.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::description::{BYTE, CONTROL, Description, USER_DEFINED};
use crate::ModelError;

/// How tokens write a space.
const SPACE: char = '\u{2581}';

/// Vocabulary and scores.
#[derive(Debug)]
pub(super) struct Scored {
    tokens: HashMap<Box<str>, u32>,
    scores: Vec<f32>,
    bytes: [Option<u32>; 256],
    specials: Specials,
    space_prefix: bool,
}

/// The text that a token stands for.
pub(super) fn text_of(token: &str) -> String {
    token.replace(SPACE, " ")
}

/// The byte of a token that is written as `<0x0A>`.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok()
}

impl Scored {
    pub(super) fn new(description: &Description<'_>, scores: &[f32], space_prefix: bool) -> Self {
        let typed = || (0..).zip(description.tokens.iter().zip(&description.types));
        let mut bytes = [None; 256];
        for (id, (token, _)) in typed().filter(|(_, (_, ty))| **ty == BYTE) {
            if let Some(byte) = byte_of(token) {
                bytes[usize::from(byte)] = Some(id);
            }
        }
        let specials = typed().filter(|(_, (_, ty))| matches!(**ty, CONTROL | USER_DEFINED));
        Self {
            tokens: typed().map(|(id, (token, _))| (Box::from(*token), id)).collect(),
            scores: scores.to_vec(),
            bytes,
            specials: Specials::new(specials.map(|(id, (token, _))| (*token, id))),
            space_prefix,
        }
    }

    /// The tokens of `text`.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        let mut tokens = Vec::new();
        let (mut from, mut at) = (0, 0);
        while at < text.len() {
            match self.specials.at(&text[at..]) {
                Some((id, n_bytes)) => {
                    self.encode_plain(&text[from..at], from, &mut tokens)?;
                    tokens.push(id);
                    at += n_bytes;
                    from = at;
                }
                None => at += text[at..].chars().next().map_or(1, char::len_utf8),
            }
        }
        self.encode_plain(&text[from..], from, &mut tokens)?;
        Ok(tokens)
    }

    /// Text between special tokens, which starts `offset` bytes into the whole.
    fn encode_plain(&self, text: &str, offset: usize, tokens: &mut Vec<u32>) -> Result<(), ModelError> {
        if text.is_empty() {
            return Ok(());
        }
        let prefix = if self.space_prefix { " " } else { "" };
        let text = [prefix, text].concat().replace(' ', SPACE.encode_utf8(&mut [0; 4]));
        for piece in self.merged(&text) {
            match self.tokens.get(piece) {
                Some(&id) => tokens.push(id),
                None => {
                    for byte in piece.bytes() {
                        let id = self.bytes[usize::from(byte)];
                        tokens.push(id.ok_or(ModelError::NoTokenForByte { byte, offset })?);
                    }
                }
            }
        }
        Ok(())
    }

    /// The pieces of `text` that are left when nothing more can be merged.
    fn merged<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let starts = text.char_indices().map(|(start, _)| start);
        let mut pieces = Pieces::new(starts, text.len());
        let mut heap: BinaryHeap<Merge> = (0..pieces.0.len())
            .filter_map(|left| self.merge(text, &pieces, left))
            .collect();
        while let Some(merge) = heap.pop() {
            let Some(previous) = pieces.apply(&merge) else { continue };
            heap.extend(self.merge(text, &pieces, merge.left));
            heap.extend(previous.and_then(|previous| self.merge(text, &pieces, previous)));
        }
        pieces
            .0
            .iter()
            .filter(|piece| piece.end > piece.start)
            .map(|piece| &text[piece.start..piece.end])
            .collect()
    }

    /// What piece `left` and the next one make.
    fn merge(&self, text: &str, pieces: &Pieces, left: usize) -> Option<Merge> {
        let piece = pieces.0.get(left)?;
        let next = pieces.0.get(piece.next)?;
        let &id = self.tokens.get(&text[piece.start..next.end])?;
        Some(Merge {
            score: *self.scores.get(id as usize)?,
            left,
            end: next.end,
            len: next.end - piece.start,
        })
    }
}

/// Pieces of a text, linked in order; a piece that was merged into the one before is empty.
struct Pieces(Vec<Piece>);

struct Piece {
    start: usize,
    end: usize,
    previous: Option<usize>,
    /// Beyond the last one for the last.
    next: usize,
}

/// Two neighbours that make a token.
struct Merge {
    score: f32,
    left: usize,
    /// Where the token would end, and its length: a merge of pieces that have changed since is stale.
    end: usize,
    len: usize,
}

impl Pieces {
    fn new(starts: impl Iterator<Item = usize> + Clone, n_bytes: usize) -> Self {
        let ends = starts.clone().skip(1).chain([n_bytes]);
        let piece = |(idx, (start, end)): (usize, (usize, usize))| Piece {
            start,
            end,
            previous: idx.checked_sub(1),
            next: idx + 1,
        };
        Self(starts.zip(ends).enumerate().map(piece).collect())
    }

    /// Merges, unless a piece has changed since; gives the piece before.
    fn apply(&mut self, merge: &Merge) -> Option<Option<usize>> {
        let left = &self.0[merge.left];
        let next = left.next;
        let right = self.0.get(next)?;
        let fresh = left.end > left.start && right.end == merge.end && right.end - left.start == merge.len;
        if !fresh {
            return None;
        }
        let after = right.next;
        self.0[next].start = merge.end;
        let left = &mut self.0[merge.left];
        (left.end, left.next) = (merge.end, after);
        let previous = left.previous;
        if let Some(after) = self.0.get_mut(after) {
            after.previous = Some(merge.left);
        }
        Some(previous)
    }
}

impl Ord for Merge {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Merge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Merge {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Merge {}

/// Special tokens, found at the beginning of a text.
#[derive(Debug)]
struct Specials {
    tokens: HashMap<Box<str>, u32>,
    /// Their lengths by first byte, the longest first.
    lengths: Vec<Vec<usize>>,
}

impl Specials {
    fn new<'t>(tokens: impl Iterator<Item = (&'t str, u32)>) -> Self {
        let mut lengths = vec![Vec::new(); 256];
        let tokens: HashMap<Box<str>, u32> = tokens
            .filter(|(token, _)| !token.is_empty())
            .map(|(token, id)| (token.into(), id))
            .collect();
        for token in tokens.keys() {
            lengths[usize::from(token.as_bytes()[0])].push(token.len());
        }
        for lengths in &mut lengths {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            lengths.dedup();
        }
        Self { tokens, lengths }
    }

    /// The longest special token that `text` begins with, and its bytes.
    fn at(&self, text: &str) -> Option<(u32, usize)> {
        let first = *text.as_bytes().first()?;
        let token = |&n_bytes: &usize| Some((*self.tokens.get(text.get(..n_bytes)?)?, n_bytes));
        self.lengths[usize::from(first)].iter().find_map(token)
    }
}
