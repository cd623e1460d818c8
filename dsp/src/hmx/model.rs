//! The matrix unit in plain Rust: what the PC and the emulator run in its place.
//!
//! It multiplies exactly, adds in f32 in order of k, scales, and rounds to f16 once, to nearest even with overflow to
//! infinity. A device adds at least as widely; how it treats infinities and NaN is not known, and no op lets it see one.

use super::{MatrixUnit, RUN_TILES, SCALE_HALVES, TILE, TILE_BYTES, TILE_ELEMS};
use crate::hvx::plain::{f16_to_f32, f32_to_f16};
use crate::tensor::Span;

/// The accumulator and the scales in use.
pub struct Model {
    sums: [[f32; TILE]; TILE],
    scales: [f32; TILE],
}

impl Model {
    /// A unit with an empty accumulator and scales of 1.
    pub const fn new() -> Self {
        Self {
            sums: [[0.0; TILE]; TILE],
            scales: [1.0; TILE],
        }
    }

    /// Adds the product of one pair of tiles.
    #[inline(always)]
    fn multiply_tile(&mut self, act: Span<'_, u16>, weight: Span<'_, u16>) {
        let mut weights = [[0.0; TILE]; TILE];
        for (pair, rows) in weights.chunks_exact_mut(2).enumerate() {
            for column in 0..TILE {
                for (odd, row) in rows.iter_mut().enumerate() {
                    row[column] = f16_to_f32(weight.get(64 * pair + 2 * column + odd));
                }
            }
        }
        for (row, sums) in self.sums.iter_mut().enumerate() {
            for (k, weights) in weights.iter().enumerate() {
                let act = f16_to_f32(act.get(half_index(row, k)));
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum += act * weight;
                }
            }
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl MatrixUnit for Model {
    #[inline(always)]
    fn clear(&mut self) {
        self.sums = [[0.0; TILE]; TILE];
    }

    #[inline(always)]
    fn multiply(&mut self, act: Span<'_, u16>, weight: Span<'_, u16>) {
        let tiles = check_tiles(act);
        debug_assert!((1..=RUN_TILES).contains(&tiles) && check_tiles(weight) == tiles);
        for tile in 0..tiles {
            let [act, weight] = [act, weight].map(|span| span.part(tile * TILE_ELEMS, TILE_ELEMS));
            self.multiply_tile(act, weight);
        }
    }

    #[inline(always)]
    fn set_scale(&mut self, scales: Span<'_, u16>) {
        debug_assert!(scales.len() == SCALE_HALVES && (scales.as_ptr() as usize).is_multiple_of(256));
        for (column, scale) in self.scales.iter_mut().enumerate() {
            debug_assert!(scales.get(column) == scales.get(TILE + column));
            debug_assert!(scales.get(2 * TILE + column) == 0 && scales.get(3 * TILE + column) == 0);
            *scale = f16_to_f32(scales.get(column));
        }
    }

    #[inline(always)]
    fn store(&mut self, to: Span<'_, u16>) {
        debug_assert!(check_tiles(to) == 1);
        for (row, sums) in self.sums.iter().enumerate() {
            for (column, (sum, scale)) in sums.iter().zip(&self.scales).enumerate() {
                to.set(half_index(row, column), f32_to_f16(sum * scale));
            }
        }
    }
}

/// Where a tile holds element (row, column).
#[inline(always)]
fn half_index(row: usize, column: usize) -> usize {
    64 * (row / 2) + 2 * column + (row & 1)
}

/// Tiles of a span that must be whole tiles on their boundary.
#[inline(always)]
fn check_tiles(span: Span<'_, u16>) -> usize {
    debug_assert!((span.as_ptr() as usize).is_multiple_of(TILE_BYTES) && span.len().is_multiple_of(TILE_ELEMS));
    span.len() / TILE_ELEMS
}
