//! The member itself: the vector layer's operations, each a few instructions.
//!
//! Arrays of lanes go through memory; kernels use them for the ends of rows that do not fill a vector.

use super::{Device, Flavour, Hvx, bits, tiles};
use crate::hvx::tiles::{Codes, Row, Tiles};
use crate::hvx::{Isa, Kernel, LANES, Part};

/// Lanes 0, 2, 4, ...
const EVEN: [i32; LANES] = {
    let mut mask = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        mask[lane] = -1;
        lane += 2;
    }
    mask
};

/// Four activations as a scalar register.
///
/// # Safety
/// 4 bytes at `act` are readable, on a boundary of 4.
#[inline(always)]
unsafe fn word(act: *const i8) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { act.cast::<i32>().read() }
}

impl<H: Hvx, F: Flavour> Isa for Device<H, F> {
    const NAME: &'static str = F::NAME;
    type F32 = H::V;
    type I32 = H::V;
    const SCALE_LANES: usize = LANES;

    #[inline(never)]
    fn invoke<K: Kernel>(kernel: &K, part: Part) {
        kernel.run::<Self>(part);
    }

    #[inline(always)]
    fn splat(x: f32) -> H::V {
        H::lvsplatw(x.to_bits() as i32)
    }
    #[inline(always)]
    fn splat_i(x: i32) -> H::V {
        H::lvsplatw(x)
    }
    #[inline(always)]
    fn from_array(lanes: [f32; LANES]) -> H::V {
        // SAFETY: `lanes` is 128 bytes.
        unsafe { H::vmemu(lanes.as_ptr()) }
    }
    #[inline(always)]
    fn to_array(x: H::V) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        // SAFETY: `lanes` is 128 bytes.
        unsafe { H::vmemu_store(lanes.as_mut_ptr(), x) };
        lanes
    }

    #[inline(always)]
    unsafe fn load_f32(ptr: *const f32) -> H::V {
        // SAFETY: the caller promises 128 readable bytes.
        unsafe { H::vmemu(ptr) }
    }
    #[inline(always)]
    unsafe fn load_f16(ptr: *const u16) -> H::V {
        // SAFETY: the caller promises 64 readable bytes.
        let halves = unsafe { H::vmemu_part::<u16, 64>(ptr) };
        bits::widen::<H>(H::vunpackuh(halves).0)
    }
    #[inline(always)]
    unsafe fn load_f16_pair(ptr: *const u16) -> [H::V; 2] {
        // SAFETY: the caller promises 128 readable bytes.
        let pairs = unsafe { H::vmemu(ptr) };
        let even = H::vand(pairs, H::lvsplatw(0xffff));
        [bits::widen::<H>(even), bits::widen::<H>(H::vlsrw(pairs, 16))]
    }
    #[inline(always)]
    unsafe fn store_f16_pair(ptr: *mut u16, even: H::V, odd: H::V) {
        let odd = H::vaslw(bits::narrow::<H>(odd), 16);
        // SAFETY: the caller promises 128 writable bytes.
        unsafe { H::vmemu_store(ptr, H::vor(bits::narrow::<H>(even), odd)) }
    }
    #[inline(always)]
    unsafe fn load_i32(ptr: *const i32) -> H::V {
        // SAFETY: the caller promises 128 readable bytes.
        unsafe { H::vmemu(ptr) }
    }
    #[inline(always)]
    unsafe fn load_i8(ptr: *const i8) -> H::V {
        // SAFETY: the caller promises 32 readable bytes.
        let bytes = unsafe { H::vmemu_part::<i8, 32>(ptr) };
        H::vunpackh(H::vunpackb(bytes).0).0
    }
    #[inline(always)]
    unsafe fn store_f32(ptr: *mut f32, x: H::V) {
        // SAFETY: the caller promises 128 writable bytes.
        unsafe { H::vmemu_store(ptr, x) }
    }
    #[inline(always)]
    unsafe fn store_f16(ptr: *mut u16, x: H::V) {
        let halves = bits::narrow::<H>(x);
        // SAFETY: the caller promises 64 writable bytes, on a boundary of a half.
        unsafe { H::vmemu_store_part::<u16, 64>(ptr, H::vpackeh(halves, halves)) }
    }
    #[inline(always)]
    unsafe fn store_i8(ptr: *mut i8, x: H::V) {
        let halves = H::vpackeh(x, x);
        // SAFETY: the caller promises 32 writable bytes, on a boundary of 4.
        unsafe { H::vmemu_store_part::<i8, 32>(ptr, H::vpackeb(halves, halves)) }
    }

    #[inline(always)]
    fn add(a: H::V, b: H::V) -> H::V {
        F::add::<H>(a, b)
    }
    #[inline(always)]
    fn sub(a: H::V, b: H::V) -> H::V {
        F::sub::<H>(a, b)
    }
    #[inline(always)]
    fn mul(a: H::V, b: H::V) -> H::V {
        F::mul::<H>(a, b)
    }
    #[inline(always)]
    fn exact_add(a: H::V, b: H::V) -> H::V {
        F::exact_add::<H>(a, b)
    }
    #[inline(always)]
    fn exact_sub(a: H::V, b: H::V) -> H::V {
        F::exact_add::<H>(a, H::vxor(b, H::lvsplatw(bits::SIGN)))
    }
    #[inline(always)]
    fn exact_mul(a: H::V, b: H::V) -> H::V {
        F::exact_mul::<H>(a, b)
    }
    #[inline(always)]
    fn exp_rest(x: H::V, n: H::V) -> H::V {
        F::exp_rest::<H>(x, n)
    }
    #[inline(always)]
    fn div(a: H::V, b: H::V) -> H::V {
        bits::div::<H>(a, b)
    }
    #[inline(always)]
    fn sqrt(x: H::V) -> H::V {
        bits::sqrt::<H>(x)
    }
    #[inline(always)]
    fn max(a: H::V, b: H::V) -> H::V {
        H::vmux(bits::gt::<H>(a, b), a, b)
    }
    #[inline(always)]
    fn min(a: H::V, b: H::V) -> H::V {
        H::vmux(bits::gt::<H>(b, a), a, b)
    }
    #[inline(always)]
    fn gt(a: H::V, b: H::V) -> H::V {
        H::vandqrt(bits::gt::<H>(a, b))
    }
    #[inline(always)]
    fn eq(a: H::V, b: H::V) -> H::V {
        H::vandqrt(bits::eq::<H>(a, b))
    }
    #[inline(always)]
    fn select(mask: H::V, a: H::V, b: H::V) -> H::V {
        H::vmux(H::vandvrt(mask), a, b)
    }
    #[inline(always)]
    fn swap_pairs(x: H::V) -> H::V {
        H::vmux(H::vandvrt(H::from_words(EVEN)), H::vror(x, 4), H::vror(x, 124))
    }
    #[inline(always)]
    fn bits(x: H::V) -> H::V {
        x
    }
    #[inline(always)]
    fn from_bits(x: H::V) -> H::V {
        x
    }
    #[inline(always)]
    fn to_int(x: H::V) -> H::V {
        bits::to_int::<H>(x)
    }
    #[inline(always)]
    fn to_float(x: H::V) -> H::V {
        H::vconv_sf_w(x)
    }

    #[inline(always)]
    fn add_i(a: H::V, b: H::V) -> H::V {
        H::vaddw(a, b)
    }
    #[inline(always)]
    fn sub_i(a: H::V, b: H::V) -> H::V {
        H::vsubw(a, b)
    }
    #[inline(always)]
    fn and(a: H::V, b: H::V) -> H::V {
        H::vand(a, b)
    }
    #[inline(always)]
    fn or(a: H::V, b: H::V) -> H::V {
        H::vor(a, b)
    }
    #[inline(always)]
    fn xor(a: H::V, b: H::V) -> H::V {
        H::vxor(a, b)
    }
    #[inline(always)]
    fn shl<const N: i32>(a: H::V) -> H::V {
        H::vaslw(a, N)
    }
    #[inline(always)]
    fn sar<const N: i32>(a: H::V) -> H::V {
        H::vasrw(a, N)
    }
    #[inline(always)]
    fn gt_i(a: H::V, b: H::V) -> H::V {
        H::vandqrt(H::vgtw(a, b))
    }

    #[inline(always)]
    fn sum(x: H::V) -> f32 {
        // Lanes beyond the folded ones hold sums of other lanes, which nobody reads.
        let mut sum = x;
        for bytes in [64, 32, 16, 8, 4] {
            sum = Self::add(sum, H::vror(sum, bytes));
        }
        f32::from_bits(H::vextract(sum, 0) as u32)
    }
    #[inline(always)]
    fn exact_sum(x: H::V) -> f32 {
        let mut sum = x;
        for bytes in [64, 32, 16, 8, 4] {
            sum = F::exact_add::<H>(sum, H::vror(sum, bytes));
        }
        f32::from_bits(H::vextract(sum, 0) as u32)
    }
    #[inline(always)]
    fn max_lane(x: H::V) -> f32 {
        let mut max = x;
        for bytes in [64, 32, 16, 8, 4] {
            max = Self::max(max, H::vror(max, bytes));
        }
        f32::from_bits(H::vextract(max, 0) as u32)
    }

    #[inline(always)]
    unsafe fn dot_tile_u4<const N: usize>(codes: *const u8, act: [*const i8; N], start: [i32; N]) -> [H::V; N] {
        let nibble = H::lvsplatw(0x0f0f_0f0f);
        let mut sums = start.map(H::lvsplatw);
        for vector in 0..4 {
            // SAFETY: at most 3 * 128 + 128 = 512 bytes, which the caller promises.
            let pair = unsafe { H::vmemu(codes.wrapping_add(vector * 128)) };
            let low = H::vand(pair, nibble);
            let high = H::vlsrb(pair, 4);
            for (sum, act) in sums.iter_mut().zip(act) {
                // SAFETY: bytes 8v to 8v + 3 of 32, on a boundary of 4.
                let four = unsafe { word(act.wrapping_add(8 * vector)) };
                *sum = H::vrmpybus_acc(*sum, low, four);
                // SAFETY: bytes 8v + 4 to 8v + 7 of 32, on a boundary of 4.
                let four = unsafe { word(act.wrapping_add(8 * vector + 4)) };
                *sum = H::vrmpybus_acc(*sum, high, four);
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn dot_tile_u8<const N: usize>(codes: *const u8, act: [*const i8; N], start: [i32; N]) -> [H::V; N] {
        let mut sums = start.map(H::lvsplatw);
        for vector in 0..8 {
            // SAFETY: at most 7 * 128 + 128 = 1024 bytes, which the caller promises.
            let code = unsafe { H::vmemu(codes.wrapping_add(vector * 128)) };
            for (sum, act) in sums.iter_mut().zip(act) {
                // SAFETY: bytes 4v to 4v + 3 of 32, on a boundary of 4.
                let four = unsafe { word(act.wrapping_add(4 * vector)) };
                *sum = H::vrmpybus_acc(*sum, code, four);
            }
        }
        sums
    }

    #[inline(always)]
    fn dot_rows<C: Codes, const N: usize>(tiles: &Tiles<'_>, rows: &[Row<'_>; N]) -> [H::V; N] {
        tiles::dot_rows::<H, C, N>(tiles, rows)
    }
}
