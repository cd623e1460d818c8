//! What drives the matrix unit in attention: scores before the softmax, weighted values after it.
//!
//! Precision: see [`step`](super::attention_step).

use super::attention::{BLOCK_TILES, Blocks, Item, TERMS};
use super::model::Model;
use super::{MatrixUnit, TILE_ELEMS, UnitKind};
use crate::hvx::{Isa, Kernel, Part};

/// Drives the unit for the products of queries and keys; one thread alone.
pub(super) struct Score<'a>(pub(super) &'a Item<'a>, pub(super) &'a Blocks);

impl Kernel for Score<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, _part: Part) {
        match self.0.unit {
            UnitKind::Model => self.drive(&mut Model::<I>::new()),
            #[cfg(target_arch = "hexagon")]
            UnitKind::Device => self.drive(&mut super::words::Device),
        }
    }
}

impl Score<'_> {
    #[inline(always)]
    fn drive<U: MatrixUnit>(&self, unit: &mut U) {
        let Self(item, blocks) = self;
        let space = &item.space;
        for (place, &block) in blocks.numbers().iter().enumerate() {
            for row_tile in (0..item.row_tiles()).filter(|&row_tile| item.sees(row_tile, block)) {
                for positions in 0..BLOCK_TILES {
                    let [score, rest] = [0, 1].map(|term| space.score_tile(row_tile, place, term, positions));
                    self.multiply(unit, row_tile, place, positions);
                    unit.set_scale(space.scales);
                    unit.store(score);
                    self.multiply(unit, row_tile, place, positions);
                    unit.multiply(score, space.negative_identity);
                    unit.set_scale(space.scales);
                    unit.store(rest);
                }
            }
        }
    }

    /// The products of 32 queries with 32 keys, in the accumulator.
    #[inline(always)]
    fn multiply<U: MatrixUnit>(&self, unit: &mut U, row_tile: usize, place: usize, positions: usize) {
        let space = &self.0.space;
        let elems = space.key_tiles * TILE_ELEMS;
        unit.clear();
        for term in 0..TERMS {
            let queries = space.queries.part((row_tile * TERMS + term) * elems, elems);
            unit.multiply(
                queries,
                space.keys.part((place * BLOCK_TILES + positions) * elems, elems),
            );
        }
    }
}

/// Drives the unit for the products of weights and values; one thread alone.
pub(super) struct WeighValues<'a>(pub(super) &'a Item<'a>, pub(super) &'a Blocks);

impl Kernel for WeighValues<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, _part: Part) {
        match self.0.unit {
            UnitKind::Model => self.drive(&mut Model::<I>::new()),
            #[cfg(target_arch = "hexagon")]
            UnitKind::Device => self.drive(&mut super::words::Device),
        }
    }
}

impl WeighValues<'_> {
    #[inline(always)]
    fn drive<U: MatrixUnit>(&self, unit: &mut U) {
        let Self(item, blocks) = self;
        let space = &item.space;
        let elems = BLOCK_TILES * TILE_ELEMS;
        for (place, &block) in blocks.numbers().iter().enumerate() {
            for row_tile in (0..item.row_tiles()).filter(|&row_tile| item.sees(row_tile, block)) {
                for along in 0..space.value_tiles {
                    let values = space.values.part((place * space.value_tiles + along) * elems, elems);
                    unit.clear();
                    for term in 0..TERMS {
                        // Both tiles of positions of a term lie side by side.
                        let weights = (row_tile * space.blocks + place) * TERMS + term;
                        unit.multiply(space.scores.part(weights * elems, elems), values);
                    }
                    unit.set_scale(space.scales);
                    unit.store(space.product_tile(row_tile, place, along));
                }
            }
        }
    }
}
