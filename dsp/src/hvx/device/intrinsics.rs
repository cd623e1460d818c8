//! The instructions on Hexagon: intrinsics of `core::arch`, and `core::simd` for what needs a predicate.
//!
//! The intrinsics that make or take predicates are declared with vectors in Rust 1.96, which LLVM cannot select; generic
//! vector code of compares, selects and masked stores becomes the same instructions.
//!
//! An image is compiled for one processor with everything it has, so no function here asks for target features.

use core::arch::hexagon::v128::*;
use core::intrinsics::simd::{SimdAlign, simd_masked_store};
use core::simd::cmp::{SimdPartialEq, SimdPartialOrd};
use core::simd::{Mask, Select, Simd};

use super::Hvx;

/// A vector unit.
#[derive(Clone, Copy, Debug)]
pub struct Intrinsics;

/// A vector register with lanes in qf32 format.
#[derive(Clone, Copy)]
pub struct Qf32(HvxVector);

/// A vector predicate over words.
#[derive(Clone, Copy)]
pub struct Predicate(Mask<i32, 32>);

/// One intrinsic; operands are evaluated outside the unsafe block.
macro_rules! op {
    ($name:ident ()) => {
        // SAFETY: only memory and missing processor features are unsafe about these intrinsics: this one touches no memory,
        // and the image is compiled for a processor that has it.
        unsafe { $name() }
    };
    ($name:ident ($a:expr)) => {{
        let a = $a;
        // SAFETY: as above.
        unsafe { $name(a) }
    }};
    ($name:ident ($a:expr, $b:expr)) => {{
        let (a, b) = ($a, $b);
        // SAFETY: as above.
        unsafe { $name(a, b) }
    }};
    ($name:ident ($a:expr, $b:expr, $c:expr)) => {{
        let (a, b, c) = ($a, $b, $c);
        // SAFETY: as above.
        unsafe { $name(a, b, c) }
    }};
}

/// Methods that are one intrinsic: `method(operands) intrinsic;`, results and operands all vectors or counts.
macro_rules! vectors {
    ($($name:ident($($arg:ident: $kind:ty),*) $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name($($arg: $kind),*) -> HvxVector {
            op!($intrinsic($($arg),*))
        }
    )*};
}

/// Methods with a qf32 result.
macro_rules! qfloats {
    ($($name:ident($a:ident: $first:ty, $b:ident: $second:ty) $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name($a: $first, $b: $second) -> Qf32 {
            Qf32(op!($intrinsic($a.register(), $b.register())))
        }
    )*};
}

/// What an instruction names as its operand.
trait Operand {
    fn register(self) -> HvxVector;
}

impl Operand for HvxVector {
    #[inline(always)]
    fn register(self) -> HvxVector {
        self
    }
}

impl Operand for Qf32 {
    #[inline(always)]
    fn register(self) -> HvxVector {
        self.0
    }
}

/// Halves 0 to 63.
const HALVES: [i16; 64] = {
    let mut halves = [0; 64];
    let mut idx = 0;
    while idx < 64 {
        halves[idx] = idx as i16;
        idx += 1;
    }
    halves
};

#[inline(always)]
fn words(x: HvxVector) -> Simd<i32, 32> {
    // SAFETY: both are 128 bytes, and any bytes are a value of either.
    unsafe { core::mem::transmute::<HvxVector, Simd<i32, 32>>(x) }
}

#[inline(always)]
fn vector(x: Simd<i32, 32>) -> HvxVector {
    // SAFETY: as for `words`.
    unsafe { core::mem::transmute::<Simd<i32, 32>, HvxVector>(x) }
}

#[inline(always)]
fn pair(x: HvxVectorPair) -> (HvxVector, HvxVector) {
    (op!(q6_v_lo_w(x)), op!(q6_v_hi_w(x)))
}

/// The line of 128 bytes that holds an address.
#[inline(always)]
fn line<T>(ptr: *const T) -> *const HvxVector {
    ptr.map_addr(|address| address & !127).cast()
}

impl Hvx for Intrinsics {
    type V = HvxVector;
    type Q = Predicate;
    type Qf32 = Qf32;

