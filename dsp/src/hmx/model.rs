//! The matrix unit in the vector layer: what the PC and the emulator run in its place.
//!
//! It multiplies exactly, adds in f32 in order of k, scales, and rounds to f16 once, to nearest even with overflow to
//! infinity. A device adds at least as widely; how it treats infinities and NaN is not known, and no op lets it see one.

use super::tile::{load_pair, store_pair};
use super::{MatrixUnit, RUN_TILES, SCALE_HALVES, TILE, TILE_BYTES, TILE_ELEMS};
use crate::hvx::plain::f16_to_f32;
use crate::hvx::{Isa, LANES};
use crate::tensor::Span;

/// The accumulator and the scales in use; vectors run along columns.
pub struct Model<I: Isa> {
    sums: [I::F32; TILE],
    scales: I::F32,
}

impl<I: Isa> Model<I> {
    /// A unit with an empty accumulator and scales of 1.
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            sums: [I::splat(0.0); TILE],
            scales: I::splat(1.0),
        }
    }

    /// Adds the product of one pair of tiles.
    // Large, so a function of its own on Hexagon, where instruction set features are the whole image's.
    #[cfg_attr(target_arch = "hexagon", inline(never))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(always))]
    fn multiply_tile(&mut self, act: Span<'_, u16>, weight: Span<'_, u16>) {
        let mut weights = [I::splat(0.0); TILE];
        for pair in 0..TILE / 2 {
            [weights[2 * pair], weights[2 * pair + 1]] = load_pair::<I>(weight, pair);
        }
        for pair in 0..TILE / 2 {
            for (odd, row) in load_pair::<I>(act, pair).into_iter().enumerate() {
                let row = I::to_array(row);
                let mut sum = self.sums[2 * pair + odd];
                for k in 0..TILE {
                    sum = I::add(sum, I::mul(I::splat(row[k]), weights[k]));
                }
                self.sums[2 * pair + odd] = sum;
            }
        }
    }
}

impl<I: Isa> Default for Model<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Isa> MatrixUnit for Model<I> {
    #[inline(always)]
    fn clear(&mut self) {
        self.sums = [I::splat(0.0); TILE];
    }

    #[inline(always)]
    fn multiply(&mut self, act: Span<'_, u16>, weight: Span<'_, u16>) {
        let tiles = check_tiles(act);
        debug_assert!((1..=RUN_TILES).contains(&tiles) && check_tiles(weight) == tiles);
        for tile in 0..tiles {
            let act = act.part(tile * TILE_ELEMS, TILE_ELEMS);
            self.multiply_tile(act, weight.part(tile * TILE_ELEMS, TILE_ELEMS));
        }
    }

    #[inline(always)]
    fn set_scale(&mut self, scales: Span<'_, u16>) {
        debug_assert!(scales.len() == SCALE_HALVES && (scales.as_ptr() as usize).is_multiple_of(256));
        let mut lanes = [0.0; LANES];
        for (column, scale) in lanes.iter_mut().enumerate() {
            debug_assert!(scales.get(column) == scales.get(TILE + column));
            debug_assert!(scales.get(2 * TILE + column) == 0 && scales.get(3 * TILE + column) == 0);
            *scale = f16_to_f32(scales.get(column));
        }
        self.scales = I::from_array(lanes);
    }

    #[inline(always)]
    fn store(&mut self, to: Span<'_, u16>) {
        debug_assert!(check_tiles(to) == 1);
        for pair in 0..TILE / 2 {
            let even = I::mul(self.sums[2 * pair], self.scales);
            store_pair::<I>(to, pair, even, I::mul(self.sums[2 * pair + 1], self.scales));
        }
    }
}

/// Tiles of a span that must be whole tiles on their boundary.
#[inline(always)]
fn check_tiles(span: Span<'_, u16>) -> usize {
    debug_assert!((span.as_ptr() as usize).is_multiple_of(TILE_BYTES) && span.len().is_multiple_of(TILE_ELEMS));
    span.len() / TILE_ELEMS
}
