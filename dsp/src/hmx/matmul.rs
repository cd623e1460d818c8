//! MUL_MAT, MUL_MAT_ADD and MUL_MAT_NX on the matrix unit: many activation rows by 4-bit, 8-bit and F16 weights.
//!
//! As many activation rows as scratch holds become f16 tiles, each row under a power of two of its own; then groups of 32
//! weight rows follow, a few at a time: while one thread drives the unit over one piece of them, the others fill the tiles
//! of the next and store the results of the one before. So each weight is dequantised once per piece of activation rows.
//!
//! F16 weights meet f32 activations as the sum of two f16 terms, because their limit of error leaves no room for a rounded
//! activation. F32 weights, few rows, very long rows and rows of which scratch holds too few stay with vector kernels.

use hexloom_abi::limits::MAX_NX;
use hexloom_abi::{DType, Status};

use super::matmul_step::{Prepare, Step};
use super::tile::{self, MAX_K, TileSpace, tiles_of};
use super::{FEW_ROWS, SCALE_HALVES, TILE, UnitKind};
use crate::hvx::Isa;
use crate::kernels::Context;
use crate::kernels::matmul::Product;
use crate::kernels::matmul_split::{Runs, Unit};
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

/// Whether the unit serves a product, if scratch holds what it needs.
pub(crate) fn serves(product: &Product<'_>, x: &Tensor<'_>) -> bool {
    Form::of(product, x).is_some()
}

fn groups_of(product: &Product<'_>) -> usize {
    product.weight.ne()[1].div_ceil(TILE)
}

/// What products must share to be computed together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) runs: Runs,
    /// Tiles along k.
    pub(super) k_tiles: usize,
    /// f16 terms of an activation.
    pub(super) terms: usize,
}

impl Form {
    /// The form of a product that the unit serves.
    fn of(product: &Product<'_>, x: &Tensor<'_>) -> Option<Self> {
        let terms = match (product.weight.dtype(), x.dtype()) {
            (DType::F16, DType::F32) => 2,
            (DType::F16, _) => 1,
            (_, _) if product.weight.shape().tiled => 1,
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
    pub(super) fn row_tiles(&self) -> usize {
        self.k_tiles * self.terms
    }
}

/// Where everything lies in scratch.
#[derive(Clone, Copy)]
pub(super) struct Space<'a> {
    /// Tiles of activation rows held at a time.
    pub(super) rows: usize,
    /// Groups of weight rows of one piece.
    pub(super) groups: usize,
    /// By rows, then terms, then along k.
    pub(super) acts: Span<'a, u16>,
    /// What each activation row's results are multiplied by; NaN for a row that is not finite.
    pub(super) row_factors: Span<'a, f32>,
    /// Weight tiles of two pieces: by groups, then along k.
    pub(super) weights: [Span<'a, u16>; 2],
    /// What each column's results are multiplied by, for three pieces; NaN for one that is not finite.
    pub(super) column_factors: [Span<'a, f32>; 3],
    /// Results of two pieces: by groups, then rows.
    pub(super) results: [Span<'a, u16>; 2],
    pub(super) scales: Span<'a, u16>,
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
pub(super) struct Products<'a> {
    pub(super) unit: UnitKind,
    pub(super) x: Tensor<'a>,
    products: [Option<Product<'a>>; MAX_NX],
    pub(super) form: Form,
    /// Groups of weight rows of all products.
    pub(super) groups: usize,
    pub(super) space: Space<'a>,
    /// First activation row at hand, and how many.
    pub(super) first: usize,
    pub(super) count: usize,
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
    pub(super) fn group(&self, mut idx: usize) -> Option<(&Product<'_>, Unit)> {
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
    pub(super) fn piece(&self, piece: usize) -> core::ops::Range<usize> {
        let first = piece * self.space.groups;
        first..(first + self.space.groups).min(self.groups)
    }

    /// Tiles of 32 activation rows at hand.
    #[inline(always)]
    pub(super) fn row_tiles(&self) -> usize {
        self.count.div_ceil(TILE)
    }
}
