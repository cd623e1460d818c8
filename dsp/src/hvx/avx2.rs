//! The vector layer on x86-64 with AVX2 and F16C: a vector is four 256-bit registers, results equal `Plain` bit for bit.
//!
//! The methods compile to AVX2 instructions only once they are inlined into [`Isa::invoke`], which is also where the
//! processor is asked whether it has them; on one that has not, `invoke` runs the same kernel on `Plain`. The module is
//! private so that nothing else calls the methods. There is no AVX-512 member: no machine of the project has it, and
//! code that never ran is not shipped. No FMA is used anywhere, by the layer's rule.

use core::arch::x86_64::*;
use core::sync::atomic::{AtomicU8, Ordering};

use super::plain::Plain;
use super::{Isa, Kernel, LANES, Part};

/// Lanes in four registers of eight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2;

/// One intrinsic without a memory operand; operands are evaluated outside the unsafe block.
macro_rules! op {
    ($name:ident $(::<$n:tt>)? ($($constant:literal),*)) => {
        // SAFETY: kernels run through `invoke`, which has found AVX2 and F16C in this processor.
        unsafe { $name $(::<$n>)? ($($constant),*) }
    };
    ($name:ident $(::<$n:tt>)? ($a:expr)) => {{
        let a = $a;
        // SAFETY: as above.
        unsafe { $name $(::<$n>)? (a) }
    }};
    ($name:ident $(::<$n:tt>)? ($a:expr, $b:expr)) => {{
        let (a, b) = ($a, $b);
        // SAFETY: as above.
        unsafe { $name $(::<$n>)? (a, b) }
    }};
    ($name:ident $(::<$n:tt>)? ($a:expr, $b:expr, $c:expr)) => {{
        let (a, b, c) = ($a, $b, $c);
        // SAFETY: as above.
        unsafe { $name $(::<$n>)? (a, b, c) }
    }};
}

/// An intrinsic on each of the four registers of one or two vectors.
macro_rules! each {
    ($name:ident $(::<$n:tt>)?, $a:expr) => {{
        let a = $a;
        [
            op!($name $(::<$n>)? (a[0])),
            op!($name $(::<$n>)? (a[1])),
            op!($name $(::<$n>)? (a[2])),
            op!($name $(::<$n>)? (a[3])),
        ]
    }};
    ($name:ident $(::<$n:tt>)?, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        [
            op!($name $(::<$n>)? (a[0], b[0])),
            op!($name $(::<$n>)? (a[1], b[1])),
            op!($name $(::<$n>)? (a[2], b[2])),
            op!($name $(::<$n>)? (a[3], b[3])),
        ]
    }};
}

/// Whether this processor, and its operating system, has AVX2 and F16C.
pub(crate) fn available() -> bool {
    const UNKNOWN: u8 = 0;
    const ABSENT: u8 = 1;
    const PRESENT: u8 = 2;
    static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);
    match FOUND.load(Ordering::Relaxed) {
        UNKNOWN => {
            let found = detect();
            FOUND.store(if found { PRESENT } else { ABSENT }, Ordering::Relaxed);
            found
        }
        found => found == PRESENT,
    }
}

/// Asks the processor itself, because `core` has no feature detection.
fn detect() -> bool {
    const XSAVE_AVX_F16C: u32 = 1 << 27 | 1 << 28 | 1 << 29;
    const AVX2: u32 = 1 << 5;
    const SAVED_STATE: u64 = 0b110; // the operating system keeps SSE and AVX registers
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & XSAVE_AVX_F16C != XSAVE_AVX_F16C {
        return false;
    }
    // SAFETY: bit 27 (OSXSAVE) says that the instruction is there and allowed.
    let state = unsafe { saved_state() };
    state & SAVED_STATE == SAVED_STATE && __cpuid_count(7, 0).ebx & AVX2 != 0
}

#[target_feature(enable = "xsave")]
fn saved_state() -> u64 {
    // SAFETY: register 0 always exists.
    unsafe { _xgetbv(0) }
}

#[target_feature(enable = "avx2,f16c")]
fn invoke_with_features<K: Kernel>(kernel: &K, part: Part) {
    kernel.run::<Avx2>(part);
}

/// Folds four registers onto one in the layer's order.
macro_rules! fold_registers {
    ($name:ident, $x:expr) => {{
        let x = $x;
        let low = op!($name(x[0], x[2]));
        let high = op!($name(x[1], x[3]));
        op!($name(low, high))
    }};
}

