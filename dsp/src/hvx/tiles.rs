//! Rows of weight tiles against prepared activations: the hottest loop, with its operands and its plain form.
//!
//! An activation row is prepared as one record per block of 32: the int8 codes, then scale, sum and offset, each stored
//! [`Isa::SCALE_LANES`] times, so that a member whose splats compete with its multiplications loads them instead.
//! Per tile and lane: `total += (weight scale * activation scale) * dot`, then for types with minima
//! `total += minimum * activation sum`, tiles in order of k. The order and the roundings are part of the result, so
//! blocks of 4, 3, 2 or 1 rows agree.

use core::sync::atomic::{AtomicU32, Ordering};

use hexloom_abi::limits::LINE_BYTES;
use hexloom_abi::tile::TileLayout;

use super::{Isa, LANES};
use crate::tensor::Span;

/// How a tiled type's codes become products.
pub trait Codes {
    /// Bits of a code: 4 or 8.
    const BITS: usize;
    /// What is taken from each unsigned code.
    const ZERO_POINT: i32;
    /// Whether minima lie behind the scales.
    const MINIMUM: bool = false;
}

/// Codes 0 to 15 around 8.
#[derive(Clone, Copy, Debug)]
pub struct Q4_0;
/// Codes 0 to 15 above a minimum.
#[derive(Clone, Copy, Debug)]
pub struct Q4_1;
/// Codes 1 to 255 around 128.
#[derive(Clone, Copy, Debug)]
pub struct Q8_0;

impl Codes for Q4_0 {
    const BITS: usize = 4;
    const ZERO_POINT: i32 = 8;
}

impl Codes for Q4_1 {
    const BITS: usize = 4;
    const ZERO_POINT: i32 = 0;
    const MINIMUM: bool = true;
}

impl Codes for Q8_0 {
    const BITS: usize = 8;
    const ZERO_POINT: i32 = 128;
}

/// One group of 32 weight rows: the tiles' codes, then their scales and minima.
#[derive(Clone, Copy, Debug)]
pub struct Tiles<'a> {
    codes: Span<'a, u8>,
    scales: Span<'a, u16>,
    count: usize,
}

/// One prepared activation row of 32 codes a tile.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    records: Span<'a, u8>,
    /// [`NOT_FINITE`] and [`NOT_MIDDLING`] once such a block was met.
    odd: &'a AtomicU32,
}

/// A block has an infinity or a NaN.
const NOT_FINITE: u32 = 1;
/// A block's scale or sum is neither zero nor of middling size.
const NOT_MIDDLING: u32 = 2;
/// Biased exponents of floats of middling size: their products with halves and dot products are normal numbers.
const MIDDLING: core::ops::RangeInclusive<u32> = 37..=217;

/// Where things lie in the record of one block, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// -128 times the sum of codes, i32: what takes a zero point of 128 away. Stored once.
    pub wide_offset: usize,
    /// The scale, f32.
    pub scale: usize,
    /// Scale times sum of codes, f32: what a minimum is multiplied with.
    pub sum: usize,
    /// -8 times the sum of codes, i32: what takes a zero point of 8 away.
    pub offset: usize,
    /// The whole record.
    pub bytes: usize,
}

impl Record {
    /// Records with each value stored `lanes` times.
    pub const fn new(lanes: usize) -> Self {
        let value = 4 * lanes;
        let wide_offset = LANES;
        let scale = (wide_offset + 4).next_multiple_of(value);
        Self {
            wide_offset,
            scale,
            sum: scale + value,
            offset: scale + 2 * value,
            bytes: scale + 3 * value,
        }
    }

    /// The records of a member of the vector layer.
    pub const fn of<I: Isa>() -> Self {
        Self::new(I::SCALE_LANES)
    }
}

