//! The inner loops of attention: one item over a range of the KV cache, 64 positions at a time, online softmax.
//!
//! A block is skipped for a row whose mask hides all of it, and not even read when it is hidden from all rows: a hidden
//! block changes nothing by definition, so skipping cannot show in the bits. Keys and values are widened to f32 in
//! strips of sixteen rows that all query rows use; the strip length does not show in the bits either, because every sum
//! runs over positions in order.

use core::ops::Range;

use hexloom_abi::{DType, scratch};

use super::attention::{Attention, Item, ROWS};
use super::dequantize::Blocks;
use super::quantize::load_halves;
use super::rows::Row;
use crate::hvx::plain::f16_to_f32;
use crate::hvx::{self, Isa, LANES, math};
use crate::tensor::{Span, Tensor};

/// Positions of a block: two vectors of scores.
pub(crate) const BLOCK: usize = scratch::ATTENTION_BLOCK as usize;
/// Positions widened at a time.
const STRIP: usize = scratch::ATTENTION_STRIP as usize;

/// Bytes of a `Q8_0` block.
const BLOCK_BYTES: usize = DType::Q8_0.block_bytes() as usize;

/// What a row knows besides its sums: the largest score and the sum of exponentials below it.
#[derive(Clone, Copy)]
pub(crate) struct RowState {
    pub(crate) max: f32,
    pub(crate) sum: f32,
}

impl RowState {
    /// Before any position was seen.
    pub(crate) const EMPTY: Self = Self {
        max: f32::NEG_INFINITY,
        sum: 0.0,
    };

    /// What scores are taken relative to: the maximum, or 0 while every score was -infinity.
    #[inline(always)]
    pub(crate) fn finite_max(&self) -> f32 {
        if self.max == f32::NEG_INFINITY { 0.0 } else { self.max }
    }
}

/// One item with a thread's working memory.
pub(super) struct Block<'a> {
    op: &'a Attention<'a>,
    item: Item,
    queries: Span<'a, f32>,
    sums: Span<'a, f32>,
    scores: Span<'a, f32>,
    strip: Span<'a, f32>,
    /// Elements of a key and of a value, rounded up to whole vectors.
    padded: [usize; 2],
}

impl<'a> Block<'a> {
    #[inline(always)]
    pub(super) fn new(op: &'a Attention<'a>, item: Item, working: Span<'a, u8>) -> Self {
        let [dk, dv] = [op.k.ne()[0], op.v.ne()[0]].map(|elems| elems.next_multiple_of(LANES));
        let working = working.cast::<f32>();
        let sums = ROWS * dk;
        let scores = sums + ROWS * dv;
        let strip = scores + ROWS * BLOCK;
        Self {
            op,
            item,
            queries: working.part(0, ROWS * dk),
            sums: working.part(sums, ROWS * dv),
            scores: working.part(scores, ROWS * BLOCK),
            strip: working.part(strip, STRIP * dk.max(dv)),
            padded: [dk, dv],
        }
    }

