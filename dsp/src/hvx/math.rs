//! Transcendentals on vectors, built only from the layer's operations, so that every member gives the same bits.
//!
//! Errors against the exact value, measured over dense grids by the tests of this file: `exp`, `log`, `tanh`, `erf` and
//! `sigmoid` 2 units in the last place, `rsqrt` 1.5, `erfc` 6, `sin_cos` 2e-7 absolute up to |x| = 1e5. NaN gives NaN.
//! Polynomials are Chebyshev fits over the range that each function reduces its argument to, lowest power first.
//!
//! [`scalar`] applies one of these to a single value: the bits are those of a vector's lane.

use core::f32::consts::{LOG2_E, TAU};

use super::plain::Plain;
use super::{Isa, LANES};

/// One value through a vector function: `scalar(exp::<Plain>, x)`.
pub fn scalar(function: impl Fn([f32; LANES]) -> [f32; LANES], x: f32) -> f32 {
    function(Plain::splat(x))[0]
}

/// e^x: 0 below -104, infinity above 88.73, subnormal results kept.
#[inline(always)]
pub fn exp<I: Isa>(x: I::F32) -> I::F32 {
    exp_sum::<I>(x, I::splat(0.0))
}

/// Natural logarithm: -infinity at 0, NaN below.
#[inline(always)]
pub fn log<I: Isa>(x: I::F32) -> I::F32 {
    // Subnormals are lifted by 2^23 so that their exponent field means something.
    let tiny = I::gt(I::splat(f32::MIN_POSITIVE), x);
    let lifted = I::select(tiny, I::mul(x, I::splat(8_388_608.0)), x);
    let drop = I::and(tiny, I::splat_i(23));
    // The mantissa is brought to [sqrt(1/2), sqrt(2)) by subtracting sqrt(1/2)'s bits from the exponent's point of view.
    let sqrt_half = I::splat_i(core::f32::consts::FRAC_1_SQRT_2.to_bits() as i32);
    let offset = I::sub_i(I::bits(lifted), sqrt_half);
    let exponent = I::sar::<23>(offset);
    let mantissa = I::from_bits(I::sub_i(I::bits(lifted), I::shl::<23>(exponent)));
    let exponent = I::to_float(I::sub_i(exponent, drop));
    let f = I::sub(mantissa, I::splat(1.0));
    let square = I::mul(f, f);
    let cubic = I::mul(
        I::mul(f, square),
        poly::<I, 10>(
            f,
            [
                0.333_333_33,
                -0.249_999_9,
                0.200_000_1,
                -0.166_680_02,
                0.142_865_25,
                -0.124_507_43,
                0.110_377_83,
                -0.106_461_92,
                0.105_308_65,
                -0.062_015,
            ],
        ),
    );
    let low = I::add(I::mul(exponent, I::splat(LN2_LOW)), cubic);
    let low = I::sub(low, I::mul(I::splat(0.5), square));
    let result = I::add(I::mul(exponent, I::splat(LN2_HIGH)), I::add(f, low));
    let result = I::select(I::eq(x, I::splat(f32::INFINITY)), x, result);
    let result = I::select(I::eq(x, I::splat(0.0)), I::splat(f32::NEG_INFINITY), result);
    let valid = I::gt(x, I::splat(-f32::MIN_POSITIVE));
    let valid = I::and(valid, I::or(I::gt(x, I::splat(0.0)), I::eq(x, I::splat(0.0))));
    I::select(valid, result, I::splat(f32::NAN))
}

/// 1 / (1 + e^-x), accurate in both tails.
#[inline(always)]
pub fn sigmoid<I: Isa>(x: I::F32) -> I::F32 {
    let one = I::splat(1.0);
    let e = exp::<I>(negative_abs::<I>(x));
    let numerator = I::select(I::gt(I::splat(0.0), x), e, one);
    I::div(numerator, I::add(one, e))
}

