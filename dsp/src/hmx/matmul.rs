//! MUL_MAT, MUL_MAT_ADD and MUL_MAT_NX on the matrix unit: many activation rows by 4-bit, 8-bit and F16 weights.
//!
//! As many activation rows as scratch holds become f16 tiles, each row under a power of two of its own; then groups of 32
//! weight rows follow, a few at a time: while one thread drives the unit over one piece of them, the others fill the tiles
//! of the next and store the results of the one before. So each weight is dequantised once per piece of activation rows.
//!
//! F16 weights meet f32 activations as the sum of two f16 terms, because their limit of error leaves no room for a rounded
//! activation. F32 weights, few rows, very long rows and rows of which scratch holds too few stay with vector kernels.

use core::sync::atomic::{AtomicUsize, Ordering};

use hexloom_abi::limits::MAX_NX;
use hexloom_abi::tile::TileLayout;
use hexloom_abi::{DType, Status};

use super::model::Model;
use super::tile::{self, MAX_K, TileSpace, tiles_of};
use super::{FEW_ROWS, MatrixUnit, RUN_TILES, SCALE_HALVES, TILE, TILE_ELEMS, UnitKind};
use crate::hvx::{self, Isa, Kernel, LANES, Part};
use crate::kernels::Context;
use crate::kernels::matmul::Product;
use crate::kernels::matmul_split::{Runs, Unit};
use crate::kernels::quantize::load_halves;
use crate::kernels::rows::Row;
use crate::tensor::{Span, Tensor};

/// Groups of weight rows of one piece, if scratch holds so many.
const GROUPS: usize = 4;

/// Computes the products that the unit serves and takes them out of `products`.
pub(crate) fn take_over<'a, I: Isa>(
    cx: &Context<'a>,
    unit: UnitKind,
    x: Tensor<'a>,
    products: &mut [Option<Product<'a>>; MAX_NX],
) -> Result<(), Status> {
    for first in 0..MAX_NX {
        let Some(form) = products[first].and_then(|product| Form::of(&product, &x)) else {
            continue;
        };
        let same = products.map(|product| product.filter(|product| Form::of(product, &x) == Some(form)));
        let groups = same.iter().flatten().map(groups_of).sum();
        let Some(space) = Space::new(cx.rest(), &form, groups) else {
            continue;
        };
        for (product, taken) in products.iter_mut().zip(&same) {
            if taken.is_some() {
                *product = None;
            }
        }
        let op = Products {
            unit,
            x,
            products: same,
            form,
            groups,
            space,
            first: 0,
            count: 0,
            matrix: [0; 2],
        };
        op.run::<I>(cx)?;
    }
    Ok(())
}

fn groups_of(product: &Product<'_>) -> usize {
    product.weight.ne()[1].div_ceil(TILE)
}

/// What products must share to be computed together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Form {
    runs: Runs,
    /// Tiles along k.
    k_tiles: usize,
    /// f16 terms of an activation.
    terms: usize,
}

impl Form {
    /// The form of a product that the unit serves.
    fn of(product: &Product<'_>, x: &Tensor<'_>) -> Option<Self> {
        let terms = match (product.weight.dtype(), x.dtype()) {
            (DType::F16, DType::F32) => 2,
            (DType::F16 | DType::Q4_0 | DType::Q4_1 | DType::Q8_0, _) => 1,
            _ => return None,
        };
        let runs = Runs::new(&product.weight, x);
        let k = x.ne()[0];
        let serves = runs.rows_per_matrix > FEW_ROWS && (1..=MAX_K).contains(&k) && x.rows() > 0;
        serves.then_some(Self {
            runs,
            k_tiles: k.div_ceil(TILE),
            terms,
        })
    }

    /// Tiles of 32 activation rows.
    fn row_tiles(&self) -> usize {
        self.k_tiles * self.terms
    }
}

