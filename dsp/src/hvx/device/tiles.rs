//! The hottest loop on a device: rows of weight tiles against prepared activations, in qfloat on every architecture.
//!
//! Two things make it short. Activation values lie in memory across a whole vector, because a splat takes a slot of the
//! multipliers, which are what the loop is short of. And the loop does two tiles, whose scales are one vector; the dot
//! products of the next tile are made while those of the last are scaled.
//!
//! qfloat serves v79 and later too: an IEEE addition takes a multiplier's slot, a qfloat addition that of the shifter.
//! A dot product becomes a float by the conversion, not by the bits of a large float: subtracting that in qfloat leaves an
//! error of 1. Sums are a few units in the last place from what IEEE members give. qfloat has no NaN: a row that holds one
//! says so itself. `cargo xtask codegen` counts the packets and looks for spills.

use super::Hvx;
use crate::hvx::LANES;
use crate::hvx::tiles::{Codes, Record, Row, Tiles};

const RECORD: Record = Record::new(LANES);
const LINE: usize = 128;
const ONE_HALF_FLOATS: i32 = 0x3c00_3c00;

/// [`crate::hvx::Isa::dot_rows`] on a device: a function of its own, so that its loop can be found in the image.
#[inline(never)]
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one reason holds for every call: the tile exists"
)]
pub(super) fn dot_rows<H: Hvx, C: Codes, const N: usize>(tiles: &Tiles<'_>, rows: &[Row<'_>; N]) -> [H::V; N] {
    let count = tiles.count();
    let mut at = Place::<C, N>::new(tiles, rows);
    let mut sums = Sums::<H, N>::new();
    if count == 0 {
        return sums.values(rows);
    }
    // SAFETY: `Place::new` has checked what `count` tiles need. The place is at tile 2n in turn n, and `2n + 2 < count` holds in
    // the loop, so tiles 2n to 2n + 2 exist; after it one or two are left.
    unsafe {
        let mut first = at.dots::<H>(0);
        // The compiler makes the shortest loops of this order.
        for _ in 0..(count - 1) / 2 {
            let [scale0, scale1] = at.scales::<H>();
            sums.add_minima(&at, 1, &scale1);
            let second = at.dots::<H>(1);
            sums.add(&at, 0, &scale0, first);
            first = at.dots::<H>(2);
            sums.add(&at, 1, &scale1, second);
            sums.add_minima(&at, 0, &scale0);
            at.advance();
        }
        // A lone last tile has no second line of scales and minima behind it.
        let scale = at.scale::<H>();
        sums.add(&at, 0, &scale, first);
        sums.add_minima(&at, 0, &scale);
        if count.is_multiple_of(2) {
            let [_, scale] = at.scales::<H>();
            sums.add_minima(&at, 1, &scale);
            sums.add(&at, 1, &scale, at.dots::<H>(1));
        }
    }
    sums.values(rows)
}

/// Where the next two tiles and the records of their blocks lie.
struct Place<C, const N: usize> {
    codes: *const u8,
    scales: *const u16,
    records: [*const u8; N],
    kind: core::marker::PhantomData<C>,
}

/// Scales of one tile's rows, and minima for types that have them.
struct Scale<H: Hvx> {
    scale: H::Qf32,
    minimum: H::V,
}

impl<C: Codes, const N: usize> Place<C, N> {
    const CODE_BYTES: usize = C::BITS * LINE;

