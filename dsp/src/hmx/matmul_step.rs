//! The steps of a product on the matrix unit, each a part of one of two kernels.

use core::sync::atomic::{AtomicUsize, Ordering};

use hexloom_abi::DType;
use hexloom_abi::tile::TileLayout;

use super::matmul::Products;
use super::model::Model;
use super::{MatrixUnit, RUN_TILES, TILE, TILE_ELEMS, UnitKind, tile};
use crate::hvx::{self, Isa, Kernel, LANES, Part};
use crate::kernels::matmul::Product;
use crate::kernels::matmul_split::Unit;
use crate::kernels::quantize::load_halves;
use crate::kernels::rows::Row;
use crate::tensor::Span;

/// Makes tiles of the activation rows at hand.
pub(super) struct Prepare<'a>(pub(super) &'a Products<'a>);

impl Kernel for Prepare<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        for pair in part.range(self.0.row_tiles() * TILE / 2) {
            self.pair::<I>(pair);
        }
    }
}

impl Prepare<'_> {
    /// Rows 2 * `pair` and the next; zeros beyond the last row.
    #[inline(always)]
    fn pair<I: Isa>(&self, pair: usize) {
        let op = self.0;
        let k_tiles = op.form.k_tiles;
        let power = tile::act_power(op.x.ne()[0]);
        let mut rows = [None; 2];
        for (odd, row) in rows.iter_mut().enumerate() {
            let idx = 2 * pair + odd;
            if idx >= op.count {
                continue;
            }
            let cells = Row::new(&op.x, op.x.row_index(op.first + idx));
            let mut max = I::splat_i(0);
            for start in cells.starts() {
                max = tile::larger::<I>(max, cells.load::<I>(start, 0.0));
            }
            let above = tile::power_above(tile::largest::<I>(max));
            let shift = above.map(|above| (power - above).clamp(-126, 126));
            let factor = shift.map_or(f32::NAN, |shift| tile::power_of_two(-shift));
            op.space.row_factors.set(idx, factor);
            *row = shift.map(|shift| (cells, tile::power_of_two(shift)));
        }
        let first = pair / (TILE / 2) * op.form.row_tiles();
        for k in 0..k_tiles {
            let mut values = [I::splat(0.0); 2];
            for (value, row) in values.iter_mut().zip(&rows) {
                if let Some((cells, scale)) = row {
                    *value = I::mul(cells.load::<I>(k * TILE, 0.0), I::splat(*scale));
                }
            }
            let [even, odd] = values;
            let (to, pair) = (tile::tile(op.space.acts, first + k), pair % (TILE / 2));
            if op.form.terms == 1 {
                tile::store_pair::<I>(to, pair, even, odd);
            } else {
                let rest = tile::tile(op.space.acts, first + k_tiles + k);
                tile::store_pair_in_two::<I>(to, rest, pair, even, odd);
            }
        }
    }
}

/// One step through the pieces: the unit works on one while threads fill the next and store the one before.
pub(super) struct Step<'a> {
    op: &'a Products<'a>,
    fill: Option<usize>,
    drive: Option<usize>,
    drain: Option<usize>,
    /// Groups to fill or to drain that a thread has begun.
    begun: AtomicUsize,
}

impl<'a> Step<'a> {
    pub(super) fn new(op: &'a Products<'a>, step: usize, pieces: usize) -> Self {
        let piece = |behind: usize| step.checked_sub(behind).filter(|&piece| piece < pieces);
        Self {
            op,
            fill: piece(0),
            drive: piece(1),
            drain: piece(2),
            begun: AtomicUsize::new(0),
        }
    }
}

impl Kernel for Step<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        if let (0, Some(piece)) = (part.idx, self.drive) {
            match self.op.unit {
                UnitKind::Model => self.op.drive(&mut Model::<I>::new(), piece),
                #[cfg(target_arch = "hexagon")]
                UnitKind::Device => self.op.drive(&mut super::words::Device, piece),
            }
        }
        let groups = |piece: Option<usize>| piece.map_or(0, |piece| self.op.piece(piece).len());
        let (fills, drains) = (groups(self.fill), groups(self.drain));
        loop {
            let idx = self.begun.fetch_add(1, Ordering::Relaxed);
            match (self.fill, self.drain) {
                (Some(piece), _) if idx < fills => self.op.fill::<I>(piece, idx),
                (_, Some(piece)) if idx - fills.min(idx) < drains && idx >= fills => {
                    self.op.drain::<I>(piece, idx - fills);
                }
                _ => return,
            }
        }
    }
}