/// Where everything lies in scratch.
#[derive(Clone, Copy)]
struct Space<'a> {
    /// Tiles of activation rows held at a time.
    rows: usize,
    /// Groups of weight rows of one piece.
    groups: usize,
    /// By rows, then terms, then along k.
    acts: Span<'a, u16>,
    /// What each activation row's results are multiplied by; NaN for a row that is not finite.
    row_factors: Span<'a, f32>,
    /// Weight tiles of two pieces: by groups, then along k.
    weights: [Span<'a, u16>; 2],
    /// What each column's results are multiplied by, for three pieces; NaN for one that is not finite.
    column_factors: [Span<'a, f32>; 3],
    /// Results of two pieces: by groups, then rows.
    results: [Span<'a, u16>; 2],
    scales: Span<'a, u16>,
}

impl<'a> Space<'a> {
    /// The most activation rows that fit with a few groups, then as many groups as fit but for half of them all.
    fn new(scratch: Span<'a, u8>, form: &Form, all_groups: usize) -> Option<Self> {
        let mut space = TileSpace::new(scratch);
        let need = |rows: usize, groups: usize| {
            1 + rows * form.row_tiles()
                + tiles_of::<f32>(rows * TILE)
                + 2 * groups * (form.k_tiles + rows)
                + 3 * tiles_of::<f32>(groups * TILE)
        };
        let tiles = space.tiles();
        let most_rows = form.runs.rows_per_matrix.div_ceil(TILE).min(tiles / form.row_tiles());
        let few = GROUPS.min(all_groups.max(1));
        let (rows, few) = [few, 1]
            .into_iter()
            .find_map(|groups| Some(((1..=most_rows).rev().find(|&rows| need(rows, groups) <= tiles)?, groups)))?;
        let half = all_groups.div_ceil(2).max(few);
        let groups = (few..=half).rev().find(|&groups| need(rows, groups) <= tiles)?;
        Some(Self {
            rows,
            groups,
            acts: space.take(rows * form.row_tiles()),
            row_factors: space.take_elems(rows * TILE),
            weights: [(); 2].map(|()| space.take(groups * form.k_tiles)),
            column_factors: [(); 3].map(|()| space.take_elems(groups * TILE)),
            results: [(); 2].map(|()| space.take(groups * rows)),
            scales: space.take_elems(SCALE_HALVES),
        })
    }
}

/// Products of one form, at one piece of activation rows.
struct Products<'a> {
    unit: UnitKind,
    x: Tensor<'a>,
    products: [Option<Product<'a>>; MAX_NX],
    form: Form,
    /// Groups of weight rows of all products.
    groups: usize,
    space: Space<'a>,
    /// First activation row at hand, and how many.
    first: usize,
    count: usize,
    /// The weight matrix that they meet.
    matrix: [usize; 2],
}

impl Products<'_> {
    fn run<I: Isa>(mut self, cx: &Context<'_>) -> Result<(), Status> {
        tile::fill_scales(self.space.scales);
        let per_matrix = self.form.runs.rows_per_matrix;
        let pieces = self.groups.div_ceil(self.space.groups);
        for run in 0..self.x.rows() / per_matrix {
            self.matrix = self.form.runs.matrix(run);
            let rows = run * per_matrix..(run + 1) * per_matrix;
            for first in rows.clone().step_by(self.space.rows * TILE) {
                self.first = first;
                self.count = (self.space.rows * TILE).min(rows.end - first);
                cx.run::<I, _>(&Prepare(&self))?;
                for step in 0..pieces + 2 {
                    cx.run::<I, _>(&Step::new(&self, step, pieces))?;
                }
            }
        }
        Ok(())
    }

    /// The product and the group in it of group `idx` of all.
    #[inline(always)]
    fn group(&self, mut idx: usize) -> Option<(&Product<'_>, Unit)> {
        for product in self.products.iter().flatten() {
            if idx < groups_of(product) {
                let rows = self.first..self.first + self.count;
                let matrix = self.matrix;
                return Some((
                    product,
                    Unit {
                        group: idx,
                        matrix,
                        rows,
                    },
                ));
            }
            idx -= groups_of(product);
        }
        None
    }

    /// Groups of piece `piece`, counted over all products.
    #[inline(always)]
    fn piece(&self, piece: usize) -> core::ops::Range<usize> {
        let first = piece * self.space.groups;
        first..(first + self.space.groups).min(self.groups)
    }

    /// Tiles of 32 activation rows at hand.
    #[inline(always)]
    fn row_tiles(&self) -> usize {
        self.count.div_ceil(TILE)
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

/// Makes tiles of the activation rows at hand.
struct Prepare<'a>(&'a Products<'a>);

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
struct Step<'a> {
    op: &'a Products<'a>,
    fill: Option<usize>,
    drive: Option<usize>,
    drain: Option<usize>,
    /// Groups to fill or to drain that a thread has begun.
    begun: AtomicUsize,
}

impl<'a> Step<'a> {
    fn new(op: &'a Products<'a>, step: usize, pieces: usize) -> Self {
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