    /// Sums of row `row`.
    #[inline(always)]
    pub(super) fn sums(&self, row: usize) -> Span<'a, f32> {
        self.sums.part(row * self.padded[1], self.padded[1])
    }

    /// Runs over positions `range`; the rows' sums stay in working memory.
    #[inline(always)]
    pub(super) fn run<I: Isa>(&self, range: Range<usize>) -> [RowState; ROWS] {
        self.load_queries::<I>();
        let mut states = [RowState::EMPTY; ROWS];
        let mut slopes = [1.0; ROWS];
        for (row, slope) in slopes.iter_mut().enumerate().take(self.item.count) {
            *slope = self.op.slope(self.item.place(row).head);
        }
        for start in range.clone().step_by(BLOCK) {
            let count = (range.end - start).min(BLOCK);
            let visible = self.visible::<I>(start, count);
            if visible == [false; ROWS] {
                continue;
            }
            self.score::<I>(start, count, visible);
            for (row, state) in states.iter_mut().enumerate() {
                if visible[row] {
                    self.weigh::<I>(row, start, count, slopes[row], state);
                }
            }
            self.add_values::<I>(start, count, visible);
        }
        states
    }

    #[inline(always)]
    fn load_queries<I: Isa>(&self) {
        for row in 0..self.item.count {
            let place = self.item.place(row);
            let query = Row::new(&self.op.q, [place.token, place.head, place.seq]);
            for start in query.starts() {
                hvx::store::<I>(self.query(row), start, query.load::<I>(start, 0.0));
            }
            for start in (0..self.padded[1]).step_by(LANES) {
                hvx::store::<I>(self.sums(row), start, I::splat(0.0));
            }
        }
    }

    #[inline(always)]
    fn query(&self, row: usize) -> Span<'a, f32> {
        self.queries.part(row * self.padded[0], self.padded[0])
    }

    #[inline(always)]
    fn mask_row(&self, row: usize, start: usize, count: usize) -> Option<Row<'a>> {
        self.op.mask_row(self.item.place(row), start, count)
    }

    /// Which rows see any of these positions.
    #[inline(always)]
    fn visible<I: Isa>(&self, start: usize, count: usize) -> [bool; ROWS] {
        let mut visible = [false; ROWS];
        for (row, visible) in visible.iter_mut().enumerate().take(self.item.count) {
            *visible = match self.mask_row(row, start, count) {
                Some(mask) => shows::<I>(mask),
                None => true,
            };
        }
        visible
    }

    /// Products of queries with keys.
    #[inline(always)]
    fn score<I: Isa>(&self, start: usize, count: usize, visible: [bool; ROWS]) {
        let padded = self.padded[0];
        for strip in (0..count).step_by(STRIP) {
            let keys = (count - strip).min(STRIP);
            self.widen::<I>(&self.op.k, start + strip, keys, padded);
            for (row, _) in visible.iter().enumerate().filter(|(_, visible)| **visible) {
                let query = self.query(row);
                for key in 0..keys {
                    let key_row = self.strip.part(key * padded, padded);
                    let mut total = I::splat(0.0);
                    for at in (0..padded).step_by(LANES) {
                        total = I::add(total, I::mul(hvx::load::<I>(query, at), hvx::load::<I>(key_row, at)));
                    }
                    self.scores.set(row * BLOCK + strip + key, I::sum(total));
                }
            }
        }
    }

    /// Turns a row's products into weights relative to the largest score so far, and rescales what came before.
    #[inline(always)]
    fn weigh<I: Isa>(&self, row: usize, start: usize, count: usize, slope: f32, state: &mut RowState) {
        let scores = self.scores.part(row * BLOCK, BLOCK);
        let mask = self.mask_row(row, start, count);
        let low = self.op.scored::<I>(hvx::load::<I>(scores, 0), 0, count, mask, slope);
        let high = hvx::load::<I>(scores, LANES);
        let high = self.op.scored::<I>(high, LANES, count, mask, slope);
        let block_max = I::max_lane(I::max(low, high));
        if block_max > state.max {
            if state.max > f32::NEG_INFINITY {
                let factor = exp::<I>(state.max - block_max);
                state.sum *= factor;
                let sums = self.sums(row);
                for at in (0..sums.len()).step_by(LANES) {
                    hvx::store::<I>(sums, at, I::mul(hvx::load::<I>(sums, at), I::splat(factor)));
                }
            }
            state.max = block_max;
        }
        let max = I::splat(state.finite_max());
        let low = math::exp::<I>(I::sub(low, max));
        let high = math::exp::<I>(I::sub(high, max));
        state.sum += I::sum(I::add(low, high));
        hvx::store::<I>(scores, 0, low);
        hvx::store::<I>(scores, LANES, high);
    }

    /// Adds the weighted values to the rows' sums.
    #[inline(always)]
    fn add_values<I: Isa>(&self, start: usize, count: usize, visible: [bool; ROWS]) {
        let padded = self.padded[1];
        for strip in (0..count).step_by(STRIP) {
            let values = (count - strip).min(STRIP);
            self.widen::<I>(&self.op.v, start + strip, values, padded);
            for (row, _) in visible.iter().enumerate().filter(|(_, visible)| **visible) {
                let weights = self.scores.part(row * BLOCK + strip, values);
                let sums = self.sums(row);
                for at in (0..padded).step_by(LANES) {
                    let mut sum = hvx::load::<I>(sums, at);
                    for value in 0..values {
                        let lanes = hvx::load::<I>(self.strip, value * padded + at);
                        sum = I::add(sum, I::mul(I::splat(weights.get(value)), lanes));
                    }
                    hvx::store::<I>(sums, at, sum);
                }
            }
        }
    }

    /// Widens `count` cache rows from position `start` into the strip, zeros up to `padded` elements each.
    #[inline(always)]
    fn widen<I: Isa>(&self, cache: &Tensor<'_>, start: usize, count: usize, padded: usize) {
        let [head, seq] = self.op.kv_matrix(&self.item);
        for row in 0..count {
            let to = self.strip.part(row * padded, padded);
            let index = [start + row, head, seq];
            match cache.dtype() {
                DType::F16 => widen_halves::<I>(cache.row(index), to),
                DType::Q8_0 => widen_blocks::<I>(cache.row_bytes(index), to),
                _ => widen_any::<I>(&Blocks::new(cache, index), cache.ne()[0], to),
            }
        }
    }
}

