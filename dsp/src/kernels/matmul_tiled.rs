//! Products with tiled weights: int8 activations, 32 output rows to a vector, each tile unpacked once for four rows.
//!
//! Per tile and lane: `sum += (weight scale * activation scale) * dot`, then for `Q4_1` `sum += minimum * activation
//! sum`, tiles in order of k. The order and the roundings are part of the result, so blocks of 4, 3, 2 or 1 rows agree.

use hexloom_abi::DType;
use hexloom_abi::tile::TileLayout;

use super::matmul::Product;
use super::matmul_split::{ROW_BLOCK, Unit};
use super::quantize::{Form, Prepared};
use crate::hvx::{Isa, LANES};
use crate::tensor::Span;

/// How a tiled type's codes become products.
trait Codes {
    /// Whether minima lie behind the scales.
    const MINIMUM: bool = false;

    /// Dot products of one tile with the zero point removed; `sum` are the activations' sums.
    ///
    /// # Safety
    /// The tile's codes and 32 activations at each of `act` are readable; each of `act` lies on a boundary of 4 bytes.
    unsafe fn dot<I: Isa, const N: usize>(codes: *const u8, act: [*const i8; N], sum: [i32; N]) -> [I::I32; N];
}

struct Q4_0;
struct Q4_1;
struct Q8_0;

impl Codes for Q4_0 {
    #[inline(always)]
    unsafe fn dot<I: Isa, const N: usize>(codes: *const u8, act: [*const i8; N], mut sum: [i32; N]) -> [I::I32; N] {
        for sum in &mut sum {
            *sum *= -8;
        }
        // SAFETY: the caller's promise.
        unsafe { I::dot_tile_u4(codes, act, sum) }
    }
}

impl Codes for Q4_1 {
    const MINIMUM: bool = true;

    #[inline(always)]
    unsafe fn dot<I: Isa, const N: usize>(codes: *const u8, act: [*const i8; N], _sum: [i32; N]) -> [I::I32; N] {
        // SAFETY: the caller's promise.
        unsafe { I::dot_tile_u4(codes, act, [0; N]) }
    }
}

impl Codes for Q8_0 {
    #[inline(always)]
    unsafe fn dot<I: Isa, const N: usize>(codes: *const u8, act: [*const i8; N], sum: [i32; N]) -> [I::I32; N] {
        // SAFETY: the caller's promise.
        unsafe { I::dot_tile_u8(codes, act, sum) }
    }
}

/// Computes one unit; prepared row 0 is activation row `first`.
#[inline(always)]
pub(super) fn tiled_unit<I: Isa>(product: &Product<'_>, rows: &Prepared<'_>, first: usize, unit: &Unit) {
    match product.weight.dtype() {
        DType::Q4_0 => unit_of::<I, Q4_0>(product, rows, first, unit),
        DType::Q4_1 => unit_of::<I, Q4_1>(product, rows, first, unit),
        _ => unit_of::<I, Q8_0>(product, rows, first, unit),
    }
}

#[inline(always)]
fn unit_of<I: Isa, C: Codes>(product: &Product<'_>, rows: &Prepared<'_>, first: usize, unit: &Unit) {
    let Some(layout) = TileLayout::new(product.weight.dtype(), rows.k() as u32) else {
        return;
    };
    let group = Group {
        bytes: product.weight.tile_group(unit.group, unit.matrix),
        layout,
    };
    let mut row = unit.rows.start;
    while rows.form() == Form::FineCodes && row < unit.rows.end {
        let [whole, rest] = group.block::<I, C, 2>(rows, 2 * (row - first));
        put::<I, 1>(product, unit, row, [I::add(whole, rest)]);
        row += 1;
    }
    while row < unit.rows.end {
        let prepared = row - first;
        let count = (unit.rows.end - row).min(ROW_BLOCK);
        match count {
            1 => put::<I, 1>(product, unit, row, group.block::<I, C, 1>(rows, prepared)),
            2 => put::<I, 2>(product, unit, row, group.block::<I, C, 2>(rows, prepared)),
            3 => put::<I, 3>(product, unit, row, group.block::<I, C, 3>(rows, prepared)),
            _ => put::<I, 4>(product, unit, row, group.block::<I, C, 4>(rows, prepared)),
        }
        row += count;
    }
}

#[inline(always)]
fn put<I: Isa, const N: usize>(product: &Product<'_>, unit: &Unit, row: usize, sums: [I::F32; N]) {
    for (idx, sum) in sums.into_iter().enumerate() {
        product.store::<I>(row + idx, unit, sum);
    }
}

/// 32 weight rows.
struct Group<'a> {
    bytes: Span<'a, u8>,
    layout: TileLayout,
}

/// One prepared activation row.
#[derive(Clone, Copy)]
struct Row<'a> {
    codes: Span<'a, i8>,
    scales: Span<'a, f32>,
    sums: Span<'a, f32>,
    code_sums: Span<'a, i32>,
}

impl Group<'_> {
    /// The group's products with `N` prepared rows from `first`.
    #[inline(always)]
    fn block<I: Isa, C: Codes, const N: usize>(&self, rows: &Prepared<'_>, first: usize) -> [I::F32; N] {
        let rows: [Row<'_>; N] = core::array::from_fn(|idx| Row {
            codes: rows.codes(first + idx),
            scales: rows.scales(first + idx),
            sums: rows.sums(first + idx),
            code_sums: rows.code_sums(first + idx),
        });
        let [code_bytes, scale_bytes] = [self.layout.code_bytes as usize, self.layout.scale_bytes as usize];
        let all_scales = self.bytes.part(
            self.layout.scales_offset as usize,
            self.layout.k_tiles as usize * scale_bytes,
        );
        let mut totals = [I::splat(0.0); N];
        for tile in 0..self.layout.k_tiles as usize {
            let codes = self.bytes.part(tile * code_bytes, code_bytes);
            let scales = all_scales.part(tile * scale_bytes, scale_bytes).cast::<u16>();
            let act = rows.map(|row| row.codes.part(tile * LANES, LANES).as_ptr().cast_const());
            let sum = rows.map(|row| row.code_sums.get(tile));
            // SAFETY: `part` has checked the tile's code bytes and 32 activations of each row; rows of codes and tiles of
            // them are multiples of 4 bytes in scratch memory, which lies on a line.
            let dots = unsafe { C::dot::<I, N>(codes.as_ptr(), act, sum) };
            // SAFETY: a tile has at least 32 halves of scales, in the span checked above.
            let scale = unsafe { I::load_f16(scales.as_ptr()) };
            for ((total, row), dot) in totals.iter_mut().zip(&rows).zip(dots) {
                let scale = I::mul(scale, I::splat(row.scales.get(tile)));
                *total = I::add(*total, I::mul(scale, I::to_float(dot)));
            }
            if C::MINIMUM {
                // SAFETY: types with minima have 32 halves of them behind the scales, in the span checked above.
                let minimum = unsafe { I::load_f16(scales.part(LANES, LANES).as_ptr()) };
                for (total, row) in totals.iter_mut().zip(&rows) {
                    *total = I::add(*total, I::mul(minimum, I::splat(row.sums.get(tile))));
                }
            }
        }
        totals
    }
}
