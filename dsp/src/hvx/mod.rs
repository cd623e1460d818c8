//! The thin vector layer: 128-byte vectors of 32 lanes, written once for every instruction set.
//!
//! A kernel is generic over [`Isa`] and compiled for each member: `plain` everywhere, `avx2` on PCs that have it (found
//! at run time), `hexagon` on Hexagon. The layer fixes what results may depend on, so that every member with IEEE floats gives
//! the same bits:
//! - one multiply and one add are two roundings (no contraction to FMA);
//! - `max`/`min` are `if a > b { a } else { b }` / `if a < b { a } else { b }` (b when either is NaN);
//! - horizontal sums and maxima fold the upper half of the lanes onto the lower half: 16, 8, 4, 2, 1;
//! - float to int rounds to nearest even and is only asked for values within i32; f32 to f16 rounds to nearest even and
//!   overflows to infinity; f16 subnormals are kept both ways;
//! - every transcendental in [`math`] is built from these operations.
//!
//! Everything here is `#[inline(always)]`: a function that is called and not inlined would be compiled without the
//! instruction set's features.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
pub mod device;
#[cfg(all(
    target_arch = "hexagon",
    not(any(target_feature = "hvx-qfloat", target_feature = "hvx-ieee-fp"))
))]
mod hexagon;
pub mod math;
pub mod plain;
pub mod tiles;
#[cfg(all(test, not(target_arch = "hexagon")))]
mod trials;

use self::tiles::{Codes, Row, Tiles};
use crate::tensor::Span;

/// The member of an image for a device with IEEE floats (v79 and later).
#[cfg(all(target_arch = "hexagon", target_feature = "hvx-ieee-fp"))]
pub(crate) type Native = device::Device<device::Intrinsics, device::Ieee>;
/// The member of an image for a device with qfloat (v68 to v75).
#[cfg(all(
    target_arch = "hexagon",
    target_feature = "hvx-qfloat",
    not(target_feature = "hvx-ieee-fp")
))]
pub(crate) type Native = device::Device<device::Intrinsics, device::Qfloat>;
/// The member of the emulator's image.
#[cfg(all(
    target_arch = "hexagon",
    not(any(target_feature = "hvx-qfloat", target_feature = "hvx-ieee-fp"))
))]
pub(crate) use hexagon::Hexagon as Native;

/// Lanes of a vector.
pub const LANES: usize = 32;

/// A share of a kernel's work: part `idx` of `count`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Which part, below `count`.
    pub idx: usize,
    /// How many parts there are, at least 1.
    pub count: usize,
}

/// Work that is split over threads and compiled for each instruction set.
pub trait Kernel: Sync {
    /// Does one part. Implementations are `#[inline(always)]`.
    fn run<I: Isa>(&self, part: Part);
}

