//! Products with F32 and F16 weights in row layout: 32 partial sums along k, folded at the end of each row.
//!
//! Lane l sums the products of k = l, l + 32, ... in order; the lanes fold in the layer's order. Two activation rows
//! share each load of weights.

use hexloom_abi::DType;

use super::matmul::Product;
use super::matmul_split::Unit;
use super::quantize::{Prepared, load_halves};
use crate::hvx::{self, Isa, LANES};
use crate::tensor::{Plain, Span};

/// An element type of float weights.
trait Element: Plain {
    /// `count` elements from `start` as f32, zeros in the other lanes.
    fn load<I: Isa>(row: Span<'_, Self>, start: usize, count: usize) -> I::F32;
}

impl Element for f32 {
    #[inline(always)]
    fn load<I: Isa>(row: Span<'_, Self>, start: usize, count: usize) -> I::F32 {
        if count == LANES {
            hvx::load::<I>(row, start)
        } else {
            hvx::load_partial::<I>(row, start, count, 0.0)
        }
    }
}

impl Element for u16 {
    #[inline(always)]
    fn load<I: Isa>(row: Span<'_, Self>, start: usize, count: usize) -> I::F32 {
        load_halves::<I>(row, start, count)
    }
}

/// Computes one unit; prepared row 0 is activation row `first`.
#[inline(always)]
pub(super) fn float_unit<I: Isa>(product: &Product<'_>, rows: &Prepared<'_>, first: usize, unit: &Unit) {
    if product.weight.dtype() == DType::F16 {
        unit_of::<I, u16>(product, rows, first, unit);
    } else {
        unit_of::<I, f32>(product, rows, first, unit);
    }
}

#[inline(always)]
fn unit_of<I: Isa, T: Element>(product: &Product<'_>, rows: &Prepared<'_>, first: usize, unit: &Unit) {
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
fn block<I: Isa, T: Element, const N: usize>(
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
        let weight = product.weight.row::<T>([start + lane, i2, i3]);
        let mut totals = [I::splat(0.0); N];
        for k in (0..rows.k()).step_by(LANES) {
            let w = T::load::<I>(weight, k, (rows.k() - k).min(LANES));
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