impl Products<'_> {
    /// Multiplies the activation rows by a piece's groups.
    #[inline(always)]
    fn drive<U: MatrixUnit>(&self, unit: &mut U, piece: usize) {
        let k_tiles = self.form.k_tiles;
        for place in 0..self.piece(piece).len() {
            for row in 0..self.row_tiles() {
                unit.clear();
                for term in 0..self.form.terms {
                    let acts = (row * self.form.terms + term) * k_tiles;
                    for k in (0..k_tiles).step_by(RUN_TILES) {
                        let elems = (k_tiles - k).min(RUN_TILES) * TILE_ELEMS;
                        let act = self.space.acts.part((acts + k) * TILE_ELEMS, elems);
                        let weights = (place * k_tiles + k) * TILE_ELEMS;
                        unit.multiply(act, self.space.weights[piece % 2].part(weights, elems));
                    }
                }
                unit.set_scale(self.space.scales);
                unit.store(tile::tile(self.space.results[piece % 2], place * self.space.rows + row));
            }
        }
    }

    /// Fills the weight tiles of group `place` of a piece.
    #[inline(always)]
    fn fill<I: Isa>(&self, piece: usize, place: usize) {
        let Some((product, unit)) = self.group(self.piece(piece).start + place) else {
            return;
        };
        let per_group = self.form.k_tiles * TILE_ELEMS;
        let to = self.space.weights[piece % 2].part(place * per_group, per_group);
        let factors = self.space.column_factors[piece % 3].part(place * TILE, TILE);
        match TileLayout::new(product.weight.dtype(), product.weight.shape().ne[0]) {
            Some(layout) => {
                let group = product.weight.tile_group(unit.group, unit.matrix);
                tile::fill_quantized::<I>(to, factors, product.weight.dtype(), group, &layout);
            }
            None => fill_halves::<I>(to, factors, product, &unit),
        }
    }

    /// Stores the results of group `place` of a piece.
    #[inline(always)]
    fn drain<I: Isa>(&self, piece: usize, place: usize) {
        let Some((product, unit)) = self.group(self.piece(piece).start + place) else {
            return;
        };
        let factors = self.space.column_factors[piece % 3].part(place * TILE, TILE);
        let columns = hvx::load::<I>(factors, 0);
        let exact = product.weight.dtype() == DType::F16;
        let odd_column = (0..TILE).any(|column| factors.get(column).is_nan());
        for pair in 0..self.count.div_ceil(2) {
            let place = place * self.space.rows + 2 * pair / TILE;
            let results = tile::load_pair::<I>(tile::tile(self.space.results[piece % 2], place), pair % (TILE / 2));
            for (odd, result) in results.into_iter().enumerate().take(self.count - 2 * pair) {
                let row = 2 * pair + odd;
                let factor = self.space.row_factors.get(row);
                let result = if exact && (odd_column || factor.is_nan()) {
                    self.exact::<I>(product, &unit, self.first + row)
                } else {
                    I::mul(I::mul(result, columns), I::splat(factor))
                };
                product.store::<I>(self.first + row, &unit, result);
            }
        }
    }

    /// An activation row by a group of F16 weight rows when one of them has an infinity or a NaN: as the vector kernel
    /// computes it.
    #[inline(always)]
    fn exact<I: Isa>(&self, product: &Product<'_>, unit: &Unit, row: usize) -> I::F32 {
        let act = Row::new(&self.x, self.x.row_index(row));
        let (start, count) = product.group_rows(unit);
        let [i2, i3] = unit.matrix;
        let mut lanes = [0.0; LANES];
        for (lane, result) in lanes.iter_mut().enumerate().take(count) {
            let weight = product.weight.row::<u16>([start + lane, i2, i3]);
            let mut total = I::splat(0.0);
            for k in act.starts() {
                let weight = load_halves::<I>(weight, k, (weight.len() - k).min(LANES));
                total = I::add(total, I::mul(weight, act.load::<I>(k, 0.0)));
            }
            *result = I::sum(total);
        }
        I::from_array(lanes)
    }
}

/// Fills weight tiles from a group of F16 rows, each brought below 1 by a power of two. A row that is not finite becomes
/// zeros with a factor of NaN.
#[inline(always)]
fn fill_halves<I: Isa>(to: Span<'_, u16>, factors: Span<'_, f32>, product: &Product<'_>, unit: &Unit) {
    let (start, count) = product.group_rows(unit);
    let [i2, i3] = unit.matrix;
    let zero = I::splat(0.0);
    let mut inverses = [None; TILE];
    for (lane, inverse) in inverses.iter_mut().enumerate().take(count) {
        let row = product.weight.row::<u16>([start + lane, i2, i3]);
        let mut max = I::splat_i(0);
        for k in (0..row.len()).step_by(LANES) {
            max = tile::larger::<I>(max, load_halves::<I>(row, k, (row.len() - k).min(LANES)));
        }
        let power = tile::power_above(tile::largest::<I>(max));
        factors.set(lane, power.map_or(f32::NAN, tile::power_of_two));
        *inverse = power.map(|power| tile::power_of_two(-power));
    }
    for lane in count..TILE {
        factors.set(lane, 1.0);
    }
    for idx in 0..to.len() / TILE_ELEMS {
        let mut rows = [zero; TILE];
        for (lane, (row, inverse)) in rows.iter_mut().zip(inverses).enumerate() {
            let Some(inverse) = inverse else { continue };
            let weight = product.weight.row::<u16>([start + lane, i2, i3]);
            let k = idx * TILE;
            let halves = load_halves::<I>(weight, k, (weight.len() - k).min(LANES));
            *row = I::mul(halves, I::splat(inverse));
        }
        tile::fill_transposed::<I>(tile::tile(to, idx), &rows);
    }
}
