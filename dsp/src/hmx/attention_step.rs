//! The steps of attention on the matrix unit, each one kernel.
//!
//! Precision: a query is the sum of two f16 terms, and so is a score, whose second term the unit computes by taking the
//! first away from the product again; a weight is two terms too. What is left is the rounding of a block's weighted values
//! to f16. Keys, values and weights are brought under powers of two, so neither small nor large ones lose bits.

use core::sync::atomic::Ordering;

use super::TILE;
use super::attention::{BLOCK_TILES, Blocks, Item, TERMS};
use super::tile::{self, power_above, power_of_two};
use crate::hvx::{self, Isa, Kernel, LANES, Part, math};
use crate::kernels::attention_block::{BLOCK, RowState, cache_lanes, exp, shows};
use crate::kernels::rows::Row;
use crate::tensor::Tensor;

/// Makes tiles of the query rows, empties their states and finds out which blocks they see.
pub(super) struct Begin<'a>(pub(super) &'a Item<'a>);

impl Kernel for Begin<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let item = self.0;
        for pair in part.range(item.row_tiles() * TILE / 2) {
            self.pair::<I>(pair);
        }
        for unit in part.range(item.row_tiles() * item.n_blocks()) {
            let (row_tile, block) = (unit / item.n_blocks(), unit % item.n_blocks());
            let sees = self.sees::<I>(row_tile, block);
            item.space.visible.set(unit, u32::from(sees));
        }
    }
}

impl Begin<'_> {
    #[inline(always)]
    fn pair<I: Isa>(&self, pair: usize) {
        let item = self.0;
        let space = &item.space;
        let mut rows = [None; 2];
        for (odd, slot) in rows.iter_mut().enumerate() {
            let row = 2 * pair + odd;
            space.states[0].set(row, RowState::EMPTY.max);
            space.states[1].set(row, RowState::EMPTY.sum);
            let sums = space.row_sums(row);
            for start in (0..sums.len()).step_by(LANES) {
                hvx::store::<I>(sums, start, I::splat(0.0));
            }
            if row >= item.count {
                continue;
            }
            let place = item.place(row);
            let query = Row::new(&item.op.q, [place.token, place.head, place.seq]);
            let mut max = I::splat_i(0);
            for start in query.starts() {
                max = tile::larger::<I>(max, query.load::<I>(start, 0.0));
            }
            let Some(above) = power_above(tile::largest::<I>(max)) else {
                item.odd.store(true, Ordering::Relaxed);
                continue;
            };
            let shift = (tile::act_power(item.op.q.ne()[0]) - above).clamp(-126, 126);
            space.query_factors.set(row, power_of_two(-shift));
            *slot = Some((query, power_of_two(shift)));
        }
        let first = pair / (TILE / 2) * TERMS * space.key_tiles;
        for k in 0..space.key_tiles {
            let mut values = [I::splat(0.0); 2];
            for (value, row) in values.iter_mut().zip(&rows) {
                if let Some((query, scale)) = row {
                    *value = I::mul(query.load::<I>(k * TILE, 0.0), I::splat(*scale));
                }
            }
            let to = tile::tile(space.queries, first + k);
            let rest = tile::tile(space.queries, first + space.key_tiles + k);
            tile::store_pair_in_two::<I>(to, rest, pair % (TILE / 2), values[0], values[1]);
        }
    }

    #[inline(always)]
    fn sees<I: Isa>(&self, row_tile: usize, block: usize) -> bool {
        let item = self.0;
        let Some(mask) = &item.op.mask else { return true };
        let (start, count) = item.positions(block);
        let mut last = None;
        for row in row_tile * TILE..item.count.min((row_tile + 1) * TILE) {
            let place = item.place(row);
            // Heads of a token mostly share a row of the mask.
            let seen_by = (place.token, place.head % mask.ne()[2]);
            if last == Some(seen_by) {
                continue;
            }
            last = Some(seen_by);
            if item
                .op
                .mask_row(place, start, count)
                .is_none_or(|mask| shows::<I>(mask))
            {
                return true;
            }
        }
        false
    }
}

/// Makes weight tiles of the blocks' keys and values.
pub(super) struct Fill<'a>(pub(super) &'a Item<'a>, pub(super) &'a Blocks);