impl<'a> Tiles<'a> {
    /// The tiles of a group of rows in their wire layout.
    ///
    /// # Panics
    /// When `group` is shorter than the layout says or does not lie on a line: a kernel's mistake, never input's.
    pub fn new(group: Span<'a, u8>, layout: &TileLayout) -> Self {
        let count = layout.k_tiles as usize;
        let scales = layout.scales_offset as usize;
        assert!(
            group.as_ptr().addr().is_multiple_of(LINE_BYTES as usize),
            "tiles do not lie on lines"
        );
        Self {
            codes: group.part(0, count * layout.code_bytes as usize),
            scales: group.part(scales, layout.group_bytes as usize - scales).cast(),
            count,
        }
    }

    /// Tiles along k.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Codes of all tiles, `BITS * 128` bytes each.
    #[inline(always)]
    pub fn codes(&self) -> Span<'a, u8> {
        self.codes
    }

    /// Scales of all tiles, 32 halves each, each followed by its minimum for types that have them; then padding to a line.
    #[inline(always)]
    pub fn scales(&self) -> Span<'a, u16> {
        self.scales
    }
}

impl<'a> Row<'a> {
    /// The row of `count` records and a word behind them, on a boundary of 4 bytes.
    ///
    /// # Panics
    /// When there are fewer bytes or they are not aligned: a kernel's mistake, never input's.
    #[inline(always)]
    pub fn new<I: Isa>(bytes: Span<'a, u8>, count: usize) -> Self {
        let end = count * Record::of::<I>().bytes;
        let odd = bytes.part(end, 4).cast::<u32>();
        Self {
            records: bytes.part(0, end),
            // SAFETY: `part` and `cast` have checked bounds and alignment, and the word is only used by this type.
            odd: unsafe { AtomicU32::from_ptr(odd.as_ptr()) },
        }
    }

    /// Bytes of a row of `count` records.
    pub const fn bytes<I: Isa>(count: usize) -> usize {
        (count * Record::of::<I>().bytes + 4).next_multiple_of(LINE_BYTES as usize)
    }

    /// Before any block is set.
    #[inline(always)]
    pub fn begin(&self) {
        self.odd.store(0, Ordering::Relaxed);
    }

    /// Whether every block that was set is finite.
    #[inline(always)]
    pub fn is_finite(&self) -> bool {
        self.odd.load(Ordering::Relaxed) & NOT_FINITE == 0
    }

    /// Whether every scale and sum that was set is zero or has an exponent, biased, of 37 to 217.
    #[inline(always)]
    pub fn is_middling(&self) -> bool {
        self.odd.load(Ordering::Relaxed) & NOT_MIDDLING == 0
    }

    /// All records.
    #[inline(always)]
    pub fn records(&self) -> Span<'a, u8> {
        self.records
    }

    #[inline(always)]
    fn record<I: Isa>(&self, block: usize) -> Span<'a, u8> {
        let bytes = Record::of::<I>().bytes;
        self.records.part(block * bytes, bytes)
    }

    #[inline(always)]
    fn float<I: Isa>(&self, block: usize, at: usize) -> f32 {
        self.record::<I>(block).part(at, 4).cast::<f32>().get(0)
    }

    /// The scale of a block.
    #[inline(always)]
    pub fn scale<I: Isa>(&self, block: usize) -> f32 {
        self.float::<I>(block, Record::of::<I>().scale)
    }

    /// Scale times sum of codes of a block.
    #[inline(always)]
    pub fn sum<I: Isa>(&self, block: usize) -> f32 {
        self.float::<I>(block, Record::of::<I>().sum)
    }

    /// What takes a zero point away from a block's dot product.
    #[inline(always)]
    pub fn offset<I: Isa, C: Codes>(&self, block: usize) -> i32 {
        let at = Record::of::<I>();
        let at = match C::ZERO_POINT {
            0 => return 0,
            8 => at.offset,
            _ => at.wide_offset,
        };
        self.record::<I>(block).part(at, 4).cast::<i32>().get(0)
    }

    /// The codes of a block.
    #[inline(always)]
    pub fn codes<I: Isa>(&self, block: usize) -> Span<'a, i8> {
        self.record::<I>(block).part(0, LANES).cast()
    }

    /// Stores the record of one block; a scale of NaN makes the row one that is not finite.
    #[inline(always)]
    pub fn set<I: Isa>(&self, block: usize, codes: I::I32, scale: f32, code_sum: i32) {
        if scale.is_nan() {
            self.odd.fetch_or(NOT_FINITE, Ordering::Relaxed);
        }
        let record = self.record::<I>(block);
        // SAFETY: a record begins with 32 bytes of codes.
        unsafe { I::store_i8(record.as_ptr().cast(), codes) };
        let at = Record::of::<I>();
        let offset = |zero_point: i32| code_sum.wrapping_mul(-zero_point);
        record.part(at.wide_offset, 4).cast::<i32>().set(0, offset(128));
        let sum = scale * code_sum as f32;
        let is_middling = |x: f32| x == 0.0 || MIDDLING.contains(&(x.to_bits() >> 23 & 0xff));
        if !is_middling(scale) || !is_middling(sum) {
            self.odd.fetch_or(NOT_MIDDLING, Ordering::Relaxed);
        }
        for (at, value) in [
            (at.scale, scale),
            (at.sum, sum),
            (at.offset, f32::from_bits(offset(8) as u32)),
        ] {
            let place = record.part(at, 4 * I::SCALE_LANES).cast::<f32>();
            if I::SCALE_LANES == LANES {
                super::store::<I>(place, 0, I::splat(value));
            } else {
                place.set(0, value);
            }
        }
    }
}

