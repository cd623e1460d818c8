//! Activation rows prepared in scratch for matmul: int8 codes with f32 scales for tiled weights, plain f32 for the rest.
//!
//! A quantised row is its codes, then per block of 32 an f32 scale, an f32 sum of the block (scale times sum of codes,
//! for weights with a minimum) and the i32 sum of codes (for weights with a zero point). Scales are f32 throughout, so
//! no range of activations is shrunk or clipped: code = nearest even of x * (127 / amax), scale = amax / 127.
//! Blocks below [`SMALLEST`] count as zero; a block with an infinity or a NaN gets a NaN scale, so the results that
//! depend on it are NaN.

use hexloom_abi::scratch;

use super::rows::Row;
use crate::hvx::{self, Isa, Kernel, LANES, Part, math};
use crate::tensor::{Span, Tensor};

/// Largest magnitude of a block that is taken as all zero; 127 divided by more stays finite.
const SMALLEST: f32 = 1e-30;

/// Consecutive activation rows in scratch.
#[derive(Clone, Copy)]
pub(super) struct Prepared<'a> {
    bytes: Span<'a, u8>,
    row_bytes: usize,
    k: usize,
    quantized: bool,
}

impl<'a> Prepared<'a> {
    /// Room for as many rows of `k` elements as `bytes` holds.
    pub(super) fn new(bytes: Span<'a, u8>, k: usize, quantized: bool) -> Self {
        let row_bytes = if quantized {
            scratch::quantized_row_bytes(k as u32)
        } else {
            scratch::float_row_bytes(k as u32)
        };
        Self {
            bytes,
            row_bytes: row_bytes as usize,
            k,
            quantized,
        }
    }

    /// Rows that fit.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.len() / self.row_bytes
    }

    /// Elements of a row.
    #[inline(always)]
    pub(super) fn k(&self) -> usize {
        self.k
    }

    /// Codes of a quantised row.
    #[inline(always)]
    pub(super) fn codes(&self, row: usize) -> Span<'a, i8> {
        self.bytes.part(row * self.row_bytes, self.k).cast()
    }

    /// Scales of a quantised row, one per block.
    #[inline(always)]
    pub(super) fn scales(&self, row: usize) -> Span<'a, f32> {
        self.section(row, 0).cast()
    }

    /// Sums of a quantised row's blocks: scale times sum of codes.
    #[inline(always)]
    pub(super) fn sums(&self, row: usize) -> Span<'a, f32> {
        self.section(row, 1).cast()
    }

    /// Sums of the codes of a quantised row's blocks.
    #[inline(always)]
    pub(super) fn code_sums(&self, row: usize) -> Span<'a, i32> {
        self.section(row, 2).cast()
    }

    /// Elements of a float row, zeros up to a multiple of 32.
    #[inline(always)]
    pub(super) fn floats(&self, row: usize) -> Span<'a, f32> {
        self.bytes.part(row * self.row_bytes, self.row_bytes).cast()
    }

    #[inline(always)]
    fn section(&self, row: usize, idx: usize) -> Span<'a, u8> {
        let bytes = self.k / LANES * 4;
        self.bytes.part(row * self.row_bytes + self.k + idx * bytes, bytes)
    }
}

/// Prepares rows `first..first + count` of an activation.
pub(super) struct Prepare<'a> {
    pub(super) x: Tensor<'a>,
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) to: Prepared<'a>,
}

impl Prepare<'_> {
    #[inline(always)]
    fn quantize_block<I: Isa>(&self, row: usize, block: usize, x: I::F32) {
        let amax = I::max_lane(math::abs::<I>(x));
        // x - x is 0 for finite lanes and NaN for others.
        let finite = I::sum(I::sub(x, x)) == 0.0;
        let (scale, inverse) = if amax < SMALLEST {
            (0.0, 0.0)
        } else {
            (amax / 127.0, 127.0 / amax)
        };
        let (scale, codes) = if finite {
            (scale, I::to_int(I::mul(x, I::splat(inverse))))
        } else {
            (f32::NAN, I::splat_i(0))
        };
        // Sums of 32 codes are exact in f32 in any order.
        let sum = I::sum(I::to_float(codes));
        let target = self.to.codes(row).part(block * LANES, LANES);
        // SAFETY: `part` has checked 32 bytes.
        unsafe { I::store_i8(target.as_ptr(), codes) };
        self.to.scales(row).set(block, scale);
        self.to.sums(row).set(block, scale * sum);
        self.to.code_sums(row).set(block, sum as i32);
    }
}

impl Kernel for Prepare<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let blocks = self.to.k.div_ceil(LANES);
        for idx in part.range(self.count * blocks) {
            let (row, block) = (idx / blocks, idx % blocks);
            let x = Row::new(&self.x, self.x.row_index(self.first + row)).load::<I>(block * LANES, 0.0);
            if self.to.quantized {
                self.quantize_block::<I>(row, block, x);
            } else {
                hvx::store::<I>(self.to.floats(row), block * LANES, x);
            }
        }
    }
}

/// `count` (up to 32) halves from `start` as f32, zeros in the other lanes.
#[inline(always)]
pub(super) fn load_halves<I: Isa>(row: Span<'_, u16>, start: usize, count: usize) -> I::F32 {
    let row = row.part(start, count);
    if count == LANES {
        // SAFETY: the span has 32 halves.
        return unsafe { I::load_f16(row.as_ptr()) };
    }
    let mut halves = [0u16; LANES];
    for (idx, half) in halves.iter_mut().enumerate().take(count) {
        *half = row.get(idx);
    }
    // SAFETY: the array has 32 halves.
    unsafe { I::load_f16(halves.as_ptr()) }
}
