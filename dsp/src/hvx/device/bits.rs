//! What both float flavours do to IEEE floats with integer instructions alone: comparisons, conversions, division, square
//! root. Exact or correctly rounded, infinities and NaN included, whatever the processor's float unit does.
//!
//! Masks are vectors of -1 and 0: the intrinsics that make predicates are declared with vectors in Rust 1.96, which LLVM
//! cannot select.

use super::Hvx;

/// Bits of infinity, and the mask of the exponent field.
pub(super) const INFINITY: i32 = 0x7f80_0000;
/// Everything but the sign.
pub(super) const MAGNITUDE: i32 = i32::MAX;
/// Bits of the NaN that operations here make.
pub(super) const NAN: i32 = 0x7fc0_0000;
const SIGN: i32 = i32::MIN;
const MANTISSA: i32 = 0x007f_ffff;
const HIDDEN: i32 = 0x0080_0000;
const ONE: i32 = 0x3f80_0000;

/// A magnitude as mantissa and exponent: `mantissa * 2^(exponent - 23)`, 2^23 <= mantissa < 2^24.
struct Parts<H: Hvx> {
    mantissa: H::V,
    exponent: H::V,
}

/// |x|.
#[inline(always)]
pub(super) fn magnitude<H: Hvx>(x: H::V) -> H::V {
    H::vand(x, H::lvsplatw(MAGNITUDE))
}

/// The sign of x alone.
#[inline(always)]
pub(super) fn sign<H: Hvx>(x: H::V) -> H::V {
    H::vand(x, H::lvsplatw(SIGN))
}

/// Lanes of `a` where the mask is set, of `b` elsewhere.
#[inline(always)]
pub(super) fn mux<H: Hvx>(mask: H::V, a: H::V, b: H::V) -> H::V {
    H::vxor(b, H::vand(mask, H::vxor(a, b)))
}

/// Mask of lanes with a > b as signed integers.
#[inline(always)]
pub(super) fn greater<H: Hvx>(a: H::V, b: H::V) -> H::V {
    H::vasrw(H::vsubwsat(b, a), 31)
}

/// Mask of lanes with a > `b`, for lanes and a constant that are not negative.
#[inline(always)]
pub(super) fn above<H: Hvx>(a: H::V, b: i32) -> H::V {
    H::vasrw(H::vsubw(H::lvsplatw(b), a), 31)
}

/// 1 in lanes that are 0, else 0.
#[inline(always)]
pub(super) fn is_zero<H: Hvx>(a: H::V) -> H::V {
    H::vlsrw(H::vcl0w(a), 5)
}

/// Mask of lanes that are 0.
#[inline(always)]
pub(super) fn zero_mask<H: Hvx>(a: H::V) -> H::V {
    H::vsubw(H::lvsplatw(0), is_zero::<H>(a))
}

/// Mask of lanes with a > b as floats: false when either is NaN, and zeros are equal.
#[inline(always)]
pub(super) fn gt<H: Hvx>(a: H::V, b: H::V) -> H::V {
    let above_key = greater::<H>(key::<H>(a), key::<H>(b));
    H::vand(above_key, H::vnot(nan_mask::<H>(a, b)))
}

/// Mask of lanes with a == b as floats.
#[inline(always)]
pub(super) fn eq<H: Hvx>(a: H::V, b: H::V) -> H::V {
    let same = zero_mask::<H>(H::vxor(key::<H>(a), key::<H>(b)));
    H::vand(same, H::vnot(nan_mask::<H>(a, b)))
}

/// Nearest integers, ties to even; lanes are within i32.
#[inline(always)]
pub(super) fn to_int<H: Hvx>(x: H::V) -> H::V {
    let zero = H::lvsplatw(0);
    let abs = magnitude::<H>(x);
    let mantissa = H::vor(H::vand(abs, H::lvsplatw(MANTISSA)), H::lvsplatw(HIDDEN));
    // mantissa >> by is the value's whole part; a negative count is a left shift.
    let by = H::vsubw(H::lvsplatw(150), H::vlsrw(abs, 23));
    let by = H::vminw(by, H::lvsplatw(31));
    let right = greater::<H>(by, zero);
    let rounded = round_shift::<H>(mantissa, H::vmaxw(by, H::lvsplatw(1)));
    let whole = mux::<H>(right, rounded, H::vlsrwv(mantissa, by));
    let negative = H::vasrw(x, 31);
    H::vsubw(H::vxor(whole, negative), negative)
}