    #[inline(always)]
    fn new(tiles: &Tiles<'_>, rows: &[Row<'_>; N]) -> Self {
        let count = tiles.count();
        let lines = if C::MINIMUM { count } else { count.div_ceil(2) };
        let codes = tiles.codes().part(0, count * Self::CODE_BYTES).as_ptr().cast_const();
        let scales = tiles.scales().part(0, lines * LINE / 2).as_ptr().cast_const();
        assert!(
            codes.addr().is_multiple_of(LINE) && scales.addr().is_multiple_of(LINE),
            "tiles do not lie on lines"
        );
        let mut records = [core::ptr::null::<u8>(); N];
        for (record, row) in records.iter_mut().zip(rows) {
            *record = row.records().part(0, count * RECORD.bytes).as_ptr();
            assert!(record.addr().is_multiple_of(LINE), "records do not lie on lines");
        }
        Self {
            codes,
            scales,
            records,
            kind: core::marker::PhantomData,
        }
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.codes = self.codes.wrapping_add(2 * Self::CODE_BYTES);
        self.scales = self.scales.wrapping_add(if C::MINIMUM { LINE } else { LINE / 2 });
        for record in &mut self.records {
            *record = record.wrapping_add(2 * RECORD.bytes);
        }
    }

    /// A value of tile `tile`'s record of row `row`, in all lanes.
    ///
    /// # Safety
    /// The tile exists.
    #[inline(always)]
    unsafe fn value<H: Hvx>(&self, row: usize, tile: usize, value: usize) -> H::V {
        // SAFETY: the record has 128 bytes of each value, on a line.
        unsafe { H::vmem(self.records[row].wrapping_add(tile * RECORD.bytes + value)) }
    }

    /// The activation's scale. Rows of 8-bit codes load nearly as many vectors as they have packets, so one is a splat.
    ///
    /// # Safety
    /// The tile exists.
    #[inline(always)]
    unsafe fn factor<H: Hvx>(&self, row: usize, tile: usize) -> H::V {
        if C::BITS == 8 && tile == 1 {
            let scale = self.records[row].wrapping_add(tile * RECORD.bytes + RECORD.scale);
            // SAFETY: the caller's promise; the value lies on a boundary of 4.
            return H::lvsplatw(unsafe { scale.cast::<i32>().read() });
        }
        // SAFETY: the caller's promise.
        unsafe { self.value::<H>(row, tile, RECORD.scale) }
    }

    /// Dot products of tile `tile`, zero point removed.
    ///
    /// # Safety
    /// The tile exists.
    #[inline(always)]
    unsafe fn dots<H: Hvx>(&self, tile: usize) -> [H::V; N] {
        let codes = self.codes.wrapping_add(tile * Self::CODE_BYTES);
        let nibble = H::lvsplatw(0x0f0f_0f0f);
        let mut dots = [nibble; N];
        for (row, dot) in dots.iter_mut().enumerate() {
            *dot = match C::ZERO_POINT {
                0 => continue,
                // SAFETY: the caller's promise.
                8 => unsafe { self.value::<H>(row, tile, RECORD.offset) },
                // One row of 8-bit codes loads as many vectors as it has packets: its start is a splat.
                _ => {
                    let start = self.records[row].wrapping_add(tile * RECORD.bytes + RECORD.wide_offset);
                    // SAFETY: as above, on a boundary of 4.
                    H::lvsplatw(unsafe { start.cast::<i32>().read() })
                }
            };
        }
        for pair in 0..4 {
            let [low, high] = if C::BITS == 4 {
                // SAFETY: line `pair` of the tile's four.
                let line = unsafe { H::vmem(codes.wrapping_add(pair * LINE)) };
                [H::vand(line, nibble), H::vlsrb(line, 4)]
            } else {
                // SAFETY: two of the tile's eight lines.
                [0, 1].map(|idx| unsafe { H::vmem(codes.wrapping_add((2 * pair + idx) * LINE)) })
            };
            for (dot, record) in dots.iter_mut().zip(&self.records) {
                let act = record.wrapping_add(tile * RECORD.bytes + 8 * pair).cast::<u64>();
                // SAFETY: bytes 8 * pair to 8 * pair + 7 of 32 codes, on a boundary of 8.
                let eight = unsafe { act.read() };
                *dot = match (C::ZERO_POINT, pair) {
                    (0, 0) => H::vrmpybus(low, eight as i32),
                    _ => H::vrmpybus_acc(*dot, low, eight as i32),
                };
                *dot = H::vrmpybus_acc(*dot, high, (eight >> 32) as i32);
            }
        }
        dots
    }

    /// Scales and minima of the first tile.
    ///
    /// # Safety
    /// The first tile exists.
    #[inline(always)]
    unsafe fn scale<H: Hvx>(&self) -> Scale<H> {
        // SAFETY: a line holds the scales and minima of one tile, or the scales of two; groups end on lines.
        let line = unsafe { H::vmem(self.scales) };
        if C::MINIMUM {
            return Scale::with_minimum(line);
        }
        let (scale, _) = H::vmpy_qf32_hf(H::vshuffh(line), H::lvsplatw(ONE_HALF_FLOATS));
        Scale { scale, minimum: line }
    }

    /// Scales and minima of both tiles.
    ///
    /// # Safety
    /// Both tiles exist.
    #[inline(always)]
    unsafe fn scales<H: Hvx>(&self) -> [Scale<H>; 2] {
        // SAFETY: a line holds the scales and minima of one tile, or the scales of two; groups end on lines.
        let line = unsafe { H::vmem(self.scales) };
        if C::MINIMUM {
            // SAFETY: as above.
            let second = unsafe { H::vmem(self.scales.wrapping_add(LINE / 2)) };
            return [line, second].map(Scale::with_minimum);
        }
        let (even, odd) = H::vmpy_qf32_hf(H::vshuffh(line), H::lvsplatw(ONE_HALF_FLOATS));
        [even, odd].map(|scale| Scale { scale, minimum: line })
    }
}