/// One instruction set: 32 lanes of f32 or i32, and how to compile a kernel for it.
pub trait Isa: Copy + Send + Sync + 'static {
    /// Name in profiles and test output.
    const NAME: &'static str;
    /// 32 lanes of f32.
    type F32: Copy;
    /// 32 lanes of i32; a mask has all bits of a lane equal.
    type I32: Copy;
    /// How often the values of a prepared activation are stored: once, or across a vector's lanes.
    const SCALE_LANES: usize = 1;

    /// Runs one part of a kernel compiled with this instruction set's features.
    fn invoke<K: Kernel>(kernel: &K, part: Part);

    /// All lanes `x`.
    fn splat(x: f32) -> Self::F32;
    /// All lanes `x`.
    fn splat_i(x: i32) -> Self::I32;
    /// Lanes from an array.
    fn from_array(lanes: [f32; LANES]) -> Self::F32;
    /// Lanes as an array.
    fn to_array(x: Self::F32) -> [f32; LANES];

    /// 32 f32 from any address.
    ///
    /// # Safety
    /// 128 bytes at `ptr` are readable.
    unsafe fn load_f32(ptr: *const f32) -> Self::F32;
    /// 32 f16 (as bits) widened to f32, exactly.
    ///
    /// # Safety
    /// 64 bytes at `ptr` are readable.
    unsafe fn load_f16(ptr: *const u16) -> Self::F32;
    /// 32 i32 from any address.
    ///
    /// # Safety
    /// 128 bytes at `ptr` are readable.
    unsafe fn load_i32(ptr: *const i32) -> Self::I32;
    /// 32 signed bytes widened to i32.
    ///
    /// # Safety
    /// 32 bytes at `ptr` are readable.
    unsafe fn load_i8(ptr: *const i8) -> Self::I32;
    /// Stores 32 f32 at any address.
    ///
    /// # Safety
    /// 128 bytes at `ptr` are writable.
    unsafe fn store_f32(ptr: *mut f32, x: Self::F32);
    /// Stores 32 f32 narrowed to f16.
    ///
    /// # Safety
    /// 64 bytes at `ptr` are writable and lie on a boundary of 2.
    unsafe fn store_f16(ptr: *mut u16, x: Self::F32);
    /// Two vectors of f16 whose lanes alternate, widened to f32: the even ones and the odd ones.
    ///
    /// # Safety
    /// 128 bytes at `ptr` are readable.
    #[inline(always)]
    unsafe fn load_f16_pair(ptr: *const u16) -> [Self::F32; 2] {
        // SAFETY: the caller promises 128 readable bytes; the read asks for no alignment.
        let pairs = unsafe { ptr.cast::<[u32; LANES]>().read_unaligned() };
        let (even, odd) = (pairs.map(|pair| pair as u16), pairs.map(|pair| (pair >> 16) as u16));
        // SAFETY: an array of 32 halves.
        let even = unsafe { Self::load_f16(even.as_ptr()) };
        // SAFETY: as above.
        [even, unsafe { Self::load_f16(odd.as_ptr()) }]
    }
    /// Stores two vectors narrowed to f16, their lanes alternating.
    ///
    /// # Safety
    /// 128 bytes at `ptr` are writable.
    #[inline(always)]
    unsafe fn store_f16_pair(ptr: *mut u16, even: Self::F32, odd: Self::F32) {
        let mut halves = [[0u16; LANES]; 2];
        // SAFETY: an array of 32 halves.
        unsafe { Self::store_f16(halves[0].as_mut_ptr(), even) };
        // SAFETY: as above.
        unsafe { Self::store_f16(halves[1].as_mut_ptr(), odd) };
        let pairs: [u32; LANES] = core::array::from_fn(|i| u32::from(halves[0][i]) | u32::from(halves[1][i]) << 16);
        // SAFETY: the caller promises 128 writable bytes; the write asks for no alignment.
        unsafe { ptr.cast::<[u32; LANES]>().write_unaligned(pairs) };
    }
    /// Stores the low bytes of 32 i32, each within -128..=127.
    ///
    /// # Safety
    /// 32 bytes at `ptr` are writable and lie on a boundary of 4.
    unsafe fn store_i8(ptr: *mut i8, x: Self::I32);

    /// a + b.
    fn add(a: Self::F32, b: Self::F32) -> Self::F32;
    /// a - b.
    fn sub(a: Self::F32, b: Self::F32) -> Self::F32;
    /// a * b.
    fn mul(a: Self::F32, b: Self::F32) -> Self::F32;
    /// a / b.
    fn div(a: Self::F32, b: Self::F32) -> Self::F32;
    /// a + b, correctly rounded by every member: for the few sums that must not lose a bit (see [`device`]).
    #[inline(always)]
    fn exact_add(a: Self::F32, b: Self::F32) -> Self::F32 {
        Self::add(a, b)
    }
    /// a - b, correctly rounded by every member.
    #[inline(always)]
    fn exact_sub(a: Self::F32, b: Self::F32) -> Self::F32 {
        Self::sub(a, b)
    }
    /// a * b, correctly rounded by every member.
    #[inline(always)]
    fn exact_mul(a: Self::F32, b: Self::F32) -> Self::F32 {
        Self::mul(a, b)
    }
    /// `x - n ln 2` for |x| up to 104 and the nearest such n.
    #[inline(always)]
    fn exp_rest(x: Self::F32, n: Self::I32) -> Self::F32 {
        let n = Self::to_float(n);
        let rest = Self::sub(x, Self::mul(n, Self::splat(math::LN2_HIGH)));
        Self::sub(rest, Self::mul(n, Self::splat(math::LN2_LOW)))
    }
    /// Square root, correctly rounded; NaN below 0.
    fn sqrt(x: Self::F32) -> Self::F32;
    /// `if a > b { a } else { b }`.
    fn max(a: Self::F32, b: Self::F32) -> Self::F32;
    /// `if a < b { a } else { b }`.
    fn min(a: Self::F32, b: Self::F32) -> Self::F32;
    /// Mask of lanes with a > b.
    fn gt(a: Self::F32, b: Self::F32) -> Self::I32;
    /// Mask of lanes with a == b.
    fn eq(a: Self::F32, b: Self::F32) -> Self::I32;
    /// Lanes of `a` where the mask is set, of `b` elsewhere.
    fn select(mask: Self::I32, a: Self::F32, b: Self::F32) -> Self::F32;
    /// Lanes 2i and 2i + 1 exchanged.
    #[inline(always)]
    fn swap_pairs(x: Self::F32) -> Self::F32 {
        let lanes = Self::to_array(x);
        let mut swapped = lanes;
        for (idx, lane) in swapped.iter_mut().enumerate() {
            *lane = lanes[idx ^ 1];
        }
        Self::from_array(swapped)
    }
    /// The lanes' bits.
    fn bits(x: Self::F32) -> Self::I32;
    /// Lanes from bits.
    fn from_bits(x: Self::I32) -> Self::F32;
    /// Nearest integers, ties to even; lanes are within i32.
    fn to_int(x: Self::F32) -> Self::I32;
    /// Integers as floats, rounded to nearest even.
    fn to_float(x: Self::I32) -> Self::F32;

    /// a + b, wrapping.
    fn add_i(a: Self::I32, b: Self::I32) -> Self::I32;
    /// a - b, wrapping.
    fn sub_i(a: Self::I32, b: Self::I32) -> Self::I32;
    /// a & b.
    fn and(a: Self::I32, b: Self::I32) -> Self::I32;
    /// a | b.
    fn or(a: Self::I32, b: Self::I32) -> Self::I32;
    /// a ^ b.
    fn xor(a: Self::I32, b: Self::I32) -> Self::I32;
    /// a << N.
    fn shl<const N: i32>(a: Self::I32) -> Self::I32;
    /// a >> N, sign kept.
    fn sar<const N: i32>(a: Self::I32) -> Self::I32;
    /// Mask of lanes with a > b.
    fn gt_i(a: Self::I32, b: Self::I32) -> Self::I32;

    /// Sum over lanes in the layer's fixed order.
    fn sum(x: Self::F32) -> f32;
    /// Sum over lanes in the layer's fixed order, each addition correctly rounded by every member.
    #[inline(always)]
    fn exact_sum(x: Self::F32) -> f32 {
        Self::sum(x)
    }
    /// Maximum over lanes in the layer's fixed order.
    fn max_lane(x: Self::F32) -> f32;

    /// One 4-bit tile against 32 activations of each of `N` rows: lane r of row n is `start[n]` plus the sum over k of
    /// code(r,k) * act(n,k), codes 0 to 15. The tile is unpacked once.
    ///
    /// # Safety
    /// 512 bytes at `codes` (layout of [`hexloom_abi::tile`]) and 32 at each of `act` are readable; `codes` lie on a
    /// boundary of 128 bytes, each of `act` on one of 4.
    unsafe fn dot_tile_u4<const N: usize>(codes: *const u8, act: [*const i8; N], start: [i32; N]) -> [Self::I32; N];
    /// One 8-bit tile against 32 activations of each of `N` rows, within -127..=127: lane r of row n is `start[n]` plus
    /// the sum over k of code(r,k) * act(n,k); `start[n]` is always -128 times the sum over k of act(n,k), for members that
    /// multiply signed codes instead.
    ///
    /// # Safety
    /// 1024 bytes at `codes` and 32 at each of `act` are readable; `codes` lie on a boundary of 128 bytes, each of `act` on
    /// one of 4.
    unsafe fn dot_tile_u8<const N: usize>(codes: *const u8, act: [*const i8; N], start: [i32; N]) -> [Self::I32; N];

    /// 32 weight rows against `N` activation rows: lane r of row n is their product, as [`tiles`] defines it.
    ///
    /// # Panics
    /// When a row has fewer records than there are tiles.
    #[inline(always)]
    fn dot_rows<C: Codes, const N: usize>(tiles: &Tiles<'_>, rows: &[Row<'_>; N]) -> [Self::F32; N] {
        tiles::dot_rows::<Self, C, N>(tiles, rows)
    }
}

