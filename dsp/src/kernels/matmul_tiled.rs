//! Products with tiled weights: int8 activations, 32 output rows to a vector, each tile unpacked once for four rows.
//!
//! What is summed in which order is defined by [`crate::hvx::tiles`].

use hexloom_abi::DType;
use hexloom_abi::tile::TileLayout;

use super::matmul::Product;
use super::matmul_split::{ROW_BLOCK, Unit};
use super::quantize::{Form, Prepared};
use crate::hvx::Isa;
use crate::hvx::tiles::{Codes, Q4_0, Q4_1, Q8_0, Tiles};
use crate::tensor::Span;

/// Computes one unit from the bytes of its group; prepared row 0 is activation row `first`.
#[inline(always)]
pub(super) fn tiled_unit<I: Isa>(
    product: &Product<'_>,
    group: Span<'_, u8>,
    rows: &Prepared<'_>,
    first: usize,
    unit: &Unit,
) {
    match product.weight.dtype() {
        DType::Q4_0 => unit_of::<I, Q4_0>(product, group, rows, first, unit),
        DType::Q4_1 => unit_of::<I, Q4_1>(product, group, rows, first, unit),
        _ => unit_of::<I, Q8_0>(product, group, rows, first, unit),
    }
}

#[inline(always)]
fn unit_of<I: Isa, C: Codes>(
    product: &Product<'_>,
    group: Span<'_, u8>,
    rows: &Prepared<'_>,
    first: usize,
    unit: &Unit,
) {
    let Some(layout) = TileLayout::new(product.weight.dtype(), rows.k() as u32) else {
        return;
    };
    let tiles = Tiles::new(group, &layout);
    let mut row = unit.rows.start;
    while rows.form() == Form::FineCodes && row < unit.rows.end {
        let [whole, rest] = block::<I, C, 2>(&tiles, rows, 2 * (row - first));
        put::<I, 1>(product, unit, row, [I::add(whole, rest)]);
        row += 1;
    }
    while row < unit.rows.end {
        let prepared = row - first;
        let count = (unit.rows.end - row).min(ROW_BLOCK);
        match count {
            1 => put::<I, 1>(product, unit, row, block::<I, C, 1>(&tiles, rows, prepared)),
            2 => put::<I, 2>(product, unit, row, block::<I, C, 2>(&tiles, rows, prepared)),
            3 => put::<I, 3>(product, unit, row, block::<I, C, 3>(&tiles, rows, prepared)),
            _ => put::<I, 4>(product, unit, row, block::<I, C, 4>(&tiles, rows, prepared)),
        }
        row += count;
    }
}

/// The group's products with `N` prepared rows from `first`.
#[inline(always)]
fn block<I: Isa, C: Codes, const N: usize>(tiles: &Tiles<'_>, rows: &Prepared<'_>, first: usize) -> [I::F32; N] {
    I::dot_rows::<C, N>(tiles, &core::array::from_fn(|idx| rows.codes::<I>(first + idx)))
}

#[inline(always)]
fn put<I: Isa, const N: usize>(product: &Product<'_>, unit: &Unit, row: usize, sums: [I::F32; N]) {
    for (idx, sum) in sums.into_iter().enumerate() {
        product.store::<I>(row + idx, unit, sum);
    }
}