impl<H: Hvx> Scale<H> {
    /// From a line of scales and minima that alternate.
    #[inline(always)]
    fn with_minimum(line: H::V) -> Self {
        let (scale, minimum) = H::vmpy_qf32_hf(line, H::lvsplatw(ONE_HALF_FLOATS));
        Self {
            scale,
            minimum: H::vconv_sf_qf32(minimum),
        }
    }
}

/// The sums of `N` rows.
struct Sums<H: Hvx, const N: usize> {
    totals: [H::Qf32; N],
}

impl<H: Hvx, const N: usize> Sums<H, N> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            totals: [H::qf32_zero(); N],
        }
    }

    /// Adds a tile's products.
    ///
    /// # Safety
    /// The tile exists.
    #[inline(always)]
    unsafe fn add<C: Codes>(&mut self, at: &Place<C, N>, tile: usize, scale: &Scale<H>, dots: [H::V; N]) {
        for (row, total) in self.totals.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let factor = unsafe { at.factor::<H>(row, tile) };
            let dot = H::vmpy_qf32_sf(H::vconv_sf_w(dots[row]), factor);
            *total = H::vadd_qf32(*total, H::vmpy_qf32(dot, scale.scale));
        }
    }

    /// Adds a tile's minima times the activation sums, for types that have them.
    ///
    /// # Safety
    /// The tile exists.
    #[inline(always)]
    unsafe fn add_minima<C: Codes>(&mut self, at: &Place<C, N>, tile: usize, scale: &Scale<H>) {
        if C::MINIMUM {
            for (row, total) in self.totals.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                let sum = unsafe { at.value::<H>(row, tile, RECORD.sum) };
                *total = H::vadd_qf32(*total, H::vmpy_qf32_sf(scale.minimum, sum));
            }
        }
    }

    /// The sums as IEEE bits; NaN for rows that are not finite.
    #[inline(always)]
    fn values(self, rows: &[Row<'_>; N]) -> [H::V; N] {
        let mut values = [H::lvsplatw(f32::NAN.to_bits() as i32); N];
        for ((value, total), row) in values.iter_mut().zip(self.totals).zip(rows) {
            let sum = H::vconv_sf_qf32(total);
            // Zeros are sums of next to nothing.
            let magnitude = H::vand(sum, H::lvsplatw(i32::MAX));
            let is_normal = H::vgtw(magnitude, H::lvsplatw(f32::MIN_POSITIVE.to_bits() as i32 - 1));
            let sum = H::vmux(is_normal, sum, H::lvsplatw(0));
            if row.is_finite() {
                *value = sum;
            }
        }
        values
    }
}

#[cfg(test)]
mod tests;
