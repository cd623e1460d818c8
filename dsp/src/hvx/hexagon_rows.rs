//! The hottest loop of the emulator image: dot products in HVX, the float part in one pass over a tile's lanes.
//!
//! It is written for what QEMU 7.2 takes long for: a float multiplication, done there by a function that accumulates 128
//! bits (so products are made of integers, rounded as the instruction would); a vector store, which it commits byte by byte
//! (so lanes are extracted); and every branch, because it does not chain blocks of code (so loops over lanes are written out,
//! and what needs another way is found before the loop over tiles).

use core::arch::hexagon::v128::*;

use super::{Codes, Hexagon, Isa, LANES, Line, Row, Tiles};
use crate::hvx::tiles::{Record, dot_rows as dot_rows_plainly};

#[inline(never)]
pub(super) fn dot_rows<C: Codes, const N: usize>(tiles: &Tiles<'_>, rows: &[Row<'_>; N]) -> [Line; N] {
    let record = Record::of::<Hexagon>();
    let halves = LANES * (1 + C::MINIMUM as usize);
    let code_bytes = C::BITS * 128;
    let mut codes = tiles.codes().part(0, tiles.count() * code_bytes).as_ptr().cast_const();
    let mut scales = tiles.scales().part(0, tiles.count() * halves).as_ptr().cast_const();
    let mut records = rows.map(|row| {
        row.records()
            .part(0, tiles.count() * record.bytes)
            .as_ptr()
            .cast_const()
    });
    if !rows.iter().all(Row::is_middling) || !are_zeros_or_normal(tiles) {
        return dot_rows_plainly::<Hexagon, C, N>(tiles, rows);
    }
    let mut totals = [Line([0.0; LANES]); N];
    for _ in 0..tiles.count() {
        // The pointers have advanced by whole tiles and records, fewer than the checked lengths hold; records lie on a boundary
        // of 4 bytes.
        let starts = match C::ZERO_POINT {
            0 => [0; N],
            // SAFETY: as above.
            8 => records.map(|at| unsafe { at.wrapping_add(record.offset).cast::<i32>().read() }),
            // SAFETY: as above.
            _ => records.map(|at| unsafe { at.wrapping_add(record.wide_offset).cast::<i32>().read() }),
        };
        let act = records.map(<*const u8>::cast::<i8>);
        let dots = if C::BITS == 4 {
            // SAFETY: as above; a tile of 4-bit codes has 512 bytes.
            unsafe { Hexagon::dot_tile_u4(codes, act, starts) }
        } else {
            // SAFETY: as above; a tile of 8-bit codes has 1024 bytes.
            unsafe { Hexagon::dot_tile_u8(codes, act, starts) }
        };
        for ((total, at), dot) in totals.iter_mut().zip(records).zip(dots) {
            // SAFETY: as above.
            let factor = Factor::new(unsafe { at.wrapping_add(record.scale).cast::<u32>().read() });
            if C::MINIMUM {
                // SAFETY: as above; each tile has 32 scales, each with its minimum.
                let pairs = unsafe { &*scales.cast::<[u32; LANES]>() };
                // SAFETY: as above.
                let sum = Factor::new(unsafe { at.wrapping_add(record.sum).cast::<u32>().read() });
                add_dots_and_minima(total, pairs, factor, sum, dot);
            } else {
                // SAFETY: as above; each tile has 32 scales.
                add_dots(total, unsafe { &*scales.cast::<[u16; LANES]>() }, factor, dot);
            }
        }
        codes = codes.wrapping_add(code_bytes);
        scales = scales.wrapping_add(halves);
        records = records.map(|at| at.wrapping_add(record.bytes));
    }
    totals
}

/// Whether no scale or minimum is subnormal, infinite or NaN.
#[inline(never)]
fn are_zeros_or_normal(tiles: &Tiles<'_>) -> bool {
    /// Lines looked at between two branches.
    const LINES: usize = 8;
    let halves = |half: u32| op!(q6_v_vsplat_r((half << 16 | half) as i32));
    let (magnitudes, least) = (halves(0x7fff), halves(0x400));
    let scales = tiles.scales();
    let count = scales.len() / (2 * LANES);
    let start = scales.as_ptr().cast::<HvxVector>().cast_const();
    assert!(start.is_aligned(), "scales do not lie on lines");
    let [mut low, mut high] = [op!(q6_v_vzero()); 2];
    let mut look = |at: usize| {
        // SAFETY: `at` is below the number of lines that the span has; scales begin and end on lines, as codes do.
        let magnitude = op!(q6_v_vand_vv(unsafe { start.wrapping_add(at).read() }, magnitudes));
        // Mantissa bits of what is less than the least normal number; the sign of what is more than the largest.
        low = op!(q6_v_vor_vv(low, op!(q6_vh_vmin_vhvh(magnitude, least))));
        high = op!(q6_v_vor_vv(high, op!(q6_vh_vadd_vhvh(magnitude, least))));
    };
    for first in (0..count / LINES * LINES).step_by(LINES) {
        (first..first + LINES).for_each(&mut look);
    }
    (count / LINES * LINES..count).for_each(&mut look);
    let mut odd = op!(q6_v_vand_vv(low, halves(0x3ff)));
    odd = op!(q6_v_vor_vv(odd, op!(q6_v_vand_vv(high, halves(0x8000)))));
    for by in [64, 32, 16, 8, 4] {
        odd = op!(q6_v_vor_vv(odd, op!(q6_v_vror_vr(odd, by))));
    }
    op!(q6_r_vextract_vr(odd, 0)) == 0
}

