//! qf32 against exact arithmetic, and golden values.

use super::qfloat;

/// The value of a qf32.
fn value(bits: u32) -> f64 {
    let significand = f64::from((bits as i32 >> 8) * 2 + 1);
    significand * f64::from((bits & 0xff) as i32 - 127 - 23).exp2()
}

fn sf(x: f32) -> u32 {
    x.to_bits()
}

/// xorshift: test data needs no more.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Numbers whose sums and products are exact in f64 or nearly so, within a few dozen powers of two.
fn numbers(seed: &mut u64) -> (f32, f32) {
    let mut number = || {
        let bits = random(seed);
        let field = 127 - 12 + (bits >> 40) as u32 % 24;
        f32::from_bits((bits as u32 & 0x807f_ffff) | field << 23)
    };
    (number(), number())
}

/// Half of the distance between neighbours of a qf32 with the power of two of `x`: 2^-23 of that power.
fn unit(x: f64) -> f64 {
    (x.abs().log2().floor() - 23.0).exp2()
}

#[test]
fn golden_values() {
    // Field 1 at exponent 0 is the least; the hidden bit makes 1.0 one unit too large.
    assert_eq!(qfloat::add_sf(sf(1.0), sf(0.0)), 0x4000_007f);
    assert_eq!(qfloat::to_sf(0x4000_007f), 0x3f80_0001);
    assert_eq!(qfloat::add_sf(sf(-1.0), sf(-0.0)), 0xbfff_ff7f);
    assert_eq!(qfloat::to_sf(0xbfff_ff7f), 0xbf80_0001);
    // A remainder of 2 goes to the next exponent without error.
    let exact = f32::from_bits(0x3f80_0002);
    assert_eq!(qfloat::add_sf(sf(exact), sf(0.0)), 0x2000_0080);
    assert_eq!(qfloat::to_sf(0x2000_0080), sf(exact));
    // 1.5 * 1.5 moves to the next exponent.
    assert_eq!(qfloat::mul_sf(sf(1.5), sf(1.5)), 0x4800_0080);
    assert_eq!(qfloat::to_sf(0x4800_0080), sf(2.25) + 1);
    // Zeros.
    assert_eq!(qfloat::add_sf(sf(3.0), sf(-3.0)), 0);
    assert_eq!(qfloat::add_sf(sf(-0.0), sf(-0.0)), 0xffff_ff00);
    assert_eq!(qfloat::mul_sf(sf(0.0), sf(-7.0)), 0xffff_ff00);
    assert_eq!(qfloat::to_sf(0), 0);
    assert_eq!(qfloat::to_sf(0xffff_ff00), 0x8000_0000);
    // Saturation: the largest and the most negative value, which read as NaN.
    assert_eq!(qfloat::mul_sf(sf(1e30), sf(1e30)), 0x7fff_ffff);
    assert_eq!(qfloat::mul_sf(sf(1e30), sf(-1e30)), 0x8000_00ff);
    assert_eq!(qfloat::to_sf(0x7fff_ffff), 0x7fff_ffff);
    assert_eq!(qfloat::to_sf(0x8000_00ff), 0xffff_ffff);
    // Underflow.
    assert_eq!(qfloat::mul_sf(sf(1e-30), sf(1e-30)), 0);
    assert_eq!(
        qfloat::to_sf(qfloat::mul_sf(sf(2f32.powi(-64)), sf(2f32.powi(-64)))),
        1 << 21
    );
    // Halves: exact but for the hidden bit.
    assert_eq!(qfloat::mul_hf(0x3c00, 0x4000), 0x4000_0080);
    assert_eq!(qfloat::mul_hf(0x0001, 0xc000), 0xffef_ff72);
}

#[test]
fn sums_of_floats_are_within_a_unit() {
    let mut seed = 5;
    for _ in 0..200_000 {
        let (a, b) = numbers(&mut seed);
        for (got, exact) in [
            (qfloat::add_sf(sf(a), sf(b)), f64::from(a) + f64::from(b)),
            (qfloat::sub_sf(sf(a), sf(b)), f64::from(a) - f64::from(b)),
        ] {
            // The unit is that of the larger operand where the sum cancels; a sum that carries moves to the next exponent.
            let larger = f64::from(a.abs().max(b.abs()));
            let limit = unit(larger)
                * if exact.abs() >= unit(larger) * 16_777_216.0 {
                    2.0
                } else {
                    1.0
                };
            assert!(
                (value(got) - exact).abs() <= limit,
                "{a:e}, {b:e}: {:e}, not {exact:e}",
                value(got)
            );
        }
    }
}

#[test]
fn products_are_within_a_unit_of_the_last_place() {
    let mut seed = 9;
    for _ in 0..200_000 {
        let (a, b) = numbers(&mut seed);
        let exact = f64::from(a) * f64::from(b);
        let got = qfloat::mul_sf(sf(a), sf(b));
        assert!(
            (value(got) - exact).abs() <= unit(exact),
            "{a:e} * {b:e}: {:e}, not {exact:e}",
            value(got)
        );
    }
}

#[test]
fn qfloat_operands_are_within_a_unit() {
    let mut seed = 13;
    for _ in 0..200_000 {
        let ((a, b), (c, d)) = (numbers(&mut seed), numbers(&mut seed));
        let (x, y) = (qfloat::mul_sf(sf(a), sf(b)), qfloat::add_sf(sf(c), sf(d)));
        let product = value(x) * value(y);
        // A sum's significand need not be normalised: the unit is that of its exponent field.
        let place = |bits: u32| f64::from((bits & 0xff) as i32 - 127).exp2();
        let limit = 2.0 * place(x) * place(y) * 2f64.powi(-23);
        assert!((value(qfloat::mul(x, y)) - product).abs() <= limit);
        for (got, exact) in [
            (qfloat::add(x, y), value(x) + value(y)),
            (qfloat::sub(x, y), value(x) - value(y)),
            (qfloat::add_mix(x, sf(c)), value(x) + f64::from(c)),
            (qfloat::sub_mix(x, sf(c)), value(x) - f64::from(c)),
        ] {
            let other = place(y).max(unit(f64::from(c)) * 8_388_608.0);
            let limit = 2.0 * place(x).max(other) * 2f64.powi(-23);
            assert!((value(got) - exact).abs() <= limit, "{:e}, not {exact:e}", value(got));
        }
    }
}

#[test]
fn a_small_operand_pushes_a_large_one_off_an_exact_value() {
    // Far below the last place, but it decides on which side of a multiple of 4 the sum lies.
    let one = sf(1.0);
    for (small, wanted) in [(1e-30, 0x3f80_0001), (-1e-30, 0x3f7f_fffe), (-1e-12, 0x3f7f_fffe)] {
        assert_eq!(qfloat::to_sf(qfloat::add_sf(one, sf(small))), wanted, "1 + {small:e}");
    }
}

#[test]
fn conversion_is_exact_for_normal_numbers_and_to_nearest_even_below() {
    let mut seed = 17;
    for _ in 0..200_000 {
        let bits = random(&mut seed) as u32;
        let exact = value(bits);
        let got = f32::from_bits(qfloat::to_sf(bits));
        if exact.abs() < 2f64.powi(128) {
            assert_eq!(got.to_bits(), (exact as f32).to_bits(), "{bits:#x} is {exact:e}");
        } else {
            assert!(!got.is_finite(), "{bits:#x} is {exact:e}");
        }
    }
}