impl Kernel for Fill<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let Self(item, blocks) = self;
        let n = blocks.numbers().len();
        for unit in part.range(2 * n) {
            let (place, of_values) = (unit % n, unit / n);
            let (start, count) = item.positions(blocks.numbers()[place]);
            let cache = [&item.op.k, &item.op.v][of_values];
            let Some(power) = self.power::<I>(cache, start, count) else {
                item.odd.store(true, Ordering::Relaxed);
                continue;
            };
            let scale = power_of_two(-power);
            if of_values == 0 {
                item.space.block_factors[0].set(place, power_of_two(power));
                self.keys::<I>(place, start, count, scale);
            } else {
                let weights_power = tile::act_power(BLOCK);
                item.space.block_factors[1].set(place, power_of_two(power - weights_power));
                self.values::<I>(place, start, count, scale);
            }
        }
    }
}

impl Fill<'_> {
    /// The power of two above all of a block's elements.
    #[inline(always)]
    fn power<I: Isa>(&self, cache: &Tensor<'_>, start: usize, count: usize) -> Option<i32> {
        let mut max = I::splat_i(0);
        for position in start..start + count {
            for at in (0..cache.ne()[0]).step_by(TILE) {
                max = tile::larger::<I>(max, cache_lanes::<I>(cache, self.0.cache_index(position), at));
            }
        }
        power_above(tile::largest::<I>(max))
    }

    /// Keys become columns.
    #[inline(always)]
    fn keys<I: Isa>(&self, place: usize, start: usize, count: usize, scale: f32) {
        let Self(item, _) = self;
        let tiles = item.space.key_tiles;
        for unit in 0..BLOCK_TILES * tiles {
            let (positions, k) = (unit / tiles, unit % tiles);
            let mut rows = [I::splat(0.0); TILE];
            for (column, row) in rows.iter_mut().enumerate() {
                let position = positions * TILE + column;
                if position < count {
                    let key = cache_lanes::<I>(&item.op.k, item.cache_index(start + position), k * TILE);
                    *row = I::mul(key, I::splat(scale));
                }
            }
            let to = tile::tile(item.space.keys, place * BLOCK_TILES * tiles + unit);
            tile::fill_transposed::<I>(to, &rows);
        }
    }

    /// Values stay rows.
    #[inline(always)]
    fn values<I: Isa>(&self, place: usize, start: usize, count: usize, scale: f32) {
        let Self(item, _) = self;
        let tiles = item.space.value_tiles;
        for pair in 0..BLOCK / 2 {
            for along in 0..tiles {
                let mut rows = [I::splat(0.0); 2];
                for (odd, row) in rows.iter_mut().enumerate() {
                    let position = 2 * pair + odd;
                    if position < count {
                        let value = cache_lanes::<I>(&item.op.v, item.cache_index(start + position), along * TILE);
                        *row = I::mul(value, I::splat(scale));
                    }
                }
                let positions = pair / (TILE / 2);
                let to = tile::tile(item.space.values, (place * tiles + along) * BLOCK_TILES + positions);
                tile::store_pair::<I>(to, pair % (TILE / 2), rows[0], rows[1]);
            }
        }
    }
}

/// Turns scores into weights relative to the largest so far, row by row.
pub(super) struct Weigh<'a>(pub(super) &'a Item<'a>, pub(super) &'a Blocks);

impl Kernel for Weigh<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let Self(item, blocks) = self;
        for pair in part.range(item.row_tiles() * TILE / 2) {
            let slopes = [2 * pair, 2 * pair + 1].map(|row| item.op.slope(item.place(row.min(item.count - 1)).head));
            for (place, &block) in blocks.numbers().iter().enumerate() {
                if item.sees(pair / (TILE / 2), block) {
                    self.pair::<I>(pair, place, block, slopes);
                }
            }
        }
    }
}

