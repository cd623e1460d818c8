//! How a model is spread over sessions: by layers, or every layer's matrices by segments.
//!
//! A forward pass is cut into [`Part`]s, one graph each. By layers a part has some layers, and hands the residual stream
//! to the next through shared memory. By segments a part has all layers but only some *ranks*: each rank computes some
//! heads and some of the feed-forward's width, and the ranks' results are summed twice a layer, in rank order.

use std::ops::Range;

use hexloom::Session;

use super::LlamaConfig;
use crate::ModelError;

/// Sessions, and what each of them computes.
#[derive(Clone, Debug)]
pub struct Split {
    sessions: Vec<Session>,
    n_ranks: usize,
    beside: u64,
}

/// What one graph of a forward pass computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Index of the session that runs it.
    pub(super) session: usize,
    pub(super) layers: Range<u32>,
    pub(super) ranks: Range<usize>,
}

/// The share of one rank: which heads, and which columns of the feed-forward layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) kv_heads: Range<u32>,
    pub(super) ff: Range<u32>,
}

impl Split {
    /// Everything in one session.
    pub fn single(session: &Session) -> Self {
        Self::layers(std::slice::from_ref(session))
    }

    /// Layers in runs of about the same length, one run in each session.
    ///
    /// # Panics
    /// Without a session.
    pub fn layers(sessions: &[Session]) -> Self {
        assert!(!sessions.is_empty(), "a model needs a session");
        Self {
            sessions: sessions.to_vec(),
            n_ranks: 1,
            beside: 0,
        }
    }

    /// Each session computes its segment of every layer; the segments' results are summed in the sessions' order.
    ///
    /// # Panics
    /// Without a session.
    pub fn segments(sessions: &[Session]) -> Self {
        Self {
            n_ranks: sessions.len(),
            ..Self::layers(sessions)
        }
    }

    /// The same sums in one session, segment after segment: what [`Split::segments`] must agree with bit for bit.
    pub fn segments_in_one(session: &Session, n_segments: usize) -> Self {
        Self {
            n_ranks: n_segments.max(1),
            ..Self::single(session)
        }
    }

    /// One session that is not there: what a plan needs.
    pub(super) fn nowhere() -> Self {
        Self {
            sessions: Vec::new(),
            n_ranks: 1,
            beside: 0,
        }
    }

    /// Leaves `bytes` of each window to caches and graphs: where the weights do not fit beside them, they are packed so
    /// that they can take turns.
    pub fn leaving(mut self, bytes: u64) -> Self {
        self.beside = bytes;
        self
    }

    pub(super) fn beside(&self) -> u64 {
        self.beside
    }

    /// The sessions.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    pub(super) fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// Whether the ranks' sums are taken between sessions.
    pub(super) fn reduces(&self) -> bool {
        self.n_ranks > 1 && self.sessions.len() > 1
    }

    /// The graphs of a forward pass, in order.
    pub(super) fn parts(&self, n_layers: u32) -> Vec<Part> {
        let n = self.sessions.len().max(1);
        let part = |session: usize| match self.n_ranks {
            1 => Part {
                session,
                layers: slice(n_layers, session, n),
                ranks: 0..1,
            },
            n_ranks => Part {
                session,
                layers: 0..n_layers,
                ranks: if n == 1 { 0..n_ranks } else { session..session + 1 },
            },
        };
        (0..n).map(part).collect()
    }

    /// The session that holds a layer's tensors of a rank.
    pub(super) fn session_of(&self, n_layers: u32, layer: u32, rank: usize) -> usize {
        let parts = self.parts(n_layers);
        let holds = |part: &&Part| part.layers.contains(&layer) && part.ranks.contains(&rank);
        parts.iter().find(holds).map_or(0, |part| part.session)
    }

    /// The share of `rank`.
    pub(super) fn share(&self, config: &LlamaConfig, rank: usize) -> Share {
        let units = slice(config.n_ff / UNIT, rank, self.n_ranks);
        Share {
            kv_heads: slice(config.n_kv_heads, rank, self.n_ranks),
            ff: units.start * UNIT..units.end * UNIT,
        }
    }

    /// Refuses a model that has too few heads, layers or columns to go round.
    pub(super) fn check(&self, config: &LlamaConfig) -> Result<(), ModelError> {
        let refuse = |what: String| Err(ModelError::Split { what });
        let n = self.sessions.len();
        let LlamaConfig {
            n_layers,
            n_kv_heads,
            n_ff,
            head_size,
            ..
        } = *config;
        if self.n_ranks == 1 && n > n_layers as usize {
            return refuse(format!("{n_layers} layers cannot be spread over {n} sessions"));
        }
        let n_ranks = self.n_ranks;
        if n_ranks > 1 {
            if n_ranks > n_kv_heads as usize || n_ranks > (n_ff / UNIT) as usize {
                return refuse(format!(
                    "{n_kv_heads} key and value heads and a feed-forward width of {n_ff} cannot be cut into {n_ranks} segments"
                ));
            }
            if !n_ff.is_multiple_of(UNIT) || !head_size.is_multiple_of(UNIT) {
                return refuse(format!(
                    "heads of {head_size} and a feed-forward width of {n_ff} cannot be cut: both must be multiples of {UNIT}"
                ));
            }
        }
        Ok(())
    }
}

/// Columns of a weight tile: matrices are cut between tiles.
const UNIT: u32 = 32;

/// Piece `idx` of `n` pieces of `0..total`, as even as can be.
fn slice(total: u32, idx: usize, n: usize) -> Range<u32> {
    let at = |idx: usize| (u64::from(total) * idx as u64 / n as u64) as u32;
    at(idx)..at(idx + 1)
}

#[cfg(test)]
mod tests {
    use super::slice;

    #[test]
    fn slices_cover_everything_once() {
        for (total, n) in [(30, 4), (3, 2), (48, 5), (2, 2), (1, 1)] {
            let slices: Vec<_> = (0..n).map(|idx| slice(total, idx, n)).collect();
            assert_eq!(slices[0].start, 0);
            assert_eq!(slices[n - 1].end, total);
            assert!(slices.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(slices.iter().all(|slice| !slice.is_empty()));
        }
    }
}