/// Dot products of one tile with the zero point removed.
#[inline(always)]
pub fn dots<I: Isa, C: Codes, const N: usize>(tiles: &Tiles<'_>, rows: &[Row<'_>; N], tile: usize) -> [I::I32; N] {
    let bytes = C::BITS * 128;
    let codes = tiles.codes.part(tile * bytes, bytes);
    let act: [_; N] = core::array::from_fn(|row| rows[row].codes::<I>(tile).as_ptr().cast_const());
    let start: [_; N] = core::array::from_fn(|row| rows[row].offset::<I, C>(tile));
    if C::BITS == 4 {
        // SAFETY: `part` has checked the tile's 512 bytes, which lie on lines as `new` has checked, and `codes` 32 activations
        // of each row, which lie on a boundary of 4 bytes because their row and the bytes of a record do.
        unsafe { I::dot_tile_u4(codes.as_ptr(), act, start) }
    } else {
        // SAFETY: as above, with 1024 bytes.
        unsafe { I::dot_tile_u8(codes.as_ptr(), act, start) }
    }
}

/// The plain form of [`Isa::dot_rows`].
#[inline(always)]
pub(super) fn dot_rows<I: Isa, C: Codes, const N: usize>(tiles: &Tiles<'_>, rows: &[Row<'_>; N]) -> [I::F32; N] {
    let per_tile = LANES * (1 + C::MINIMUM as usize);
    let mut totals = [I::splat(0.0); N];
    for tile in 0..tiles.count {
        let dots = dots::<I, C, N>(tiles, rows, tile);
        let scales = tiles.scales.part(tile * per_tile, per_tile);
        let [scale, minimum] = if C::MINIMUM {
            // SAFETY: the span checked above has 32 pairs of halves.
            unsafe { I::load_f16_pair(scales.as_ptr()) }
        } else {
            // SAFETY: the span checked above has 32 halves.
            [unsafe { I::load_f16(scales.as_ptr()) }, I::splat(0.0)]
        };
        for ((total, row), dot) in totals.iter_mut().zip(rows).zip(dots) {
            let scale = I::mul(scale, I::splat(row.scale::<I>(tile)));
            *total = I::add(*total, I::mul(scale, I::to_float(dot)));
        }
        if C::MINIMUM {
            for (total, row) in totals.iter_mut().zip(rows) {
                *total = I::add(*total, I::mul(minimum, I::splat(row.sum::<I>(tile))));
            }
        }
    }
    totals
}