impl Part {
    /// The consecutive range of `0..total` that belongs to this part; ranges of all parts cover it once.
    #[inline(always)]
    pub fn range(self, total: usize) -> core::ops::Range<usize> {
        let share = total.div_ceil(self.count.max(1));
        let start = (self.idx * share).min(total);
        start..(start + share).min(total)
    }
}

/// 32 elements of a float span from `start`, in bounds.
#[inline(always)]
pub fn load<I: Isa>(span: Span<'_, f32>, start: usize) -> I::F32 {
    let part = span.part(start, LANES);
    // SAFETY: `part` has checked that 32 elements from `start` lie in the span.
    unsafe { I::load_f32(part.as_ptr()) }
}

/// Up to 32 elements of a float span from `start`; lanes beyond `count` are `fill`.
#[inline(always)]
pub fn load_partial<I: Isa>(span: Span<'_, f32>, start: usize, count: usize, fill: f32) -> I::F32 {
    let mut lanes = [fill; LANES];
    for (idx, lane) in lanes.iter_mut().enumerate().take(count) {
        *lane = span.get(start + idx);
    }
    I::from_array(lanes)
}

/// Stores 32 lanes from `start`, in bounds.
#[inline(always)]
pub fn store<I: Isa>(span: Span<'_, f32>, start: usize, x: I::F32) {
    let part = span.part(start, LANES);
    // SAFETY: `part` has checked that 32 elements from `start` lie in the span.
    unsafe { I::store_f32(part.as_ptr(), x) }
}

/// Stores the first `count` lanes from `start`.
#[inline(always)]
pub fn store_partial<I: Isa>(span: Span<'_, f32>, start: usize, count: usize, x: I::F32) {
    for (idx, lane) in I::to_array(x).into_iter().enumerate().take(count) {
        span.set(start + idx, lane);
    }
}
