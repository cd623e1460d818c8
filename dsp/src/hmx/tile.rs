//! Tiles in scratch memory: what fills them, what reads them, and the powers of two that bring values into f16's range.
//!
//! An activation row is scaled so that its largest element comes just below 2^[`act_power`], a weight column so that it
//! stays below 1: then no sum over k passes 2^14, whatever the values, and what f16 drops is small against the largest.
//! Powers of two change no bits of a normal number, so results are scaled back without another rounding.

use hexloom_abi::DType;
use hexloom_abi::tile::TileLayout;

use super::transpose::{Lines, transpose};
use super::{SCALE_HALVES, TILE, TILE_BYTES, TILE_ELEMS};
#[cfg(test)]
use crate::hvx::plain::f16_to_f32;
use crate::hvx::{self, Isa, math};
use crate::tensor::{Plain, Span};

pub(crate) use hexloom_abi::unit::MAX_K;
/// Sums of products stay below this power of two.
const SUM_POWER: i32 = 14;

/// Scratch memory cut into tiles.
pub(crate) struct TileSpace<'a> {
    rest: Span<'a, u8>,
}

impl<'a> TileSpace<'a> {
    /// The whole tiles of some scratch memory. How many depends on its length alone, not on where it lies.
    pub(crate) fn new(scratch: Span<'a, u8>) -> Self {
        let skip = scratch.as_ptr().align_offset(TILE_BYTES);
        let bytes = scratch.len().saturating_sub(TILE_BYTES) / TILE_BYTES * TILE_BYTES;
        Self {
            rest: scratch.part(if bytes == 0 { 0 } else { skip }, bytes),
        }
    }

    /// Tiles left.
    pub(crate) fn tiles(&self) -> usize {
        self.rest.len() / TILE_BYTES
    }

    /// Takes `tiles` tiles, of which there must be as many.
    pub(crate) fn take(&mut self, tiles: usize) -> Span<'a, u16> {
        let bytes = tiles * TILE_BYTES;
        let taken = self.rest.part(0, bytes);
        self.rest = self.rest.part(bytes, self.rest.len() - bytes);
        taken.cast()
    }

    /// Takes whole tiles for `len` elements.
    pub(crate) fn take_elems<T: Plain>(&mut self, len: usize) -> Span<'a, T> {
        self.take(tiles_of::<T>(len)).cast().part(0, len)
    }
}

/// Tiles that `len` elements take.
pub(crate) const fn tiles_of<T>(len: usize) -> usize {
    (len * size_of::<T>()).div_ceil(TILE_BYTES)
}