/// Folds the eight lanes of a register in the layer's order: 4, 2, 1.
macro_rules! fold_lanes {
    ($name:ident, $x:expr) => {{
        let x = $x;
        let x = op!($name(
            op!(_mm256_castps256_ps128(x)),
            op!(_mm256_extractf128_ps::<1>(x))
        ));
        let x = op!($name(x, op!(_mm_movehl_ps(x, x))));
        let x = op!($name(x, op!(_mm_shuffle_ps::<1>(x, x))));
        op!(_mm_cvtss_f32(x))
    }};
}

/// 32 bytes from any address.
///
/// # Safety
/// 32 bytes at `ptr` are readable.
#[inline(always)]
unsafe fn load<T>(ptr: *const T) -> __m256i {
    // SAFETY: the caller promises 32 readable bytes; the instruction asks for no alignment.
    unsafe { _mm256_loadu_si256(ptr.cast()) }
}

/// Four activations in every lane.
///
/// # Safety
/// 4 bytes at `act` are readable.
#[inline(always)]
unsafe fn broadcast_word(act: *const i8) -> __m256i {
    // SAFETY: the caller promises 4 readable bytes.
    let word = unsafe { act.cast::<i32>().read_unaligned() };
    op!(_mm256_set1_epi32(word))
}

impl Isa for Avx2 {
    const NAME: &'static str = "avx2";
    type F32 = [__m256; 4];
    type I32 = [__m256i; 4];

    #[inline]
    fn invoke<K: Kernel>(kernel: &K, part: Part) {
        if available() {
            // SAFETY: `available` has just found the features.
            unsafe { invoke_with_features(kernel, part) };
        } else {
            Plain::invoke(kernel, part);
        }
    }

