//! Accuracy of the vector functions against f64 over dense grids, and their edges.

use super::*;
use crate::real;

type Function = fn([f32; LANES]) -> [f32; LANES];

/// The spacing of f32 at `x`, in f64.
fn ulp(x: f64) -> f64 {
    let exponent = (x.abs().max(f64::from(f32::MIN_POSITIVE)).log2()).floor();
    (exponent - 23.0).exp2()
}

/// Largest error in units in the last place over a grid, linear or geometric in x.
fn worst(ours: Function, truth: fn(f64) -> f64, from: f32, to: f32) -> f64 {
    const STEPS: u32 = 400_000;
    let mut worst = (0.0, 0.0f32);
    let geometric = from > 0.0 && to / from > 100.0;
    for start in (0..STEPS).step_by(LANES) {
        let lanes: [f32; LANES] = core::array::from_fn(|lane| {
            let t = f64::from(start + lane as u32) / f64::from(STEPS);
            let (from, to) = (f64::from(from), f64::from(to));
            let x = if geometric {
                from * (to / from).powf(t)
            } else {
                from + (to - from) * t
            };
            x as f32
        });
        for (x, got) in lanes.into_iter().zip(ours(lanes)) {
            let want = truth(f64::from(x));
            let error = (f64::from(got) - want).abs() / ulp(want);
            if error > worst.0 || error.is_nan() {
                worst = (error, x);
            }
        }
    }
    std::eprintln!("    {:.2} ulp at {:e} in {from:e}..{to:e}", worst.0, worst.1);
    worst.0
}

fn check(name: &str, ours: Function, truth: fn(f64) -> f64, ranges: &[(f32, f32)], limit: f64) {
    std::eprintln!("{name}");
    for &(from, to) in ranges {
        let error = worst(ours, truth, from, to);
        assert!(error <= limit, "{name}: {error} ulp in {from}..{to}, limit {limit}");
    }
}

#[test]
fn exp_is_within_two_ulp() {
    check(
        "exp",
        exp::<Plain>,
        f64::exp,
        &[(-103.9, 88.72), (-1.0, 1.0), (1e-20, 1.0)],
        2.0,
    );
}

#[test]
fn log_is_within_two_ulp() {
    check(
        "log",
        log::<Plain>,
        f64::ln,
        &[(1e-44, 3e38), (0.5, 2.0), (0.999, 1.001)],
        2.0,
    );
}

#[test]
fn sigmoid_is_within_two_and_a_half_ulp() {
    check(
        "sigmoid",
        sigmoid::<Plain>,
        |x| 1.0 / (1.0 + (-x).exp()),
        &[(-86.0, 40.0), (-1.0, 1.0)],
        2.5,
    );
}

#[test]
fn tanh_is_within_two_ulp() {
    let ranges = [(-20.0, 20.0), (-0.7, 0.7), (1e-30, 10.0), (0.5, 1.0)];
    check("tanh", tanh::<Plain>, f64::tanh, &ranges, 2.0);
}

#[test]
fn erf_is_within_two_ulp() {
    // Near 0 the truth is the series itself: 1 - erfc would cancel.
    fn truth(x: f64) -> f64 {
        if x.abs() < 0.5 {
            let (mut term, mut sum) = (x, x);
            for k in 1..40 {
                term *= -x * x / f64::from(k);
                sum += term / f64::from(2 * k + 1);
            }
            return sum * core::f64::consts::FRAC_2_SQRT_PI;
        }
        1.0 - real::erfc(x)
    }
    check(
        "erf",
        erf::<Plain>,
        truth,
        &[(-6.0, 6.0), (1e-30, 1.0), (0.7, 0.9)],
        2.0,
    );
    check("erfc", erfc::<Plain>, real::erfc, &[(0.0, 9.0), (1e-6, 1.0)], 6.0);
}

#[test]
fn rsqrt_is_within_one_and_a_half_ulp() {
    check(
        "rsqrt",
        rsqrt::<Plain>,
        |x| 1.0 / x.sqrt(),
        &[(1e-38, 3e38), (0.9, 4.1)],
        1.5,
    );
}

