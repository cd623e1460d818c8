//! f64 functions without a library: for the references, and for values that an op computes once.
//!
//! Relative error is a few 1e-16 unless a function says otherwise; only additions, multiplications and divisions are
//! used, so the bits are the same wherever f64 is IEEE.

use core::f64::consts::{LN_2, PI};

/// e^x.
pub fn exp(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let x = x.clamp(-746.0, 710.0);
    let n = round(x / LN_2);
    let r = (x - n * 0.693_147_180_369_123_8) - n * 1.908_214_929_270_587_7e-10;
    let mut sum = 1.0;
    for k in (1..=14).rev() {
        sum = 1.0 + r / f64::from(k) * sum;
    }
    let half = (n as i64).div_euclid(2);
    sum * power_of_two(half) * power_of_two(n as i64 - half)
}

/// Natural logarithm; -infinity at 0, NaN below.
pub fn ln(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x == f64::INFINITY {
        return x;
    }
    let lift = if x < f64::MIN_POSITIVE { 54 } else { 0 };
    let bits = (x * power_of_two(lift)).to_bits();
    let offset = bits as i64 - core::f64::consts::FRAC_1_SQRT_2.to_bits() as i64;
    let exponent = offset >> 52;
    let mantissa = f64::from_bits((bits as i64 - (exponent << 52)) as u64);
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let mut sum = 0.0;
    for k in (0..14).rev() {
        sum = sum * s * s + 1.0 / f64::from(2 * k + 1);
    }
    2.0 * s * sum + (exponent - lift) as f64 * LN_2
}

/// Square root.
pub fn sqrt(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 || x == f64::INFINITY {
        return x;
    }
    let mut root = f64::from_bits((x.to_bits() >> 1) + (1023 << 51));
    for _ in 0..6 {
        root = 0.5 * (root + x / root);
    }
    root
}

/// Sine and cosine of radians, absolute error below 1e-14 for |x| up to 1e6.
pub fn sin_cos(x: f64) -> (f64, f64) {
    if !x.is_finite() {
        return (f64::NAN, f64::NAN);
    }
    let n = round(x / (PI / 2.0));
    let r = (x - n * 1.570_796_326_734_125_6) - n * 6.077_100_506_506_192e-11;
    let (mut sin, mut cos) = (1.0, 1.0);
    for k in (1..=10).rev() {
        let k = f64::from(2 * k);
        sin = 1.0 - r * r / (k * (k + 1.0)) * sin;
        cos = 1.0 - r * r / (k * (k - 1.0)) * cos;
    }
    let sin = r * sin;
    match (n as i64).rem_euclid(4) {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// Complementary error function.
pub fn erfc(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    if x < 2.0 {
        // erf = 2/sqrt(pi) e^(-x^2) (x + 2x^3/3 + 4x^5/15 + ...), all terms positive.
        let mut sum = 1.0;
        for k in (1..=60).rev() {
            sum = 1.0 + 2.0 * x * x / f64::from(2 * k + 1) * sum;
        }
        return 1.0 - 2.0 / sqrt(PI) * exp(-x * x) * x * sum;
    }
    if x > 28.0 {
        return 0.0;
    }
    let mut fraction = x;
    for k in (1..=120).rev() {
        fraction = x + f64::from(k) / 2.0 / fraction;
    }
    exp(-x * x) / (sqrt(PI) * fraction)
}

/// Largest integer not above x, for |x| below 2^62; other values are returned as they are.
pub fn floor(x: f64) -> f64 {
    if x.is_nan() || magnitude(x) >= 4_503_599_627_370_496.0 {
        return x;
    }
    let whole = x as i64 as f64;
    if whole > x { whole - 1.0 } else { whole }
}

/// Smallest integer not below x.
pub fn ceil(x: f64) -> f64 {
    -floor(-x)
}

/// Nearest integer, halves up.
pub fn round(x: f64) -> f64 {
    floor(x + 0.5)
}

fn magnitude(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & !(1 << 63))
}

/// 2^power for -1022..=1023.
fn power_of_two(power: i64) -> f64 {
    f64::from_bits(((power + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, ours: impl Fn(f64) -> f64, truth: impl Fn(f64) -> f64, range: core::ops::Range<f64>) {
        for step in 0..20_000 {
            let x = range.start + (range.end - range.start) * f64::from(step) / 20_000.0;
            let (got, want) = (ours(x), truth(x));
            let scale = want.abs().max(1e-300);
            assert!(
                (got - want).abs() <= 4e-15 * scale.max(f64::from(u8::from(name.contains("sin")))),
                "{name}({x}) = {got}, not {want}"
            );
        }
    }

    #[test]
    fn matches_the_standard_library() {
        check("exp", exp, f64::exp, -700.0..700.0);
        check("ln", ln, f64::ln, 2.0..1e6);
        check("ln", ln, f64::ln, 1e-12..0.9);
        check("sqrt", sqrt, f64::sqrt, 0.0..1e9);
        check("sin", |x| sin_cos(x).0, f64::sin, -20.0..20.0);
        check("floor", floor, f64::floor, -9.0..9.0);
        check("ceil", ceil, f64::ceil, -9.0..9.0);
    }

    #[test]
    fn erfc_meets_known_values() {
        // Abramowitz and Stegun, table 7.1 and the asymptotic series.
        for (x, want) in [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (2.0, 0.004_677_734_981_047_266),
            (5.0, 1.537_459_794_428_034_8e-12),
            (-1.0, 1.842_700_792_949_715),
        ] {
            assert!((erfc(x) - want).abs() <= 2e-15 * want, "erfc({x}) = {}", erfc(x));
        }
    }

    #[test]
    fn edges_are_defined() {
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(f64::INFINITY), f64::INFINITY);
        assert!(exp(f64::NAN).is_nan() && ln(-1.0).is_nan() && sqrt(-1.0).is_nan());
        assert_eq!(ln(0.0), f64::NEG_INFINITY);
        assert_eq!(sqrt(0.0), 0.0);
        assert!(sin_cos(f64::INFINITY).0.is_nan());
    }
}