    #[inline(always)]
    fn splat(x: f32) -> Self::F32 {
        [op!(_mm256_set1_ps(x)); 4]
    }
    #[inline(always)]
    fn splat_i(x: i32) -> Self::I32 {
        [op!(_mm256_set1_epi32(x)); 4]
    }
    #[inline(always)]
    fn from_array(lanes: [f32; LANES]) -> Self::F32 {
        // SAFETY: an array of 32 lanes has 128 readable bytes.
        unsafe { Self::load_f32(lanes.as_ptr()) }
    }
    #[inline(always)]
    fn to_array(x: Self::F32) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        // SAFETY: an array of 32 lanes has 128 writable bytes.
        unsafe { Self::store_f32(lanes.as_mut_ptr(), x) };
        lanes
    }

    #[inline(always)]
    unsafe fn load_f32(ptr: *const f32) -> Self::F32 {
        // SAFETY: the caller promises 128 readable bytes.
        Self::from_bits(unsafe { Self::load_i32(ptr.cast()) })
    }
    #[inline(always)]
    unsafe fn load_f16(ptr: *const u16) -> Self::F32 {
        // SAFETY: the caller promises 64 readable bytes, of which these are the first 32.
        let low = unsafe { load(ptr) };
        // SAFETY: as above, the last 32.
        let high = unsafe { load(ptr.wrapping_add(16)) };
        let halves = [
            op!(_mm256_castsi256_si128(low)),
            op!(_mm256_extracti128_si256::<1>(low)),
            op!(_mm256_castsi256_si128(high)),
            op!(_mm256_extracti128_si256::<1>(high)),
        ];
        each!(_mm256_cvtph_ps, halves)
    }
    #[inline(always)]
    unsafe fn load_i32(ptr: *const i32) -> Self::I32 {
        // SAFETY: the caller promises 128 readable bytes; these are bytes 0 to 31.
        let first = unsafe { load(ptr) };
        // SAFETY: bytes 32 to 63.
        let second = unsafe { load(ptr.wrapping_add(8)) };
        // SAFETY: bytes 64 to 95.
        let third = unsafe { load(ptr.wrapping_add(16)) };
        // SAFETY: bytes 96 to 127.
        let fourth = unsafe { load(ptr.wrapping_add(24)) };
        [first, second, third, fourth]
    }
    #[inline(always)]
    unsafe fn load_i8(ptr: *const i8) -> Self::I32 {
        // SAFETY: the caller promises 32 readable bytes.
        let bytes = unsafe { load(ptr) };
        let low = op!(_mm256_castsi256_si128(bytes));
        let high = op!(_mm256_extracti128_si256::<1>(bytes));
        [
            op!(_mm256_cvtepi8_epi32(low)),
            op!(_mm256_cvtepi8_epi32(op!(_mm_srli_si128::<8>(low)))),
            op!(_mm256_cvtepi8_epi32(high)),
            op!(_mm256_cvtepi8_epi32(op!(_mm_srli_si128::<8>(high)))),
        ]
    }
    #[inline(always)]
    unsafe fn store_f32(ptr: *mut f32, x: Self::F32) {
        // SAFETY: the caller promises 128 writable bytes; the write asks for no alignment.
        unsafe { ptr.cast::<[__m256; 4]>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn store_f16(ptr: *mut u16, x: Self::F32) {
        let halves = each!(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>, x);
        // SAFETY: the caller promises 64 writable bytes; the write asks for no alignment.
        unsafe { ptr.cast::<[__m128i; 4]>().write_unaligned(halves) }
    }
    #[inline(always)]
    unsafe fn store_i8(ptr: *mut i8, x: Self::I32) {
        let low = op!(_mm256_packs_epi32(x[0], x[1]));
        let high = op!(_mm256_packs_epi32(x[2], x[3]));
        let mixed = op!(_mm256_packs_epi16(low, high));
        // Packing works within halves of a register, which leaves groups of four bytes in the order 0 2 4 6 1 3 5 7.
        let order = op!(_mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        let bytes = op!(_mm256_permutevar8x32_epi32(mixed, order));
        // SAFETY: the caller promises 32 writable bytes; the write asks for no alignment.
        unsafe { ptr.cast::<__m256i>().write_unaligned(bytes) }
    }

    #[inline(always)]
    fn add(a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(_mm256_add_ps, a, b)
    }
    #[inline(always)]
    fn sub(a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(_mm256_sub_ps, a, b)
    }
    #[inline(always)]
    fn mul(a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(_mm256_mul_ps, a, b)
    }
    #[inline(always)]
    fn div(a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(_mm256_div_ps, a, b)
    }
    #[inline(always)]
    fn sqrt(x: Self::F32) -> Self::F32 {
        each!(_mm256_sqrt_ps, x)
    }
    #[inline(always)]
    fn max(a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(_mm256_max_ps, a, b)
    }
    #[inline(always)]
    fn min(a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(_mm256_min_ps, a, b)
    }
    #[inline(always)]
    fn gt(a: Self::F32, b: Self::F32) -> Self::I32 {
        Self::bits(each!(_mm256_cmp_ps::<_CMP_GT_OQ>, a, b))
    }
    #[inline(always)]
    fn eq(a: Self::F32, b: Self::F32) -> Self::I32 {
        Self::bits(each!(_mm256_cmp_ps::<_CMP_EQ_OQ>, a, b))
    }
    #[inline(always)]
    fn select(mask: Self::I32, a: Self::F32, b: Self::F32) -> Self::F32 {
        let mask = Self::from_bits(mask);
        [
            op!(_mm256_blendv_ps(b[0], a[0], mask[0])),
            op!(_mm256_blendv_ps(b[1], a[1], mask[1])),
            op!(_mm256_blendv_ps(b[2], a[2], mask[2])),
            op!(_mm256_blendv_ps(b[3], a[3], mask[3])),
        ]
    }
    #[inline(always)]
    fn bits(x: Self::F32) -> Self::I32 {
        each!(_mm256_castps_si256, x)
    }
    #[inline(always)]
    fn from_bits(x: Self::I32) -> Self::F32 {
        each!(_mm256_castsi256_ps, x)
    }
    #[inline(always)]
    fn to_int(x: Self::F32) -> Self::I32 {
        each!(_mm256_cvtps_epi32, x)
    }
    #[inline(always)]
    fn to_float(x: Self::I32) -> Self::F32 {
        each!(_mm256_cvtepi32_ps, x)
    }

    #[inline(always)]
    fn add_i(a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(_mm256_add_epi32, a, b)
    }
    #[inline(always)]
    fn sub_i(a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(_mm256_sub_epi32, a, b)
    }
    #[inline(always)]
    fn and(a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(_mm256_and_si256, a, b)
    }
    #[inline(always)]
    fn or(a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(_mm256_or_si256, a, b)
    }
    #[inline(always)]
    fn xor(a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(_mm256_xor_si256, a, b)
    }
    #[inline(always)]
    fn shl<const N: i32>(a: Self::I32) -> Self::I32 {
        each!(_mm256_slli_epi32::<N>, a)
    }
    #[inline(always)]
    fn sar<const N: i32>(a: Self::I32) -> Self::I32 {
        each!(_mm256_srai_epi32::<N>, a)
    }
    #[inline(always)]
    fn gt_i(a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(_mm256_cmpgt_epi32, a, b)
    }

    #[inline(always)]
    fn sum(x: Self::F32) -> f32 {
        fold_lanes!(_mm_add_ps, fold_registers!(_mm256_add_ps, x))
    }
    #[inline(always)]
    fn max_lane(x: Self::F32) -> f32 {
        fold_lanes!(_mm_max_ps, fold_registers!(_mm256_max_ps, x))
    }

    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "rows and registers index three arrays at once"
    )]
    unsafe fn dot_tile_u4<const N: usize>(codes: *const u8, act: [*const i8; N], start: [i32; N]) -> [Self::I32; N] {
        let nibble = op!(_mm256_set1_epi8(15));
        let ones = op!(_mm256_set1_epi16(1));
        let mut sums = [[op!(_mm256_setzero_si256()); 4]; N];
        for register in 0..4 {
            let mut low = [nibble; 4];
            let mut high = [nibble; 4];
            for vector in 0..4 {
                // SAFETY: at most 3 * 128 + 3 * 32 + 32 = 512 bytes, which the caller promises.
                let pair = unsafe { load(codes.wrapping_add(vector * 128 + register * 32)) };
                low[vector] = op!(_mm256_and_si256(pair, nibble));
                high[vector] = op!(_mm256_and_si256(op!(_mm256_srli_epi16::<4>(pair)), nibble));
            }
            for row in 0..N {
                // Eight products of pairs stay within 16 bits: 8 * 2 * 15 * 127 = 30480.
                let mut pairs = op!(_mm256_setzero_si256());
                for vector in 0..4 {
                    // SAFETY: bytes 8v to 8v + 3 of 32.
                    let word = unsafe { broadcast_word(act[row].wrapping_add(8 * vector)) };
                    let product = op!(_mm256_maddubs_epi16(low[vector], word));
                    pairs = op!(_mm256_add_epi16(pairs, product));
                    // SAFETY: bytes 8v + 4 to 8v + 7 of 32.
                    let word = unsafe { broadcast_word(act[row].wrapping_add(8 * vector + 4)) };
                    let product = op!(_mm256_maddubs_epi16(high[vector], word));
                    pairs = op!(_mm256_add_epi16(pairs, product));
                }
                let sum = op!(_mm256_madd_epi16(pairs, ones));
                sums[row][register] = op!(_mm256_add_epi32(sum, op!(_mm256_set1_epi32(start[row]))));
            }
        }
        sums
    }

    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "rows and registers index three arrays at once"
    )]
    unsafe fn dot_tile_u8<const N: usize>(codes: *const u8, act: [*const i8; N], _start: [i32; N]) -> [Self::I32; N] {
        let offset = op!(_mm256_set1_epi8(-128));
        let ones = op!(_mm256_set1_epi16(1));
        let mut sums = [[op!(_mm256_setzero_si256()); 4]; N];
        for register in 0..4 {
            for vector in 0..8 {
                // SAFETY: at most 7 * 128 + 3 * 32 + 32 = 1024 bytes, which the caller promises.
                let code = unsafe { load(codes.wrapping_add(vector * 128 + register * 32)) };
                let code = op!(_mm256_xor_si256(code, offset));
                let magnitude = op!(_mm256_abs_epi8(code));
                for row in 0..N {
                    // SAFETY: bytes 4v to 4v + 3 of 32.
                    let word = unsafe { broadcast_word(act[row].wrapping_add(4 * vector)) };
                    // The sign moves to the activation, so that a pair is at most 2 * 128 * 127 = 32512.
                    let signed = op!(_mm256_sign_epi8(word, code));
                    let pairs = op!(_mm256_maddubs_epi16(magnitude, signed));
                    let sum = op!(_mm256_madd_epi16(pairs, ones));
                    sums[row][register] = op!(_mm256_add_epi32(sums[row][register], sum));
                }
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests;