    #[inline(always)]
    unsafe fn vmem<T>(ptr: *const T) -> HvxVector {
        // SAFETY: the caller promises 128 readable bytes on a line.
        unsafe { ptr.cast::<HvxVector>().read() }
    }
    #[inline(always)]
    unsafe fn vmemu<T>(ptr: *const T) -> HvxVector {
        // SAFETY: the caller promises 128 readable bytes; the read asks for no alignment.
        unsafe { ptr.cast::<HvxVector>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn vmemu_part<T, const BYTES: usize>(ptr: *const T) -> HvxVector {
        const { assert!(BYTES > 0 && BYTES <= 128) }
        let first = line(ptr);
        let last = line(ptr.cast::<u8>().wrapping_add(BYTES - 1));
        // SAFETY: a line holds a byte that the caller promises to be readable, and so is on a page that is; what else is on
        // it is dropped by the alignment below or is junk by contract.
        let low = unsafe { first.read() };
        // SAFETY: as above.
        let high = unsafe { last.read() };
        op!(q6_v_valign_vvr(high, low, ptr.addr() as i32))
    }
    #[inline(always)]
    unsafe fn vmemu_store<T>(ptr: *mut T, x: HvxVector) {
        // SAFETY: the caller promises 128 writable bytes; the write asks for no alignment.
        unsafe { ptr.cast::<HvxVector>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn vmemu_store_part<T, const BYTES: usize>(ptr: *mut T, x: HvxVector) {
        const { assert!(BYTES <= 128 && BYTES.is_multiple_of(2)) }
        let offset = ptr.addr() & 127;
        let turned = op!(q6_v_vlalign_vvr(x, x, offset as i32));
        // SAFETY: both are 128 bytes, and any bytes are a value of either.
        let turned = unsafe { core::mem::transmute::<HvxVector, Simd<i16, 64>>(turned) };
        let first = line(ptr.cast_const()).cast::<i16>().cast_mut();
        let half = Simd::from_array(HALVES);
        let end = Simd::splat(((offset + BYTES) / 2) as i16);
        let mask = half.simd_ge(Simd::splat((offset / 2) as i16)) & half.simd_lt(end);
        // SAFETY: the address is that of a line, and the mask lets through only bytes that the caller promises.
        unsafe { simd_masked_store::<_, _, _, { SimdAlign::Vector }>(mask.to_simd(), first, turned) };
        if offset + BYTES > 128 {
            let mask = half.simd_lt(end - Simd::splat(64));
            // SAFETY: as above, for the bytes on the next line.
            unsafe {
                simd_masked_store::<_, _, _, { SimdAlign::Vector }>(mask.to_simd(), first.wrapping_add(64), turned);
            }
        }
    }

    vectors! {
        lvsplatw(x: i32) q6_v_vsplat_r;
        vand(a: HvxVector, b: HvxVector) q6_v_vand_vv;
        vor(a: HvxVector, b: HvxVector) q6_v_vor_vv;
        vxor(a: HvxVector, b: HvxVector) q6_v_vxor_vv;
        vaddw(a: HvxVector, b: HvxVector) q6_vw_vadd_vwvw;
        vsubw(a: HvxVector, b: HvxVector) q6_vw_vsub_vwvw;
        vmaxw(a: HvxVector, b: HvxVector) q6_vw_vmax_vwvw;
        vminw(a: HvxVector, b: HvxVector) q6_vw_vmin_vwvw;
        vaslw(a: HvxVector, by: i32) q6_vw_vasl_vwr;
        vasrw(a: HvxVector, by: i32) q6_vw_vasr_vwr;
        vlsrw(a: HvxVector, by: i32) q6_vuw_vlsr_vuwr;
        vaslwv(a: HvxVector, by: HvxVector) q6_vw_vasl_vwvw;
        vlsrwv(a: HvxVector, by: HvxVector) q6_vw_vlsr_vwvw;
        vmpyiewuh(a: HvxVector, b: HvxVector) q6_vw_vmpyie_vwvuh;
        vcl0w(a: HvxVector) q6_vuw_vcl0_vuw;
        vlsrb(a: HvxVector, by: i32) q6_vub_vlsr_vubr;
        vrmpybus(a: HvxVector, four: i32) q6_vw_vrmpy_vubrb;
        vrmpybus_acc(sum: HvxVector, a: HvxVector, four: i32) q6_vw_vrmpyacc_vwvubrb;
        vror(a: HvxVector, by: i32) q6_v_vror_vr;
        vshuffh(a: HvxVector) q6_vh_vshuff_vh;
        vpackeh(high: HvxVector, low: HvxVector) q6_vh_vpacke_vwvw;
        vpackeb(high: HvxVector, low: HvxVector) q6_vb_vpacke_vhvh;
        vadd_sf_sf(a: HvxVector, b: HvxVector) q6_vsf_vadd_vsfvsf;
        vsub_sf_sf(a: HvxVector, b: HvxVector) q6_vsf_vsub_vsfvsf;
        vmpy_sf_sf(a: HvxVector, b: HvxVector) q6_vsf_vmpy_vsfvsf;
    }
    #[cfg(target_feature = "hvxv73")]
    vectors! {
        vconv_sf_w(a: HvxVector) q6_vsf_equals_vw;
    }
    #[cfg(not(target_feature = "hvxv73"))]
    #[inline(always)]
    fn vconv_sf_w(a: HvxVector) -> HvxVector {
        super::bits::to_float::<Self>(a)
    }

    #[inline(always)]
    fn vextract(x: HvxVector, idx: i32) -> i32 {
        op!(q6_r_vextract_vr(x, 4 * idx))
    }
    #[inline(always)]
    fn from_words(words: [i32; 32]) -> HvxVector {
        vector(Simd::from_array(words))
    }
    #[inline(always)]
    fn to_words(x: HvxVector) -> [i32; 32] {
        words(x).to_array()
    }

    #[inline(always)]
    fn vgtw(a: HvxVector, b: HvxVector) -> Predicate {
        Predicate(words(a).simd_gt(words(b)))
    }
    #[inline(always)]
    fn veqw(a: HvxVector, b: HvxVector) -> Predicate {
        Predicate(words(a).simd_eq(words(b)))
    }
    #[inline(always)]
    fn pred_and(a: Predicate, b: Predicate) -> Predicate {
        Predicate(a.0 & b.0)
    }
    #[inline(always)]
    fn pred_or(a: Predicate, b: Predicate) -> Predicate {
        Predicate(a.0 | b.0)
    }
    #[inline(always)]
    fn pred_not(a: Predicate) -> Predicate {
        Predicate(!a.0)
    }
    #[inline(always)]
    fn vmux(q: Predicate, a: HvxVector, b: HvxVector) -> HvxVector {
        vector(q.0.select(words(a), words(b)))
    }
    #[inline(always)]
    fn vandvrt(mask: HvxVector) -> Predicate {
        // SAFETY: the words of a mask are 0 and -1.
        Predicate(unsafe { Mask::from_simd_unchecked(words(mask)) })
    }
    #[inline(always)]
    fn vandqrt(q: Predicate) -> HvxVector {
        vector(q.0.to_simd())
    }

    #[inline(always)]
    fn vshuffvdd(high: HvxVector, low: HvxVector, by: i32) -> (HvxVector, HvxVector) {
        pair(op!(q6_w_vshuff_vvr(high, low, by)))
    }
    #[inline(always)]
    fn vunpackuh(a: HvxVector) -> (HvxVector, HvxVector) {
        pair(op!(q6_wuw_vunpack_vuh(a)))
    }
    #[inline(always)]
    fn vunpackh(a: HvxVector) -> (HvxVector, HvxVector) {
        pair(op!(q6_ww_vunpack_vh(a)))
    }
    #[inline(always)]
    fn vunpackb(a: HvxVector) -> (HvxVector, HvxVector) {
        pair(op!(q6_wh_vunpack_vb(a)))
    }

    #[inline(always)]
    fn qf32_zero() -> Qf32 {
        Qf32(op!(q6_v_vzero()))
    }
    qfloats! {
        vadd_sf(a: HvxVector, b: HvxVector) q6_vqf32_vadd_vsfvsf;
        vsub_sf(a: HvxVector, b: HvxVector) q6_vqf32_vsub_vsfvsf;
        vadd_qf32(a: Qf32, b: Qf32) q6_vqf32_vadd_vqf32vqf32;
        vsub_qf32(a: Qf32, b: Qf32) q6_vqf32_vsub_vqf32vqf32;
        vadd_qf32_mix(a: Qf32, b: HvxVector) q6_vqf32_vadd_vqf32vsf;
        vsub_qf32_mix(a: Qf32, b: HvxVector) q6_vqf32_vsub_vqf32vsf;
        vmpy_qf32_sf(a: HvxVector, b: HvxVector) q6_vqf32_vmpy_vsfvsf;
        vmpy_qf32(a: Qf32, b: Qf32) q6_vqf32_vmpy_vqf32vqf32;
    }
    #[inline(always)]
    fn vmpy_qf32_hf(a: HvxVector, b: HvxVector) -> (Qf32, Qf32) {
        let (even, odd) = pair(op!(q6_wqf32_vmpy_vhfvhf(a, b)));
        (Qf32(even), Qf32(odd))
    }
    #[inline(always)]
    fn vconv_sf_qf32(a: Qf32) -> HvxVector {
        op!(q6_vsf_equals_vqf32(a.0))
    }

    #[inline(always)]
    fn vmpy_sf_hf(a: HvxVector, b: HvxVector) -> (HvxVector, HvxVector) {
        pair(op!(q6_wsf_vmpy_vhfvhf(a, b)))
    }
}
