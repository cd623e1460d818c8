//! Arithmetic that qfloat cannot do without losing a bit, by integer instructions: sums and products of finite floats to
//! nearest even, and the reduction of an exponential's argument in fixed point.

use super::bits::{Parts, parts, round_shift, sign, signed};
use super::{Flavour, Hvx, bits};

/// a + b for finite operands. Long enough to be a call.
#[inline(never)]
pub(super) fn add<H: Hvx>(a: H::V, b: H::V) -> H::V {
    let zero = H::lvsplatw(0);
    let (abs_a, abs_b) = (bits::magnitude::<H>(a), bits::magnitude::<H>(b));
    let larger = H::vgtw(abs_b, abs_a);
    let (top, low) = (H::vmaxw(abs_a, abs_b), H::vminw(abs_a, abs_b));
    let (big, small) = (parts::<H>(top), parts::<H>(low));
    // Five bits below the last place; the lowest stands for all that a shift drops.
    let big_units = H::vmux(H::veqw(top, zero), zero, H::vaslw(big.mantissa, 5));
    let small_units = H::vmux(H::veqw(low, zero), zero, H::vaslw(small.mantissa, 5));
    let by = H::vminw(H::vsubw(big.exponent, small.exponent), H::lvsplatw(31));
    let shifted = H::vlsrwv(small_units, by);
    let exact = H::veqw(H::vaslwv(shifted, by), small_units);
    let shifted = H::vor(shifted, H::vmux(exact, zero, H::lvsplatw(1)));
    let opposite = H::vasrw(H::vxor(a, b), 31);
    let units = H::vaddw(big_units, signed::<H>(shifted, opposite));
    // The leading bit moves to bit 29, so that 6 go, more below the smallest normal exponent.
    let zeros = H::vcl0w(units);
    let units = H::vaslwv(units, H::vsubw(zeros, H::lvsplatw(2)));
    let field = H::vsubw(H::vaddw(big.exponent, H::lvsplatw(3 + 126)), zeros);
    let by = H::vsubw(H::lvsplatw(6), H::vminw(field, zero));
    let mantissa = round_shift::<H>(units, H::vminw(by, H::lvsplatw(31)));
    let value = H::vaddw(H::vaslw(H::vmaxw(field, zero), 23), mantissa);
    let value = H::vor(value, sign::<H>(H::vmux(larger, b, a)));
    // Opposite numbers, and zeros, add up to the zero that both signs agree on.
    let nothing = H::veqw(units, zero);
    H::vmux(nothing, sign::<H>(H::vand(a, b)), value)
}

/// The product of two finite magnitudes. Long enough to be a call.
#[inline(never)]
pub(super) fn mul<H: Hvx>(a: H::V, b: H::V) -> H::V {
    let (zero, one) = (H::lvsplatw(0), H::lvsplatw(1));
    let (x, y): (Parts<H>, Parts<H>) = (parts::<H>(a), parts::<H>(b));
    // 24 by 24 bits in halves of 12, to a product of 47 or 48 bits: `high * 2^24 + rest`.
    let half = H::lvsplatw(0xfff);
    let (x_high, x_low) = (H::vlsrw(x.mantissa, 12), H::vand(x.mantissa, half));
    let (y_high, y_low) = (H::vlsrw(y.mantissa, 12), H::vand(y.mantissa, half));
    let middle = H::vaddw(H::vmpyiewuh(x_high, y_low), H::vmpyiewuh(x_low, y_high));
    let low = H::vaddw(H::vmpyiewuh(x_low, y_low), H::vaslw(H::vand(middle, half), 12));
    let high = H::vaddw(H::vmpyiewuh(x_high, y_high), H::vlsrw(middle, 12));
    let high = H::vaddw(high, H::vlsrw(low, 24));
    let rest = H::vand(low, H::lvsplatw(0x00ff_ffff));
    // 25 bits of significand: one or two come from the rest.
    let long = H::vgtw(high, H::lvsplatw(0x007f_ffff));
    let taken = H::vmux(long, one, H::lvsplatw(2));
    let significand = H::vor(
        H::vaslwv(high, taken),
        H::vlsrwv(rest, H::vsubw(H::lvsplatw(24), taken)),
    );
    let dropped = H::vand(H::vaslwv(rest, taken), H::lvsplatw(0x00ff_ffff));
    let exponent = H::vaddw(x.exponent, y.exponent);
    let exponent = H::vaddw(exponent, H::vmux(long, one, zero));
    let value = bits::round_pack::<H>(significand, dropped, exponent);
    H::vmux(H::veqw(H::vminw(a, b), zero), zero, value)
}

/// `x - n ln 2` for |x| up to 104, |n| up to 255 and a difference below 1: in units of 2^-24, so that the error is below
/// 2^-24.
#[inline(always)]
pub(super) fn exp_rest<H: Hvx, F: Flavour>(x: H::V, n: H::V) -> H::V {
    // ln 2 in units of 2^-36, in three pieces of 12 bits.
    const LN2: [i32; 3] = [0xb17, 0x217, 0xf7d];
    let units = bits::to_int::<H>(H::vaddw(x, H::lvsplatw(24 << 23)));
    let product = |piece: i32| H::vmpyiewuh(n, H::lvsplatw(piece));
    let whole = H::vaddw(H::vaslw(product(LN2[0]), 12), product(LN2[1]));
    let part = H::vasrw(H::vaddw(product(LN2[2]), H::lvsplatw(0x800)), 12);
    let rest = H::vsubw(units, H::vaddw(whole, part));
    F::mul::<H>(H::vconv_sf_w(rest), H::lvsplatw((127 - 24) << 23))
}