/// `total += (scale * factor) * dot`.
#[inline(never)]
fn add_dots(total: &mut Line, scales: &[u16; LANES], factor: Factor, dots: HvxVector) {
    every_lane!(lane => {
        let product = factor.times(u32::from(scales[lane])).times(extract(dots, lane));
        total.0[lane] += product;
    });
}

/// `total += (scale * factor) * dot`, then `total += minimum * sum`; a pair is a scale and above it a minimum.
#[inline(never)]
fn add_dots_and_minima(total: &mut Line, pairs: &[u32; LANES], factor: Factor, sum: Factor, dots: HvxVector) {
    every_lane!(lane => {
        let product = factor.times(pairs[lane] & 0xffff).times(extract(dots, lane));
        total.0[lane] = total.0[lane] + product + sum.times(pairs[lane] >> 16).value();
    });
}

/// A lane. The image is compiled with an option (`toolchains/v67-emulator.toml`) without which many of these become a store
/// of the vector and loads.
#[inline(always)]
fn extract(x: HvxVector, lane: usize) -> i32 {
    op!(q6_r_vextract_vr(x, 4 * lane as i32))
}

/// A float taken apart: zero, or a number of middling size, see [`Row::is_middling`].
#[derive(Clone, Copy)]
struct Factor {
    /// The significand's 24 bits, above 8 of zero; 0 for zero.
    significand: u32,
    exponent: u32,
    /// In the highest bit.
    sign: u32,
}

/// The rounded product of a factor and a half.
struct Product {
    /// 24 bits, or 2^24 after rounding up; 0 for zero.
    significand: u32,
    exponent: u32,
    sign: u32,
}

impl Factor {
    #[inline(always)]
    fn new(bits: u32) -> Self {
        let is_zero = bits << 1 == 0;
        Self {
            significand: if is_zero { 0 } else { bits << 8 | 1 << 31 },
            exponent: bits >> 23 & 0xff,
            sign: bits,
        }
    }

    /// The product with a half that is zero or normal, rounded to nearest even.
    #[inline(always)]
    fn times(self, half: u32) -> Product {
        let magnitude = half & 0x7fff;
        let significand = if magnitude == 0 {
            0
        } else {
            (magnitude & 0x3ff | 0x400) << 14
        };
        // Of 56 or 57 bits, the lowest of which are zero.
        let product = u64::from(self.significand) * u64::from(significand);
        let carry = (product >> 56) as u32;
        let product = product >> carry;
        let rounded = product + 0x7fff_ffff + (product >> 32 & 1);
        Product {
            significand: (rounded >> 32) as u32,
            exponent: self.exponent + (magnitude >> 10) + carry - 15,
            sign: self.sign ^ half << 16,
        }
    }
}

impl Product {
    #[inline(always)]
    fn value(self) -> f32 {
        let bits = (self.exponent - 1 << 23) + self.significand | self.sign & 1 << 31;
        f32::from_bits(if self.significand == 0 { 0 } else { bits })
    }

    /// The product with an integer of at most 24 bits, rounded to nearest even.
    #[inline(always)]
    fn times(self, dot: i32) -> f32 {
        let product = u64::from(self.significand) * u64::from(dot.unsigned_abs());
        let zeros = product.leading_zeros();
        // The highest bit at 62, so that rounding up has room.
        let product = product << (zeros.wrapping_sub(1) & 63);
        let rounded = product + ((1 << 38) - 1) + (product >> 39 & 1);
        let significand = (rounded >> 39) as u32;
        let exponent = (self.exponent + 40).wrapping_sub(zeros);
        let bits = (exponent.wrapping_sub(1) << 23).wrapping_add(significand) | (self.sign ^ dot as u32) & 1 << 31;
        f32::from_bits(if zeros == 64 { 0 } else { bits })
    }
}
