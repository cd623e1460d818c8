//! Products with weights of any type in row layout: 32 partial sums along k, folded at the end of each row.
//!
//! Lane l sums the products of k = l, l + 32, ... in order; the lanes fold in the layer's order. Two activation rows
//! share each load of weights.

use hexloom_abi::DType;

use super::dequantize::Blocks;
use super::matmul::Product;
use super::matmul_split::Unit;
use super::quantize::{Prepared, load_halves};
use crate::hvx::{self, Isa, LANES};
use crate::tensor::{Span, Tensor};

/// How rows of weights are read.
trait Weights {
    /// One row.
    type Row<'a>;
    /// Row `index` (dimensions 1 to 3).
    fn row<'a>(weight: &Tensor<'a>, index: [usize; 3]) -> Self::Row<'a>;
    /// `count` elements from `start` as f32, zeros in the other lanes.
    fn load<I: Isa>(row: &Self::Row<'_>, start: usize, count: usize) -> I::F32;
}

/// F32 rows.
struct Floats;
/// F16 rows.
struct Halves;
/// Rows of any other type.
struct Coded;

impl Weights for Floats {
    type Row<'a> = Span<'a, f32>;

    #[inline(always)]
    fn row<'a>(weight: &Tensor<'a>, index: [usize; 3]) -> Span<'a, f32> {
        weight.row(index)
    }

    #[inline(always)]
    fn load<I: Isa>(row: &Span<'_, f32>, start: usize, count: usize) -> I::F32 {
        if count == LANES {
            hvx::load::<I>(*row, start)
        } else {
            hvx::load_partial::<I>(*row, start, count, 0.0)
        }
    }
}

impl Weights for Halves {
    type Row<'a> = Span<'a, u16>;

    #[inline(always)]
    fn row<'a>(weight: &Tensor<'a>, index: [usize; 3]) -> Span<'a, u16> {
        weight.row(index)
    }

    #[inline(always)]
    fn load<I: Isa>(row: &Span<'_, u16>, start: usize, count: usize) -> I::F32 {
        load_halves::<I>(*row, start, count)
    }
}

impl Weights for Coded {
    type Row<'a> = Blocks<'a>;

    #[inline(always)]
    fn row<'a>(weight: &Tensor<'a>, index: [usize; 3]) -> Blocks<'a> {
        Blocks::new(weight, index)
    }

    #[inline(always)]
    fn load<I: Isa>(row: &Blocks<'_>, start: usize, _: usize) -> I::F32 {
        I::from_array(row.get(start / LANES))
    }
}

/// Computes one unit; prepared row 0 is activation row `first`.
#[inline(always)]
pub(super) fn float_unit<I: Isa>(product: &Product<'_>, rows: &Prepared<'_>, first: usize, unit: &Unit) {
    match product.weight.dtype() {
        DType::F16 => unit_of::<I, Halves>(product, rows, first, unit),
        DType::F32 => unit_of::<I, Floats>(product, rows, first, unit),
        _ => unit_of::<I, Coded>(product, rows, first, unit),
    }
}

#[inline(always)]
fn unit_of<I: Isa, T: Weights>(product: &Product<'_>, rows: &Prepared<'_>, first: usize, unit: &Unit) {
    let mut row = unit.rows.start;
    while row + 1 < unit.rows.end {
        let [one, two] = block::<I, T, 2>(product, rows, row - first, unit);
        product.store::<I>(row, unit, one);
        product.store::<I>(row + 1, unit, two);
        row += 2;
    }
    if row < unit.rows.end {
        let [one] = block::<I, T, 1>(product, rows, row - first, unit);
        product.store::<I>(row, unit, one);
    }
}

/// The unit's group of weight rows with `N` prepared rows from `prepared`; lane r is weight row r.
#[inline(always)]
fn block<I: Isa, T: Weights, const N: usize>(
    product: &Product<'_>,
    rows: &Prepared<'_>,
    prepared: usize,
    unit: &Unit,
) -> [I::F32; N] {
    let (start, count) = product.group_rows(unit);
    let [i2, i3] = unit.matrix;
    let act: [Span<'_, f32>; N] = core::array::from_fn(|idx| rows.floats(prepared + idx));
    let mut lanes = [[0.0; LANES]; N];
    for lane in 0..count {
        let weight = T::row(&product.weight, [start + lane, i2, i3]);
        let mut totals = [I::splat(0.0); N];
        for k in (0..rows.k()).step_by(LANES) {
            let w = T::load::<I>(&weight, k, (rows.k() - k).min(LANES));
            for (total, act) in totals.iter_mut().zip(&act) {
                *total = I::add(*total, I::mul(w, hvx::load::<I>(*act, k)));
            }
        }
        for (lanes, total) in lanes.iter_mut().zip(totals) {
            lanes[lane] = I::sum(total);
        }
    }
    lanes.map(I::from_array)
}
