//! What both float flavours do to IEEE floats with integer instructions alone: comparisons, conversions, division, square
//! root. Exact or correctly rounded, infinities and NaN included, whatever the processor's float unit does.
//!
//! On a PC, where an instruction is a loop over 32 lanes, the longer functions are calls: kernels of thousands of such
//! loops would take minutes to compile.

use super::Hvx;

/// Bits of infinity, and the mask of the exponent field.
pub(super) const INFINITY: i32 = 0x7f80_0000;
/// Bits of the NaN that operations here make.
pub(super) const NAN: i32 = 0x7fc0_0000;
/// The sign bit.
pub(super) const SIGN: i32 = i32::MIN;
const MAGNITUDE: i32 = i32::MAX;
const MANTISSA: i32 = 0x007f_ffff;
/// The leading bit of a mantissa, which normal numbers do not store.
const HIDDEN: i32 = 0x0080_0000;

/// A magnitude as mantissa and exponent: `mantissa * 2^(exponent - 23)`, 2^23 <= mantissa < 2^24.
pub(super) struct Parts<H: Hvx> {
    pub(super) mantissa: H::V,
    pub(super) exponent: H::V,
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

/// Lanes with a > b as floats: false when either is NaN, and zeros are equal.
#[cfg_attr(target_arch = "hexagon", inline(always))]
#[cfg_attr(not(target_arch = "hexagon"), inline(never))]
pub(super) fn gt<H: Hvx>(a: H::V, b: H::V) -> H::Q {
    H::pred_and(H::vgtw(key::<H>(a), key::<H>(b)), ordered::<H>(a, b))
}

/// Lanes with a == b as floats.
#[cfg_attr(target_arch = "hexagon", inline(always))]
#[cfg_attr(not(target_arch = "hexagon"), inline(never))]
pub(super) fn eq<H: Hvx>(a: H::V, b: H::V) -> H::Q {
    H::pred_and(H::veqw(key::<H>(a), key::<H>(b)), ordered::<H>(a, b))
}

/// Nearest integers, ties to even; lanes are within i32.
#[cfg_attr(target_arch = "hexagon", inline(always))]
#[cfg_attr(not(target_arch = "hexagon"), inline(never))]
pub(super) fn to_int<H: Hvx>(x: H::V) -> H::V {
    let abs = magnitude::<H>(x);
    let mantissa = mantissa::<H>(abs);
    // mantissa >> by is the value's whole part; a negative count is a left shift.
    let by = H::vsubw(H::lvsplatw(150), H::vlsrw(abs, 23));
    let by = H::vminw(by, H::lvsplatw(31));
    let rounded = round_shift::<H>(mantissa, H::vmaxw(by, H::lvsplatw(1)));
    let right = H::vgtw(by, H::lvsplatw(0));
    signed::<H>(H::vmux(right, rounded, H::vlsrwv(mantissa, by)), x)
}

/// Integers as floats, rounded to nearest even: for processors before v73, which have no instruction for it.
#[cfg(any(test, all(target_feature = "hvxv68", not(target_feature = "hvxv73"))))]
#[inline(always)]
pub(super) fn to_float<H: Hvx>(x: H::V) -> H::V {
    let abs = signed::<H>(x, x);
    let zeros = H::vcl0w(abs);
    let top = H::vaslwv(abs, zeros);
    let kept = H::vlsrw(top, 8);
    let rest = H::vand(top, H::lvsplatw(0xff));
    let rest = H::vaddw(H::vaddw(rest, H::lvsplatw(0x7f)), H::vand(kept, H::lvsplatw(1)));
    let mantissa = H::vaddw(kept, H::vlsrw(rest, 8));
    let exponent = H::vaslw(H::vsubw(H::lvsplatw(157), zeros), 23);
    let bits = H::vor(H::vaddw(exponent, mantissa), sign::<H>(x));
    let zero = H::lvsplatw(0);
    H::vmux(H::veqw(x, zero), zero, bits)
}

/// f16 in the low halves of words, the high halves 0, as f32; exact, subnormals included.
#[cfg_attr(target_arch = "hexagon", inline(always))]
#[cfg_attr(not(target_arch = "hexagon"), inline(never))]
pub(super) fn widen<H: Hvx>(half: H::V) -> H::V {
    let zero = H::lvsplatw(0);
    let abs = H::vand(half, H::lvsplatw(0x7fff));
    let rebias = H::lvsplatw(112 << 23);
    let normal = H::vaddw(H::vaslw(abs, 13), rebias);
    let infinite = H::vgtw(abs, H::lvsplatw(0x7bff));
    let normal = H::vmux(infinite, H::vaddw(normal, rebias), normal);
    // A subnormal is abs * 2^-24: its leading bit moves to bit 23.
    let zeros = H::vcl0w(abs);
    let mantissa = H::vaslwv(abs, H::vsubw(zeros, H::lvsplatw(8)));
    let small = H::vaddw(H::vaslw(H::vsubw(H::lvsplatw(133), zeros), 23), mantissa);
    let small = H::vmux(H::veqw(abs, zero), zero, small);
    let bits = H::vmux(H::vgtw(abs, H::lvsplatw(0x3ff)), normal, small);
    H::vor(bits, H::vaslw(H::vxor(half, abs), 16))
}

/// f32 as f16 in the low halves of words: nearest even, subnormals kept, overflow to infinity.
#[cfg_attr(target_arch = "hexagon", inline(always))]
#[cfg_attr(not(target_arch = "hexagon"), inline(never))]
pub(super) fn narrow<H: Hvx>(x: H::V) -> H::V {
    let abs = magnitude::<H>(x);
    // Rounds what 13 bits less leave, above 2^31 as well.
    let odd = H::vand(H::vlsrw(abs, 13), H::lvsplatw(1));
    let normal = H::vlsrw(H::vaddw(abs, H::vaddw(odd, H::lvsplatw(0xfff))), 13);
    let normal = H::vsubw(normal, H::lvsplatw(112 << 10));
    let normal = H::vminw(normal, H::lvsplatw(0x7c00));
    let by = H::vsubw(H::lvsplatw(126), H::vlsrw(abs, 23));
    let by = H::vmaxw(H::vminw(by, H::lvsplatw(31)), H::lvsplatw(1));
    let small = round_shift::<H>(mantissa::<H>(abs), by);
    let half = H::vmux(H::vgtw(abs, H::lvsplatw(0x387f_ffff)), normal, small);
    let payload = H::vand(H::vlsrw(abs, 13), H::lvsplatw(0x3ff));
    let nan = H::vor(payload, H::lvsplatw(0x7e00));
    let half = H::vmux(H::vgtw(abs, H::lvsplatw(INFINITY)), nan, half);
    H::vor(half, H::vlsrw(sign::<H>(x), 16))
}

/// a / b, correctly rounded: 25 bits of quotient by restoring division, then one rounding. Long enough to be a call.
#[inline(never)]
pub(super) fn div<H: Hvx>(a: H::V, b: H::V) -> H::V {
    let (abs_a, abs_b) = (magnitude::<H>(a), magnitude::<H>(b));
    let (top, bottom) = (parts::<H>(abs_a), parts::<H>(abs_b));
    let (zero, one) = (H::lvsplatw(0), H::lvsplatw(1));
    // The first bit of the quotient is 1 once a mantissa below the divisor's is doubled.
    let less = H::vgtw(bottom.mantissa, top.mantissa);
    let exponent = H::vsubw(top.exponent, bottom.exponent);
    let exponent = H::vsubw(exponent, H::vmux(less, one, zero));
    let rest = H::vaddw(top.mantissa, H::vmux(less, top.mantissa, zero));
    let mut rest = H::vsubw(rest, bottom.mantissa);
    let mut quotient = one;
    for _ in 0..24 {
        rest = H::vaddw(rest, rest);
        let below = H::vgtw(bottom.mantissa, rest);
        rest = H::vsubw(rest, H::vmux(below, zero, bottom.mantissa));
        quotient = H::vaddw(H::vaddw(quotient, quotient), H::vmux(below, zero, one));
    }
    let value = round_pack::<H>(quotient, rest, exponent);

    let (zero_a, zero_b) = (H::veqw(abs_a, zero), H::veqw(abs_b, zero));
    let (big_a, big_b) = (not_finite::<H>(abs_a), not_finite::<H>(abs_b));
    let value = H::vmux(H::pred_or(zero_a, big_b), zero, value);
    let value = H::vmux(H::pred_or(zero_b, big_a), H::lvsplatw(INFINITY), value);
    let invalid = H::pred_or(H::pred_and(zero_a, zero_b), H::pred_and(big_a, big_b));
    let valid = H::pred_and(H::pred_not(invalid), ordered::<H>(a, b));
    let value = H::vmux(valid, value, H::lvsplatw(NAN));
    H::vor(value, sign::<H>(H::vxor(a, b)))
}

/// Square root, correctly rounded, digit by digit; NaN below 0. Long enough to be a call.
#[inline(never)]
pub(super) fn sqrt<H: Hvx>(x: H::V) -> H::V {
    let (zero, one) = (H::lvsplatw(0), H::lvsplatw(1));
    let abs = magnitude::<H>(x);
    let Parts { mantissa, exponent } = parts::<H>(abs);
    // 26 bits of radicand, 2^24 to 2^26; 24 zeros follow. Two bits give one of the root's 25.
    let odd = H::vand(exponent, one);
    let radicand = H::vaslwv(mantissa, H::vaddw(odd, one));
    let (mut root, mut rest) = (zero, zero);
    for step in 0..25 {
        let next = match step {
            0..13 => H::vand(H::vlsrw(radicand, 24 - 2 * step), H::lvsplatw(3)),
            _ => zero,
        };
        rest = H::vor(H::vaslw(rest, 2), next);
        let trial = H::vor(H::vaslw(root, 2), one);
        let below = H::vgtw(trial, rest);
        rest = H::vsubw(rest, H::vmux(below, zero, trial));
        root = H::vaddw(H::vaddw(root, root), H::vmux(below, zero, one));
    }
    let value = round_pack::<H>(root, rest, H::vasrw(exponent, 1));
    // Negative numbers have none; zeros, +infinity and NaN are their own.
    let value = H::vmux(H::vgtw(zero, x), H::lvsplatw(NAN), value);
    let own = H::pred_or(H::veqw(abs, zero), H::vgtw(x, H::lvsplatw(INFINITY - 1)));
    H::vmux(own, x, value)
}

/// An integer that orders as the float does; both zeros are 0.
#[inline(always)]
fn key<H: Hvx>(x: H::V) -> H::V {
    signed::<H>(magnitude::<H>(x), x)
}

/// `x`, negated where the sign bit of `sign` is set.
#[inline(always)]
pub(super) fn signed<H: Hvx>(x: H::V, sign: H::V) -> H::V {
    let negative = H::vasrw(sign, 31);
    H::vsubw(H::vxor(x, negative), negative)
}

/// Lanes where neither is NaN.
#[inline(always)]
fn ordered<H: Hvx>(a: H::V, b: H::V) -> H::Q {
    let larger = H::vmaxw(magnitude::<H>(a), magnitude::<H>(b));
    H::vgtw(H::lvsplatw(INFINITY + 1), larger)
}

/// Lanes whose magnitude is that of an infinity or a NaN.
#[inline(always)]
fn not_finite<H: Hvx>(abs: H::V) -> H::Q {
    H::vgtw(abs, H::lvsplatw(INFINITY - 1))
}

/// The mantissa of a normal number with its hidden bit.
#[inline(always)]
fn mantissa<H: Hvx>(abs: H::V) -> H::V {
    H::vor(H::vand(abs, H::lvsplatw(MANTISSA)), H::lvsplatw(HIDDEN))
}

/// A magnitude's parts, subnormals normalised; for 0, infinity and NaN they mean nothing.
#[inline(always)]
pub(super) fn parts<H: Hvx>(abs: H::V) -> Parts<H> {
    let zero = H::lvsplatw(0);
    let by = H::vmaxw(H::vsubw(H::vcl0w(abs), H::lvsplatw(8)), zero);
    // An exponent field of 0 means the same as 1.
    let below = H::vmaxw(H::vsubw(by, H::lvsplatw(1)), zero);
    let exponent = H::vsubw(H::vlsrw(abs, 23), H::lvsplatw(127));
    Parts {
        mantissa: mantissa::<H>(H::vaslwv(abs, by)),
        exponent: H::vsubw(exponent, below),
    }
}

/// `significand * 2^(exponent - 24)` for 2^24 <= significand < 2^25, a little more if `rest` is above 0, as a float:
/// nearest even, subnormals, overflow to infinity.
#[inline(always)]
pub(super) fn round_pack<H: Hvx>(significand: H::V, rest: H::V, exponent: H::V) -> H::V {
    let zero = H::lvsplatw(0);
    let sticky = H::vlsrw(H::vsubw(zero, rest), 31);
    let significand = H::vor(H::vaddw(significand, significand), sticky);
    // Two bits go; below the smallest normal exponent one more for each power of two.
    let field = H::vaddw(exponent, H::lvsplatw(126));
    let by = H::vmaxw(H::vsubw(H::lvsplatw(2), field), H::lvsplatw(2));
    let mantissa = round_shift::<H>(significand, H::vminw(by, H::lvsplatw(31)));
    // The mantissa's leading bit, and a carry, add to the exponent field.
    let field = H::vminw(H::vmaxw(field, zero), H::lvsplatw(254));
    H::vminw(H::vaddw(H::vaslw(field, 23), mantissa), H::lvsplatw(INFINITY))
}

/// `x >> by` to nearest even, for 1 <= by <= 31 and 0 <= x < 2^31.
#[inline(always)]
pub(super) fn round_shift<H: Hvx>(x: H::V, by: H::V) -> H::V {
    let one = H::lvsplatw(1);
    let odd = H::vand(H::vlsrwv(x, by), one);
    let half = H::vaslwv(one, H::vsubw(by, one));
    let bias = H::vsubw(H::vaddw(half, odd), one);
    H::vlsrwv(H::vaddw(x, bias), by)
}
