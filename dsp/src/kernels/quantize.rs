//! Activation rows prepared in scratch for matmul: int8 codes with f32 scales for tiled weights, plain f32 for the rest.
//!
//! A quantised row is one record per block of 32 (see [`crate::hvx::tiles`]). Scales are f32 throughout, so no range of
//! activations is shrunk or clipped: code = nearest even of x * (127 / amax), scale = amax / 127.
//! A fine row is two such rows: the codes, and the codes of what they leave over, with scales of their own.
//! Blocks below [`SMALLEST`] count as zero; a block with an infinity or a NaN gets a NaN scale, so the results that
//! depend on it are NaN.

use hexloom_abi::scratch;

use super::rows::Row;
use crate::hvx::tiles;
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
    form: Form,
}

/// What activation rows are prepared as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// f32 elements, for float weights.
    Floats,
    /// Int8 codes, one term.
    Codes,
    /// Int8 codes and those of the remainder: rows 2r and 2r + 1.
    FineCodes,
}

impl Form {
    /// What `rows` activation rows are prepared as for a weight.
    pub(super) fn of(weight: &Tensor<'_>, rows: usize) -> Self {
        match (
            weight.shape().tiled,
            scratch::activation_terms(weight.dtype(), rows as u64),
        ) {
            (false, _) => Self::Floats,
            (true, 1) => Self::Codes,
            (true, _) => Self::FineCodes,
        }
    }

    /// Prepared rows per activation row.
    #[inline(always)]
    pub(super) fn terms(self) -> usize {
        match self {
            Self::Floats | Self::Codes => 1,
            Self::FineCodes => 2,
        }
    }
}

impl<'a> Prepared<'a> {
    /// Room for as many rows of `k` elements as `bytes` holds.
    pub(super) fn new<I: Isa>(bytes: Span<'a, u8>, k: usize, form: Form) -> Self {
        let row_bytes = match form {
            Form::Floats => scratch::float_row_bytes(k as u32) as usize,
            Form::Codes | Form::FineCodes => tiles::Row::bytes::<I>(k / LANES),
        };
        Self {
            bytes,
            row_bytes,
            k,
            form,
        }
    }

    /// Activation rows that fit.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.len() / (self.row_bytes * self.form.terms())
    }

    /// What the rows are prepared as.
    #[inline(always)]
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Elements of a row.
    #[inline(always)]
    pub(super) fn k(&self) -> usize {
        self.k
    }

    /// A quantised row.
    #[inline(always)]
    pub(super) fn codes<I: Isa>(&self, row: usize) -> tiles::Row<'a> {
        let bytes = self.bytes.part(row * self.row_bytes, self.row_bytes);
        tiles::Row::new::<I>(bytes, self.k / LANES)
    }

    /// Before any of the first `count` activation rows is prepared.
    pub(super) fn begin<I: Isa>(&self, count: usize) {
        if self.form != Form::Floats {
            for row in 0..count * self.form.terms() {
                self.codes::<I>(row).begin();
            }
        }
    }

    /// Elements of a float row, zeros up to a multiple of 32.
    #[inline(always)]
    pub(super) fn floats(&self, row: usize) -> Span<'a, f32> {
        self.bytes.part(row * self.row_bytes, self.row_bytes).cast()
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
    /// Stores the codes of one block and gives what they leave over.
    #[inline(always)]
    fn quantize_block<I: Isa>(&self, row: usize, block: usize, x: I::F32) -> I::F32 {
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
        let row = self.to.codes::<I>(row);
        row.set::<I>(block, codes, scale, sum as i32);
        I::sub(x, I::mul(I::to_float(codes), I::splat(scale)))
    }
}

impl Kernel for Prepare<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let blocks = self.to.k.div_ceil(LANES);
        for idx in part.range(self.count * blocks) {
            let (row, block) = (idx / blocks, idx % blocks);
            let x = Row::new(&self.x, self.x.row_index(self.first + row)).load::<I>(block * LANES, 0.0);
            match self.to.form {
                Form::Floats => hvx::store::<I>(self.to.floats(row), block * LANES, x),
                Form::Codes => {
                    self.quantize_block::<I>(row, block, x);
                }
                Form::FineCodes => {
                    let rest = self.quantize_block::<I>(2 * row, block, x);
                    self.quantize_block::<I>(2 * row + 1, block, rest);
                }
            }
        }
    }
}

/// `count` (up to 32) halves from `start` as f32, zeros in the other lanes.
#[inline(always)]
pub(crate) fn load_halves<I: Isa>(row: Span<'_, u16>, start: usize, count: usize) -> I::F32 {
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