#[inline(always)]
fn widen_halves<I: Isa>(row: Span<'_, u16>, to: Span<'_, f32>) {
    let whole = row.len() / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        hvx::store::<I>(to, start, load_halves::<I>(row, start, LANES));
    }
    if whole == row.len() {
        return;
    }
    if whole == 0 {
        hvx::store::<I>(to, 0, load_halves::<I>(row, 0, row.len()));
        return;
    }
    // The last vector overlaps the one before, which costs less than a partial load.
    hvx::store::<I>(to, whole, I::splat(0.0));
    let start = row.len() - LANES;
    hvx::store::<I>(to, start, load_halves::<I>(row, start, LANES));
}

#[inline(always)]
fn widen_blocks<I: Isa>(row: Span<'_, u8>, to: Span<'_, f32>) {
    for block in 0..row.len() / BLOCK_BYTES {
        hvx::store::<I>(to, block * LANES, block_lanes::<I>(row, block));
    }
}

/// Any other type.
#[inline(always)]
fn widen_any<I: Isa>(row: &Blocks<'_>, len: usize, to: Span<'_, f32>) {
    for block in 0..len.div_ceil(LANES) {
        hvx::store::<I>(to, block * LANES, I::from_array(row.get(block)));
    }
}

/// The 32 elements of a `Q8_0` block.
#[inline(always)]
fn block_lanes<I: Isa>(row: Span<'_, u8>, block: usize) -> I::F32 {
    let bytes = row.part(block * BLOCK_BYTES, BLOCK_BYTES);
    let scale = f16_to_f32(u16::from_le_bytes([bytes.get(0), bytes.get(1)]));
    // SAFETY: 32 codes lie behind the scale in the block of 34 bytes.
    let codes = unsafe { I::load_i8(bytes.part(2, LANES).as_ptr().cast()) };
    I::mul(I::to_float(codes), I::splat(scale))
}

/// 32 elements from `start`, a multiple of 32, of row `index` of a cache; zeros beyond the row's end.
#[inline(always)]
pub(crate) fn cache_lanes<I: Isa>(cache: &Tensor<'_>, index: [usize; 3], start: usize) -> I::F32 {
    match cache.dtype() {
        DType::F16 => {
            let row = cache.row::<u16>(index);
            load_halves::<I>(row, start, (row.len() - start).min(LANES))
        }
        DType::Q8_0 => block_lanes::<I>(cache.row_bytes(index), start / LANES),
        _ => I::from_array(Blocks::new(cache, index).get(start / LANES)),
    }
}

/// Whether a mask of up to 64 positions shows any of them.
#[inline(always)]
pub(crate) fn shows<I: Isa>(mask: Row<'_>) -> bool {
    let low = mask.load::<I>(0, f32::NEG_INFINITY);
    let high = mask.load::<I>(LANES, f32::NEG_INFINITY);
    // Not equal rather than greater: a NaN in the mask must reach the result.
    let hidden = I::splat(f32::NEG_INFINITY);
    let hidden = I::and(I::eq(low, hidden), I::eq(high, hidden));
    I::sum(I::select(hidden, I::splat(0.0), I::splat(1.0))) > 0.0
}

/// e^x of one number.
#[inline(always)]
pub(crate) fn exp<I: Isa>(x: f32) -> f32 {
    I::to_array(math::exp::<I>(I::splat(x)))[0]
}