impl Weigh<'_> {
    /// Two rows at one block.
    #[expect(
        clippy::needless_range_loop,
        reason = "tiles of positions are rows of one array and places in another"
    )]
    #[inline(always)]
    fn pair<I: Isa>(&self, pair: usize, place: usize, block: usize, slopes: [f32; 2]) {
        let item = self.0;
        let (row_tile, at) = (pair / (TILE / 2), pair % (TILE / 2));
        // By rows, then tiles of positions.
        let mut scores = [[I::splat(0.0); BLOCK_TILES]; 2];
        for positions in 0..BLOCK_TILES {
            let first = tile::load_pair::<I>(item.space.score_tile(row_tile, place, 0, positions), at);
            let rest = tile::load_pair::<I>(item.space.score_tile(row_tile, place, 1, positions), at);
            for odd in 0..2 {
                scores[odd][positions] = I::add(first[odd], rest[odd]);
            }
        }
        for (odd, scores) in scores.iter_mut().enumerate() {
            if 2 * pair + odd < item.count {
                self.row::<I>(2 * pair + odd, place, block, slopes[odd], scores);
            } else {
                *scores = [I::splat(0.0); BLOCK_TILES];
            }
        }
        for positions in 0..BLOCK_TILES {
            let [to, rest] = [0, 1].map(|term| item.space.score_tile(row_tile, place, term, positions));
            tile::store_pair_in_two::<I>(to, rest, at, scores[0][positions], scores[1][positions]);
        }
    }

    /// One row's products become its weights, brought up to the range of a tile; zeros for a row whose scores are not
    /// numbers, whose sum then says so.
    #[inline(always)]
    fn row<I: Isa>(&self, row: usize, place: usize, block: usize, slope: f32, scores: &mut [I::F32; BLOCK_TILES]) {
        let item = self.0;
        let space = &item.space;
        let (start, count) = item.positions(block);
        let mask = item.op.mask_row(item.place(row), start, count);
        let key_factor = I::splat(space.block_factors[0].get(place));
        let query_factor = I::splat(space.query_factors.get(row));
        for (positions, score) in scores.iter_mut().enumerate() {
            let product = I::mul(I::mul(*score, key_factor), query_factor);
            *score = item.op.scored::<I>(product, positions * LANES, count, mask, slope);
        }
        let [low, high] = *scores;
        let mut state = RowState {
            max: space.states[0].get(row),
            sum: space.states[1].get(row),
        };
        let block_max = I::max_lane(I::max(low, high));
        let mut rescale = 1.0;
        if block_max > state.max {
            if state.max > f32::NEG_INFINITY {
                rescale = exp::<I>(state.max - block_max);
                state.sum *= rescale;
            }
            state.max = block_max;
        }
        let max = I::splat(state.finite_max());
        let low = math::exp::<I>(I::sub(low, max));
        let high = math::exp::<I>(I::sub(high, max));
        state.sum += I::sum(I::add(low, high));
        space.states[0].set(row, state.max);
        space.states[1].set(row, state.sum);
        space.rescales.set(place * space.row_tiles * TILE + row, rescale);
        let range = I::splat(power_of_two(tile::act_power(BLOCK)));
        *scores = if state.sum.is_nan() {
            [I::splat(0.0); BLOCK_TILES]
        } else {
            [I::mul(low, range), I::mul(high, range)]
        };
    }
}

/// Adds the blocks' weighted values to the rows' sums.
pub(super) struct Accumulate<'a>(pub(super) &'a Item<'a>, pub(super) &'a Blocks);

impl Kernel for Accumulate<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let Self(item, blocks) = self;
        let space = &item.space;
        for pair in part.range(item.count.div_ceil(2)) {
            let (row_tile, at) = (pair / (TILE / 2), pair % (TILE / 2));
            for (place, &block) in blocks.numbers().iter().enumerate() {
                if !item.sees(row_tile, block) {
                    continue;
                }
                let factor = I::splat(space.block_factors[1].get(place));
                for along in 0..space.value_tiles {
                    let products = tile::load_pair::<I>(space.product_tile(row_tile, place, along), at);
                    for (odd, product) in products.into_iter().enumerate().take(item.count - 2 * pair) {
                        let row = 2 * pair + odd;
                        let rescale = space.rescales.get(place * space.row_tiles * TILE + row);
                        let sums = space.row_sums(row);
                        let before = I::mul(hvx::load::<I>(sums, along * TILE), I::splat(rescale));
                        hvx::store::<I>(sums, along * TILE, I::add(before, I::mul(product, factor)));
                    }
                }
            }
        }
    }
}

/// Stores the rows' results.
pub(super) struct Finish<'a>(pub(super) &'a Item<'a>);

impl Kernel for Finish<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let space = &self.0.space;
        for row in part.range(self.0.count) {
            let state = RowState {
                max: space.states[0].get(row),
                sum: space.states[1].get(row),
            };
            self.0.op.finish::<I>(self.0.place(row), state, space.row_sums(row));
        }
    }
}