#[test]
fn sin_cos_hold_their_absolute_error() {
    for limit in [1.0f32, 30.0, 1e3, 1e5] {
        let mut worst = 0.0f64;
        for step in -400_000..400_000i32 {
            let x = limit * step as f32 / 400_000.0;
            let lanes = Plain::splat(x);
            if step % 16 != 0 {
                continue;
            }
            let (sin, cos) = sin_cos::<Plain>(lanes);
            let (s, c) = f64::from(x).sin_cos();
            worst = worst
                .max((f64::from(sin[0]) - s).abs())
                .max((f64::from(cos[0]) - c).abs());
        }
        std::eprintln!("sin_cos up to {limit:e}: {worst:.1e}");
        assert!(worst <= 2e-7, "sin_cos up to {limit}: {worst}");
    }
    for step in -4096..=4096 {
        let x = step as f32 / 4096.0;
        let (sin, cos) = sin_cos_turns::<Plain>(Plain::splat(x));
        let (s, c) = (f64::from(x) * core::f64::consts::TAU).sin_cos();
        assert!(
            (f64::from(sin[0]) - s).abs() <= 2e-7 && (f64::from(cos[0]) - c).abs() <= 2e-7,
            "{x} turns"
        );
    }
}

#[test]
fn edges_are_exact() {
    let at = |function: Function, x: f32| scalar(function, x);
    assert_eq!(at(exp::<Plain>, f32::NEG_INFINITY), 0.0);
    assert_eq!(at(exp::<Plain>, -104.0), 0.0);
    assert!(at(exp::<Plain>, -103.0) > 0.0);
    assert_eq!(at(exp::<Plain>, 0.0), 1.0);
    assert_eq!(at(exp::<Plain>, 89.0), f32::INFINITY);
    assert_eq!(at(exp::<Plain>, f32::INFINITY), f32::INFINITY);
    assert_eq!(at(log::<Plain>, 1.0), 0.0);
    assert_eq!(at(log::<Plain>, 0.0), f32::NEG_INFINITY);
    assert_eq!(at(log::<Plain>, f32::INFINITY), f32::INFINITY);
    assert!(at(log::<Plain>, -1.0).is_nan() && at(log::<Plain>, -1e-40).is_nan());
    for (function, low, high) in [
        (sigmoid::<Plain> as Function, 0.0, 1.0),
        (tanh::<Plain>, -1.0, 1.0),
        (erf::<Plain>, -1.0, 1.0),
    ] {
        assert_eq!(at(function, f32::NEG_INFINITY), low);
        assert_eq!(at(function, f32::INFINITY), high);
    }
    assert_eq!(at(erfc::<Plain>, f32::INFINITY), 0.0);
    assert_eq!(at(tanh::<Plain>, -0.0).to_bits(), (-0.0f32).to_bits());
    for function in [
        exp::<Plain> as Function,
        log::<Plain>,
        sigmoid::<Plain>,
        tanh::<Plain>,
        erf::<Plain>,
        erfc::<Plain>,
        rsqrt::<Plain>,
    ] {
        assert!(at(function, f32::NAN).is_nan());
    }
    for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (sin, cos) = sin_cos::<Plain>(Plain::splat(x));
        assert!(sin[0].is_nan() && cos[0].is_nan());
    }
    let (sin, cos) = sin_cos::<Plain>(Plain::splat(1e30));
    assert!(sin[0].abs() <= 1.0 && cos[0].abs() <= 1.0);
}

#[test]
fn sqrt_is_correctly_rounded() {
    for step in 0..4_000_000u32 {
        // Every binade, and the dense neighbourhood of perfect squares where rounding is decided.
        let x = f32::from_bits(step.wrapping_mul(536_870_923) & 0x7fff_ffff);
        if x.is_nan() {
            continue;
        }
        assert_eq!(crate::hvx::plain::sqrt(x).to_bits(), x.sqrt().to_bits(), "sqrt({x:e})");
    }
    for root in 1..4096u32 {
        for offset in [-1i32, 0, 1] {
            let square = (root * root) as f32;
            let x = f32::from_bits(square.to_bits().wrapping_add_signed(offset));
            assert_eq!(crate::hvx::plain::sqrt(x), x.sqrt());
        }
    }
    assert!(crate::hvx::plain::sqrt(-1.0).is_nan());
    assert_eq!(crate::hvx::plain::sqrt(-0.0).to_bits(), (-0.0f32).to_bits());
}