/// Integers as floats, rounded to nearest even.
#[inline(always)]
pub(super) fn to_float<H: Hvx>(x: H::V) -> H::V {
    let negative = H::vasrw(x, 31);
    let abs = H::vsubw(H::vxor(x, negative), negative);
    let zeros = H::vcl0w(abs);
    let top = H::vaslwv(abs, zeros);
    let kept = H::vlsrw(top, 8);
    let rest = H::vand(top, H::lvsplatw(0xff));
    let rest = H::vaddw(H::vaddw(rest, H::lvsplatw(0x7f)), H::vand(kept, H::lvsplatw(1)));
    let mantissa = H::vaddw(kept, H::vlsrw(rest, 8));
    let exponent = H::vaslw(H::vsubw(H::lvsplatw(157), zeros), 23);
    let bits = H::vand(H::vaddw(exponent, mantissa), H::vnot(zero_mask::<H>(abs)));
    H::vor(bits, sign::<H>(x))
}

/// f16 in the low halves of words, the high halves 0, as f32; exact, subnormals included.
#[inline(always)]
pub(super) fn widen<H: Hvx>(half: H::V) -> H::V {
    let abs = H::vand(half, H::lvsplatw(0x7fff));
    let rebias = H::lvsplatw(112 << 23);
    let normal = H::vaddw(H::vaslw(abs, 13), rebias);
    let normal = H::vaddw(normal, H::vand(above::<H>(abs, 0x7bff), rebias));
    // A subnormal is abs * 2^-24: its leading bit moves to bit 23.
    let zeros = H::vcl0w(abs);
    let mantissa = H::vaslwv(abs, H::vsubw(zeros, H::lvsplatw(8)));
    let small = H::vaddw(H::vaslw(H::vsubw(H::lvsplatw(133), zeros), 23), mantissa);
    let small = H::vand(small, H::vnot(zero_mask::<H>(abs)));
    let bits = mux::<H>(above::<H>(abs, 0x3ff), normal, small);
    H::vor(bits, H::vaslw(H::vxor(half, abs), 16))
}

/// f32 as f16 in the low halves of words: nearest even, subnormals kept, overflow to infinity.
#[inline(always)]
pub(super) fn narrow<H: Hvx>(x: H::V) -> H::V {
    let abs = magnitude::<H>(x);
    let normal = H::vsubw(
        round_shift::<H>(abs, H::lvsplatw(13)),
        H::lvsplatw(112 << 10),
    );
    let normal = H::vminw(normal, H::lvsplatw(0x7c00));
    let mantissa = H::vor(H::vand(abs, H::lvsplatw(MANTISSA)), H::lvsplatw(HIDDEN));
    let by = H::vsubw(H::lvsplatw(126), H::vlsrw(abs, 23));
    let by = H::vmaxw(H::vminw(by, H::lvsplatw(31)), H::lvsplatw(1));
    let small = round_shift::<H>(mantissa, by);
    let half = mux::<H>(above::<H>(abs, 0x387f_ffff), normal, small);
    let half = H::vor(half, H::vand(above::<H>(abs, INFINITY), H::lvsplatw(0x7e00)));
    H::vor(half, H::vlsrw(sign::<H>(x), 16))
}

/// a / b, correctly rounded: 25 bits of quotient by restoring division, then one rounding.
#[inline(always)]
pub(super) fn div<H: Hvx>(a: H::V, b: H::V) -> H::V {
    let (abs_a, abs_b) = (magnitude::<H>(a), magnitude::<H>(b));
    let (top, bottom) = (parts::<H>(abs_a), parts::<H>(abs_b));
    let less = greater::<H>(bottom.mantissa, top.mantissa);
    let exponent = H::vaddw(H::vsubw(top.exponent, bottom.exponent), less);
    // The first bit of the quotient is 1 once a mantissa below the divisor's is doubled.
    let rest = H::vaddw(top.mantissa, H::vand(less, top.mantissa));
    let mut rest = H::vsubw(rest, bottom.mantissa);
    let one = H::lvsplatw(1);
    let mut quotient = one;
    for _ in 0..24 {
        let trial = H::vsubw(H::vaddw(rest, rest), bottom.mantissa);
        let below = H::vasrw(trial, 31);
        quotient = H::vaddw(H::vaddw(quotient, quotient), H::vaddw(one, below));
        rest = H::vaddw(trial, H::vand(below, bottom.mantissa));
    }
    let value = round_pack::<H>(quotient, rest, exponent);

    let (zero_a, zero_b) = (zero_mask::<H>(abs_a), zero_mask::<H>(abs_b));
    let (big_a, big_b) = (above::<H>(abs_a, INFINITY - 1), above::<H>(abs_b, INFINITY - 1));
    let value = H::vand(value, H::vnot(H::vor(zero_a, big_b)));
    let value = mux::<H>(H::vor(zero_b, big_a), H::lvsplatw(INFINITY), value);
    let invalid = H::vor(H::vand(zero_a, zero_b), H::vand(big_a, big_b));
    let invalid = H::vor(invalid, nan_mask::<H>(a, b));
    let value = mux::<H>(invalid, H::lvsplatw(NAN), value);
    H::vor(value, sign::<H>(H::vxor(a, b)))
}