/// Hyperbolic tangent, odd, without cancellation near 0.
#[inline(always)]
pub fn tanh<I: Isa>(x: I::F32) -> I::F32 {
    let a = abs::<I>(x);
    let z = I::mul(x, x);
    let p = poly::<I, 6>(
        z,
        [
            -0.333_333_33,
            0.133_333_04,
            -0.053_959_26,
            0.021_768_919,
            -0.008_343_945,
            0.002_292_744_8,
        ],
    );
    let near = I::add(a, I::mul(I::mul(a, z), p));
    let e = exp::<I>(I::add(a, a));
    let one = I::splat(1.0);
    let far = I::sub(one, I::div(I::splat(2.0), I::add(e, one)));
    with_sign::<I>(I::select(I::gt(I::splat(0.625), a), near, far), x)
}

/// Error function, odd, without cancellation near 0.
#[inline(always)]
pub fn erf<I: Isa>(x: I::F32) -> I::F32 {
    let z = I::mul(x, x);
    let p = poly::<I, 7>(
        z,
        [
            0.128_379_17,
            -0.376_126_38,
            0.112_837_67,
            -0.026_863_89,
            0.005_213_663_5,
            -0.000_830_623_46,
            9.164_212e-5,
        ],
    );
    let a = abs::<I>(x);
    let near = I::add(a, I::mul(a, p));
    let far = I::sub(I::splat(1.0), erfc::<I>(a));
    with_sign::<I>(I::select(I::gt(I::splat(0.8), a), near, far), x)
}

/// Complementary error function of a >= 0, with its relative accuracy kept into the tail.
#[inline(always)]
pub fn erfc<I: Isa>(a: I::F32) -> I::F32 {
    let one = I::splat(1.0);
    let inside = I::min(a, I::splat(11.0));
    let t = I::div(one, I::add(one, I::mul(I::splat(0.5), inside)));
    let q = poly::<I, 11>(
        t,
        [
            0.282_088_6,
            0.282_254_3,
            0.245_118_95,
            0.186_178_53,
            0.051_915_52,
            0.044_446_655,
            -0.039_420_158,
            -0.268_078_26,
            0.365_018_13,
            -0.183_982_39,
            0.034_460_112,
        ],
    );
    // a^2 = head^2 + (a - head)(a + head), the first exactly.
    let head = I::from_bits(I::and(I::bits(inside), I::splat_i(!0xfff)));
    let rest = I::mul(I::sub(head, inside), I::add(head, inside));
    let gauss = exp_sum::<I>(I::mul(I::sub(I::splat(0.0), head), head), rest);
    let result = I::mul(I::mul(t, q), gauss);
    I::select(I::eq(a, a), result, a)
}

/// 1 / sqrt(x).
#[inline(always)]
pub fn rsqrt<I: Isa>(x: I::F32) -> I::F32 {
    I::div(I::splat(1.0), I::sqrt(x))
}

/// Sine and cosine of radians. Beyond |x| = 1e5 accuracy fades; from 2^20 on only -1..=1 is promised, infinities give NaN.
#[inline(always)]
pub fn sin_cos<I: Isa>(x: I::F32) -> (I::F32, I::F32) {
    let limit = I::splat(1_048_576.0);
    let bounded = I::max(I::min(x, limit), I::sub(I::splat(0.0), limit));
    let quarter = I::to_int(I::mul(bounded, I::splat(core::f32::consts::FRAC_2_PI)));
    let n = I::to_float(quarter);
    // pi/2 in three pieces of eight bits, whose products with n are exact below 2^16, and a last one.
    let r = I::sub(bounded, I::mul(n, I::splat(1.570_312_5)));
    let r = I::sub(r, I::mul(n, I::splat(4.577_636_7e-4)));
    let r = I::sub(r, I::mul(n, I::splat(2.598_762_5e-5)));
    let r = I::sub(r, I::mul(n, I::splat(7.549_789_4e-8)));
    let r = I::max(I::min(r, I::splat(1.0)), I::splat(-1.0));
    let defined = I::gt(I::splat(f32::INFINITY), abs::<I>(x));
    let r = I::select(defined, r, I::splat(f32::NAN));
    quadrant::<I>(quarter, r)
}

/// Sine and cosine of turns within -1..=1: the angle 2 pi x.
#[inline(always)]
pub fn sin_cos_turns<I: Isa>(x: I::F32) -> (I::F32, I::F32) {
    let quarter = I::to_int(I::mul(x, I::splat(4.0)));
    let rest = I::exact_sub(x, I::exact_mul(I::to_float(quarter), I::splat(0.25)));
    quadrant::<I>(quarter, I::mul(rest, I::splat(TAU)))
}