/// Tile `idx` of a span of tiles.
#[inline(always)]
pub(crate) fn tile(tiles: Span<'_, u16>, idx: usize) -> Span<'_, u16> {
    tiles.part(idx * TILE_ELEMS, TILE_ELEMS)
}

/// A block of column scales of 1.
pub(crate) fn fill_scales(to: Span<'_, u16>) {
    const ONE: u16 = 0x3c00;
    for idx in 0..SCALE_HALVES {
        to.set(idx, if idx < 2 * TILE { ONE } else { 0 });
    }
}

/// A weight tile that takes away what an activation tile holds: -1 on the diagonal.
pub(crate) fn fill_negative_identity(to: Span<'_, u16>) {
    const MINUS_ONE: u16 = 0xbc00;
    for idx in 0..TILE_ELEMS {
        let (k, column) = (2 * (idx / 64) + idx % 2, idx % 64 / 2);
        to.set(idx, if k == column { MINUS_ONE } else { 0 });
    }
}

/// Largest magnitudes of `max` and `x` by their bits, so that a NaN counts as largest.
#[inline(always)]
pub(crate) fn larger<I: Isa>(max: I::I32, x: I::F32) -> I::I32 {
    let magnitude = I::and(I::bits(x), I::splat_i(i32::MAX));
    I::bits(I::select(
        I::gt_i(magnitude, max),
        I::from_bits(magnitude),
        I::from_bits(max),
    ))
}

/// The largest of 32 magnitudes that [`larger`] has gathered.
#[inline(always)]
pub(crate) fn largest<I: Isa>(max: I::I32) -> f32 {
    let lanes = I::to_array(I::from_bits(max));
    f32::from_bits(lanes.iter().fold(0, |max, lane| max.max(lane.to_bits())))
}

/// The exponent of the smallest power of two above a magnitude: `None` for an infinity or a NaN.
#[inline(always)]
pub(crate) fn power_above(magnitude: f32) -> Option<i32> {
    let exponent = (magnitude.to_bits() >> 23) as i32;
    (exponent < 255).then_some(exponent - 126)
}

/// 2^power, for powers of normal numbers; others are brought to the nearest.
#[inline(always)]
pub(crate) fn power_of_two(power: i32) -> f32 {
    f32::from_bits(((power.clamp(-126, 127) + 127) as u32) << 23)
}

/// Exponent of the power of two that activations are brought below when `k` of them meet weights below 1.
#[inline(always)]
pub(crate) fn act_power(k: usize) -> i32 {
    SUM_POWER - k.next_power_of_two().ilog2() as i32
}

/// Stores rows 2 * `pair` and the next as one vector of an activation or result tile, or rows of k of a weight tile.
#[inline(always)]
pub(crate) fn store_pair<I: Isa>(tile: Span<'_, u16>, pair: usize, even: I::F32, odd: I::F32) {
    let to = tile.part(2 * TILE * pair, 2 * TILE);
    // SAFETY: `part` has checked 64 halves.
    unsafe { I::store_f16_pair(to.as_ptr(), even, odd) };
}

/// The two rows that [`store_pair`] stores.
#[inline(always)]
pub(crate) fn load_pair<I: Isa>(tile: Span<'_, u16>, pair: usize) -> [I::F32; 2] {
    let from = tile.part(2 * TILE * pair, 2 * TILE);
    // SAFETY: `part` has checked 64 halves.
    unsafe { I::load_f16_pair(from.as_ptr()) }
}

/// Stores a pair of rows to `tile`, and what f16 drops of them to `rest`.
#[inline(always)]
pub(crate) fn store_pair_in_two<I: Isa>(
    tile: Span<'_, u16>,
    rest: Span<'_, u16>,
    pair: usize,
    even: I::F32,
    odd: I::F32,
) {
    store_pair::<I>(tile, pair, even, odd);
    let [even_stored, odd_stored] = load_pair::<I>(tile, pair);
    store_pair::<I>(rest, pair, I::sub(even, even_stored), I::sub(odd, odd_stored));
}

/// Turns 32 rows of 32 elements, each row along k, into a weight tile whose columns they are.
// Large, so a function of its own on Hexagon, where instruction set features are the whole image's.
#[cfg_attr(target_arch = "hexagon", inline(never))]
#[cfg_attr(not(target_arch = "hexagon"), inline(always))]
pub(crate) fn fill_transposed<I: Isa>(tile: Span<'_, u16>, rows: &[I::F32; TILE]) {
    // Rows 16 apart share a line, so that both halves of the lines are 16 by 16 pairs of halves to transpose.
    let mut lines = Lines([[0; TILE]; TILE / 2]);
    for (row, lanes) in rows.iter().enumerate() {
        let half = &mut lines.0[row % 16][row / 16 * 16..][..16];
        // SAFETY: 16 words are room for 32 halves.
        unsafe { I::store_f16(half.as_mut_ptr().cast(), *lanes) };
    }
    transpose(&mut lines);
    let words = tile.cast::<u32>();
    for (pair, line) in lines.0.iter().enumerate() {
        let to = words.part(TILE * pair, TILE);
        // SAFETY: `part` has checked 32 words, which a boundary of 4 bytes is enough for; `lines` is apart from scratch.
        unsafe { core::ptr::copy_nonoverlapping(line.as_ptr(), to.as_ptr(), TILE) };
    }
}

/// Fills a weight tile per 32 of k from a group of 32 quantised rows, each brought below 1 by a power of two; `factors`
/// take the inverse powers. A row whose scales are not finite becomes zeros with a factor of NaN.
// Large, so a function of its own on Hexagon, where instruction set features are the whole image's.
#[cfg_attr(target_arch = "hexagon", inline(never))]
#[cfg_attr(not(target_arch = "hexagon"), inline(always))]
pub(crate) fn fill_quantized<I: Isa>(
    to: Span<'_, u16>,
    factors: Span<'_, f32>,
    dtype: DType,
    group: Span<'_, u8>,
    layout: &TileLayout,
) {
    let scale_bytes = layout.scale_bytes as usize;
    let all_scales = group.part(layout.scales_offset as usize, layout.k_tiles as usize * scale_bytes);
    let scales = |tile: usize| all_scales.part(tile * scale_bytes, scale_bytes).cast::<u16>();
    let mut max = I::splat_i(0);
    for tile in 0..layout.k_tiles as usize {
        max = larger::<I>(max, bound::<I>(dtype, scales(tile)));
    }
    let infinite = I::gt_i(max, I::splat_i(0x7f7f_ffff));
    let zero = I::splat(0.0);
    // The power above is 2^(exponent + 1), exponents biased by 127.
    let exponent = I::sar::<23>(max);
    let inverse = I::from_bits(I::shl::<23>(I::sub_i(I::splat_i(253), exponent)));
    let inverse = I::select(infinite, zero, inverse);
    let power = I::from_bits(I::shl::<23>(I::add_i(exponent, I::splat_i(1))));
    hvx::store::<I>(factors, 0, I::select(infinite, I::splat(f32::NAN), power));
    for idx in 0..layout.k_tiles as usize {
        let [scale, minimum] =
            scales_and_minima::<I>(dtype, scales(idx)).map(|values| I::select(infinite, zero, I::mul(values, inverse)));
        let codes = group.part(idx * layout.code_bytes as usize, layout.code_bytes as usize);
        let tile = tile(to, idx);
        match dtype {
            DType::Q8_0 => fill_codes_8::<I>(tile, codes, scale),
            DType::Q4_1 => fill_codes_4::<I>(tile, codes, 0, scale, minimum),
            _ => fill_codes_4::<I>(tile, codes, 8, scale, zero),
        }
    }
}

/// Scales of a tile's rows, and their minima or zeros.
#[inline(always)]
fn scales_and_minima<I: Isa>(dtype: DType, scales: Span<'_, u16>) -> [I::F32; 2] {
    if dtype == DType::Q4_1 {
        // SAFETY: `part` has checked 32 pairs of halves.
        return unsafe { I::load_f16_pair(scales.part(0, 2 * TILE).as_ptr()) };
    }
    // SAFETY: `part` has checked 32 halves.
    [unsafe { I::load_f16(scales.part(0, TILE).as_ptr()) }, I::splat(0.0)]
}

/// A magnitude that no element of 32 rows' block passes.
#[inline(always)]
fn bound<I: Isa>(dtype: DType, scales: Span<'_, u16>) -> I::F32 {
    let [scale, minimum] = scales_and_minima::<I>(dtype, scales);
    match dtype {
        DType::Q8_0 => I::mul(scale, I::splat(128.0)),
        DType::Q4_1 => {
            let top = I::mul(math::abs::<I>(scale), I::splat(15.0));
            I::add(top, math::abs::<I>(minimum))
        }
        _ => I::mul(scale, I::splat(8.0)),
    }
}

/// One tile of 4-bit codes: (code - zero) * scale + minimum.
#[inline(always)]
fn fill_codes_4<I: Isa>(tile: Span<'_, u16>, codes: Span<'_, u8>, zero: i32, scale: I::F32, minimum: I::F32) {
    for vector in 0..4 {
        let words = load_codes::<I>(codes, vector);
        // Byte b holds k = 8 * vector + b in its low nibble, and 4 more in its high one.
        let nibbles = [
            words,
            I::sar::<8>(words),
            I::sar::<16>(words),
            I::sar::<24>(words),
            I::sar::<4>(words),
            I::sar::<12>(words),
            I::sar::<20>(words),
            I::sar::<28>(words),
        ];
        for pair in 0..4 {
            let mut values = [scale; 2];
            for (odd, value) in values.iter_mut().enumerate() {
                let code = I::sub_i(I::and(nibbles[2 * pair + odd], I::splat_i(15)), I::splat_i(zero));
                *value = I::add(I::mul(I::to_float(code), scale), minimum);
            }
            store_pair::<I>(tile, 4 * vector + pair, values[0], values[1]);
        }
    }
}

/// One tile of 8-bit codes: (code - 128) * scale.
#[inline(always)]
fn fill_codes_8<I: Isa>(tile: Span<'_, u16>, codes: Span<'_, u8>, scale: I::F32) {
    for vector in 0..8 {
        let words = load_codes::<I>(codes, vector);
        let bytes = [words, I::sar::<8>(words), I::sar::<16>(words), I::sar::<24>(words)];
        for pair in 0..2 {
            let mut values = [scale; 2];
            for (odd, value) in values.iter_mut().enumerate() {
                let code = I::sub_i(I::and(bytes[2 * pair + odd], I::splat_i(255)), I::splat_i(128));
                *value = I::mul(I::to_float(code), scale);
            }
            store_pair::<I>(tile, 2 * vector + pair, values[0], values[1]);
        }
    }
}

#[inline(always)]
fn load_codes<I: Isa>(codes: Span<'_, u8>, vector: usize) -> I::I32 {
    let bytes = codes.part(vector * 128, 128);
    // SAFETY: `part` has checked 128 bytes.
    unsafe { I::load_i32(bytes.as_ptr().cast()) }
}

/// Element (row, column) of an activation or result tile, (k, column) of a weight tile.
#[cfg(test)]
pub(crate) fn element(tile: Span<'_, u16>, row: usize, column: usize) -> f32 {
    f16_to_f32(tile.get(64 * (row / 2) + 2 * column + (row & 1)))
}