/// Square root, correctly rounded, digit by digit; NaN below 0.
#[inline(always)]
pub(super) fn sqrt<H: Hvx>(x: H::V) -> H::V {
    let abs = magnitude::<H>(x);
    let Parts { mantissa, exponent } = parts::<H>(abs);
    let one = H::lvsplatw(1);
    let odd = H::vand(exponent, one);
    // 26 bits of radicand, 2^24 to 2^26; 24 zeros follow. Two bits give one of the root's 25.
    let radicand = H::vaslwv(mantissa, H::vaddw(odd, one));
    let (mut root, mut rest) = (H::lvsplatw(0), H::lvsplatw(0));
    for step in 0..25 {
        let next = match step {
            0..13 => H::vand(H::vlsrw(radicand, 24 - 2 * step), H::lvsplatw(3)),
            _ => H::lvsplatw(0),
        };
        let trial = H::vsubw(H::vor(H::vaslw(rest, 2), next), H::vor(H::vaslw(root, 2), one));
        let below = H::vasrw(trial, 31);
        // Where the trial failed, what it took away is given back.
        let taken = H::vor(H::vaslw(root, 2), one);
        rest = H::vaddw(trial, H::vand(below, taken));
        root = H::vaddw(H::vaddw(root, root), H::vaddw(one, below));
    }
    let value = round_pack::<H>(root, rest, H::vasrw(exponent, 1));
    // Zeros, +infinity and NaN are their own roots.
    let own = H::vor(zero_mask::<H>(abs), above::<H>(x, INFINITY - 1));
    let own = H::vor(own, above::<H>(abs, INFINITY));
    let invalid = H::vand(H::vasrw(x, 31), H::vnot(own));
    mux::<H>(own, x, mux::<H>(invalid, H::lvsplatw(NAN), value))
}

/// A magnitude's parts, subnormals normalised; for 0, infinity and NaN they mean nothing.
#[inline(always)]
fn parts<H: Hvx>(abs: H::V) -> Parts<H> {
    let zero = H::lvsplatw(0);
    let by = H::vmaxw(H::vsubw(H::vcl0w(abs), H::lvsplatw(8)), zero);
    let mantissa = H::vor(
        H::vand(H::vaslwv(abs, by), H::lvsplatw(MANTISSA)),
        H::lvsplatw(HIDDEN),
    );
    // An exponent field of 0 means the same as 1.
    let below = H::vmaxw(H::vsubw(by, H::lvsplatw(1)), zero);
    let field = H::vlsrw(abs, 23);
    let exponent = H::vsubw(H::vsubw(field, H::lvsplatw(ONE >> 23)), below);
    Parts { mantissa, exponent }
}

/// `significand * 2^(exponent - 24)` for 2^24 <= significand < 2^25, a little more if `rest` is above 0, as a float:
/// nearest even, subnormals, overflow to infinity.
#[inline(always)]
fn round_pack<H: Hvx>(significand: H::V, rest: H::V, exponent: H::V) -> H::V {
    let zero = H::lvsplatw(0);
    let sticky = H::vlsrw(H::vsubw(zero, rest), 31);
    let significand = H::vor(H::vaddw(significand, significand), sticky);
    let field = H::vaddw(exponent, H::lvsplatw(126));
    let by = H::vmaxw(H::vsubw(H::lvsplatw(2), field), H::lvsplatw(2));
    let mantissa = round_shift::<H>(significand, H::vminw(by, H::lvsplatw(31)));
    let field = H::vminw(H::vmaxw(field, zero), H::lvsplatw(254));
    let bits = H::vaddw(H::vaslw(field, 23), mantissa);
    H::vminw(bits, H::lvsplatw(INFINITY))
}

/// `x >> by` to nearest even, for 1 <= by <= 31 and x + 2^(by - 1) below 2^31.
#[inline(always)]
fn round_shift<H: Hvx>(x: H::V, by: H::V) -> H::V {
    let one = H::lvsplatw(1);
    let odd = H::vand(H::vlsrwv(x, by), one);
    let half = H::vaslwv(one, H::vsubw(by, one));
    let bias = H::vsubw(H::vaddw(half, odd), one);
    H::vlsrwv(H::vaddw(x, bias), by)
}

/// An integer that orders as the float does; both zeros are 0.
#[inline(always)]
fn key<H: Hvx>(x: H::V) -> H::V {
    let negative = H::vasrw(x, 31);
    H::vsubw(H::vxor(magnitude::<H>(x), negative), negative)
}

/// Mask of lanes where either is NaN.
#[inline(always)]
fn nan_mask<H: Hvx>(a: H::V, b: H::V) -> H::V {
    above::<H>(H::vmaxw(magnitude::<H>(a), magnitude::<H>(b)), INFINITY)
}