/// |x|.
#[inline(always)]
pub fn abs<I: Isa>(x: I::F32) -> I::F32 {
    I::from_bits(I::and(I::bits(x), I::splat_i(i32::MAX)))
}

/// ln 2 to 15 bits, so that its product with an exponent is exact, and what is left of it.
pub(super) const LN2_HIGH: f32 = 0.693_145_75;
pub(super) const LN2_LOW: f32 = 1.428_606_8e-6;

/// e^(x + low) for a `low` that is small against x or 0.
#[inline(always)]
fn exp_sum<I: Isa>(x: I::F32, low: I::F32) -> I::F32 {
    let bounded = I::min(I::max(x, I::splat(-104.0)), I::splat(89.0));
    let power = I::to_int(I::mul(bounded, I::splat(LOG2_E)));
    let r = I::add(I::exp_rest(bounded, power), low);
    let p = poly::<I, 6>(
        r,
        [
            0.5,
            0.166_666_67,
            0.041_666_465,
            0.008_333_311,
            0.001_393_367_4,
            0.000_198_910_17,
        ],
    );
    let fraction = I::add(r, I::mul(I::mul(r, r), p));
    let mantissa = I::add(I::splat(1.0), fraction);
    // Two factors, because 2^power itself may not be a normal number; only the last product rounds.
    let half = I::sar::<1>(power);
    let result = I::mul(
        I::mul(mantissa, power_of_two::<I>(half)),
        power_of_two::<I>(I::sub_i(power, half)),
    );
    I::select(I::eq(x, x), result, x)
}

/// Sine and cosine of `r + quarter * pi/2`, |r| at most pi/4 and a little.
#[inline(always)]
fn quadrant<I: Isa>(quarter: I::I32, r: I::F32) -> (I::F32, I::F32) {
    let z = I::mul(r, r);
    let p = poly::<I, 4>(z, [-0.166_666_67, 0.008_333_332, -0.000_198_400_81, 2.724_914_7e-6]);
    let sin = I::add(r, I::mul(I::mul(r, z), p));
    let p = poly::<I, 4>(z, [0.041_666_668, -0.001_388_888_8, 2.480_059_5e-5, -2.730_03e-7]);
    let cos = I::sub(I::splat(1.0), I::mul(I::splat(0.5), z));
    let cos = I::add(cos, I::mul(I::mul(z, z), p));
    let one = I::splat_i(1);
    let swap = I::gt_i(I::and(quarter, one), I::splat_i(0));
    let sin_sign = I::shl::<30>(I::and(quarter, I::splat_i(2)));
    let cos_sign = I::shl::<30>(I::and(I::add_i(quarter, one), I::splat_i(2)));
    (
        flip::<I>(I::select(swap, cos, sin), sin_sign),
        flip::<I>(I::select(swap, sin, cos), cos_sign),
    )
}

/// `x` with its bits changed where `sign` has ones.
#[inline(always)]
fn flip<I: Isa>(x: I::F32, sign: I::I32) -> I::F32 {
    I::from_bits(I::xor(I::bits(x), sign))
}

/// c0 + x (c1 + x (c2 + ...)).
#[inline(always)]
fn poly<I: Isa, const N: usize>(x: I::F32, coefficients: [f32; N]) -> I::F32 {
    let mut sum = I::splat(coefficients[N - 1]);
    for &c in coefficients[..N - 1].iter().rev() {
        sum = I::add(I::mul(sum, x), I::splat(c));
    }
    sum
}

/// 2^power for -126..=127.
#[inline(always)]
fn power_of_two<I: Isa>(power: I::I32) -> I::F32 {
    I::from_bits(I::shl::<23>(I::add_i(power, I::splat_i(127))))
}

#[inline(always)]
fn negative_abs<I: Isa>(x: I::F32) -> I::F32 {
    I::from_bits(I::or(I::bits(x), I::splat_i(i32::MIN)))
}

/// The magnitude of `x >= 0` with the sign of `sign`.
#[inline(always)]
fn with_sign<I: Isa>(x: I::F32, sign: I::F32) -> I::F32 {
    I::from_bits(I::or(I::bits(x), I::and(I::bits(sign), I::splat_i(i32::MIN))))
}

#[cfg(test)]
mod tests;
