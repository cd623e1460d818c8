//! Which positions each token of a batch sees: all up to its own, in local layers the last few of them.
//!
//! A mask is F16 `[n_ctx, T]`: 0 where a token looks, minus infinity elsewhere. Between runs only what differs is
//! written, two words for a token that follows the last one.

use std::ops::Range;

use hexloom::{DType, Graph, GraphError, MapError, PreparedGraph, TensorId};

use super::LlamaConfig;

/// f16 bits of 0 and of minus infinity.
const VISIBLE: u16 = 0;
const HIDDEN: u16 = 0xfc00;

/// The masks of one graph.
pub(super) struct Masks {
    n_ctx: u32,
    n_tokens: u32,
    full: Mask,
    /// Absent where every context fits the window.
    local: Option<Mask>,
}

struct Mask {
    tensor: TensorId,
    /// What the graph sees of it: the first `n_kv` columns.
    view: TensorId,
    /// Positions that a token sees at most.
    window: u32,
}

impl Masks {
    /// Inputs for batches of `n_tokens` that see `n_kv` of `n_ctx` positions.
    pub(super) fn new(
        g: &mut Graph,
        config: &LlamaConfig,
        n_ctx: u32,
        n_kv: u32,
        n_tokens: u32,
    ) -> Result<Self, GraphError> {
        let mut mask = |name: &str, window: u32| -> Result<Mask, GraphError> {
            let tensor = g.input(name, DType::F16, [n_ctx, n_tokens, 1, 1])?;
            let nb = g.shape(tensor).nb;
            let view = g.view(&format!("{name} view"), tensor, [n_kv, n_tokens, 1, 1], nb, 0)?;
            g.patchable(view);
            Ok(Mask { tensor, view, window })
        };
        let local = config.local.as_ref().map(|local| local.window);
        Ok(Self {
            n_ctx,
            n_tokens,
            full: mask("mask", u32::MAX)?,
            local: local
                .filter(|&window| window < n_ctx)
                .map(|window| mask("local mask", window))
                .transpose()?,
        })
    }

    /// What attention of a layer reads.
    pub(super) fn view_for(&self, local: bool) -> TensorId {
        match &self.local {
            Some(mask) if local => mask.view,
            _ => self.full.view,
        }
    }

    /// The views whose first dimension is `n_kv`.
    pub(super) fn views(&self) -> impl Iterator<Item = TensorId> {
        self.all().map(|mask| mask.view)
    }

    /// Before the first run: nothing is seen.
    pub(super) fn hide_all(&self, prepared: &PreparedGraph) -> Result<(), MapError> {
        let hidden = HIDDEN
            .to_le_bytes()
            .repeat(self.n_ctx as usize * self.n_tokens as usize);
        self.all().try_for_each(|mask| prepared.write(mask.tensor, 0, &hidden))
    }

    /// Lets tokens at `n_past..` see what they may; the last run's began at `last`.
    pub(super) fn show(&self, prepared: &PreparedGraph, last: Option<u32>, n_past: u32) -> Result<(), MapError> {
        for mask in self.all() {
            for row in 0..self.n_tokens {
                let was = last.map_or(0..0, |last| mask.seen(last + row));
                for (columns, bits) in changes(was, mask.seen(n_past + row)) {
                    let at = (u64::from(row) * u64::from(self.n_ctx) + u64::from(columns.start)) * 2;
                    let bytes = bits.to_le_bytes();
                    match columns.len() {
                        1 => prepared.write(mask.tensor, at, &bytes)?,
                        n => prepared.write(mask.tensor, at, &bytes.repeat(n))?,
                    }
                }
            }
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &Mask> {
        std::iter::once(&self.full).chain(&self.local)
    }
}

impl Mask {
    /// What a token at `position` sees.
    fn seen(&self, position: u32) -> Range<u32> {
        (position + 1).saturating_sub(self.window)..position + 1
    }
}

/// The columns to write so that a row that shows `was` shows `now`.
fn changes(was: Range<u32>, now: Range<u32>) -> impl Iterator<Item = (Range<u32>, u16)> {
    let without = |from: &Range<u32>, other: &Range<u32>| {
        let before = from.start..from.end.min(other.start);
        let after = from.start.max(other.end)..from.end;
        // Of ranges that do not touch one part is the whole.
        if other.is_empty() || before == *from || after == *from {
            [from.clone(), 0..0]
        } else {
            [before, after]
        }
    };
    let hidden = without(&was, &now).map(|columns| (columns, HIDDEN));
    let shown = without(&now, &was).map(|columns| (columns, VISIBLE));
    hidden
        .into_iter()
        .chain(shown)
        .filter(|(columns, _)| !columns.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_show_what_they_should_after_any_other_row() {
        for (a, b) in [(0, 0), (0, 3), (2, 7), (0, 12), (5, 6)] {
            for (c, d) in [(0, 1), (0, 3), (1, 4), (3, 7), (6, 12), (0, 12)] {
                let mut row: Vec<u16> = (0..12)
                    .map(|at| if (a..b).contains(&at) { VISIBLE } else { HIDDEN })
                    .collect();
                for (columns, bits) in changes(a..b, c..d) {
                    row[columns.start as usize..columns.end as usize].fill(bits);
                }
                let seen: Vec<u32> = (0..12).filter(|&at| row[at as usize] == VISIBLE).collect();
                assert_eq!(seen, (c..d).collect::<Vec<_>>(), "{a}..{b} to {c}..{d}");
            }
        }
    }

    #[test]
    fn the_next_token_costs_a_word_or_two() {
        let all: Vec<_> = changes(0..7, 0..8).collect();
        assert_eq!(all, [(7..8, VISIBLE)]);
        let window: Vec<_> = changes(3..7, 4..8).collect();
        assert_eq!(window, [(3..4, HIDDEN), (7..8, VISIBLE)]);
    }
}
