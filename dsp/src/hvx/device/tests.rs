//! The member on the model: with IEEE floats all bits as `Plain`; with qfloat the operations that are not float
//! arithmetic, and stated bounds for the three that are.

use std::vec::Vec;

use super::model::Model;
use super::{Device, Hvx, Ieee, Qfloat, bits};
use crate::hvx::plain::Plain;
use crate::hvx::trials::{self, Floats, Halves, Integers, Tiles, Trial};
use crate::hvx::{Isa, LANES, math};

type Ours = Device<Model, Qfloat>;

#[test]
fn ieee_equals_plain() {
    trials::compare::<Plain, Device<Model, Ieee>, _>(Floats);
    trials::compare::<Plain, Device<Model, Ieee>, _>(Halves);
    trials::compare::<Plain, Device<Model, Ieee>, _>(Integers);
    trials::compare::<Plain, Device<Model, Ieee>, _>(Tiles);
}

#[test]
fn integers_become_floats_as_the_instruction_makes_them() {
    for start in (i32::MIN..=i32::MAX).step_by(268_435_399) {
        for step in [1, 3, 65_537] {
            let lanes = Model::from_words(core::array::from_fn(|lane| start.wrapping_add(lane as i32 * step)));
            assert_eq!(
                bits::to_float::<Model>(lanes),
                Model::vconv_sf_w(lanes),
                "from {start} by {step}"
            );
        }
    }
    let small = Model::from_words(core::array::from_fn(|lane| lane as i32 - 16));
    assert_eq!(bits::to_float::<Model>(small), Model::vconv_sf_w(small));
}

/// What qfloat does with integer instructions alone.
#[derive(Clone, Copy)]
struct Exact;

impl Trial for Exact {
    #[inline(always)]
    fn run<I: Isa>(&self, record: &mut Vec<u32>) {
        let vectors = trials::float_vectors();
        for (idx, lanes) in vectors.iter().enumerate() {
            let a = I::from_array(*lanes);
            let b = I::from_array(vectors[(idx + 1) % vectors.len()]);
            for x in [I::exact_add(a, b), I::exact_sub(a, b), I::exact_mul(a, b)] {
                record.extend(I::to_array(x).map(f32::to_bits));
            }
            for x in [I::div(a, b), I::sqrt(a), I::max(a, b), I::min(a, b), I::swap_pairs(a)] {
                record.extend(I::to_array(x).map(f32::to_bits));
            }
            record.extend(I::to_array(I::select(I::gt(a, b), a, b)).map(f32::to_bits));
            record.extend(I::to_array(I::select(I::eq(a, b), a, b)).map(f32::to_bits));
            record.push(I::max_lane(a).to_bits());
            record.push(I::exact_sum(a).to_bits());
            let mut halves = [0u16; LANES];
            // SAFETY: 32 halves are 64 writable bytes.
            unsafe { I::store_f16(halves.as_mut_ptr(), a) };
            record.extend(halves.map(u32::from));
        }
    }
}

/// Sums and products whose rounding is decided by the last bits.
#[derive(Clone, Copy)]
struct Near;

impl Trial for Near {
    #[inline(always)]
    fn run<I: Isa>(&self, record: &mut Vec<u32>) {
        let mut seed = 21u64;
        for _ in 0..4000 {
            let mut lanes = || {
                core::array::from_fn(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let mantissa = match seed >> 62 {
                        0 => (seed >> 32) as u32 & 0x7f_f000,
                        1 => (seed >> 32) as u32 & 7 | 0x40_0000,
                        _ => (seed >> 32) as u32 & 0x7f_ffff,
                    };
                    let field = 100 + (seed >> 24) as u32 % 54;
                    f32::from_bits((seed >> 16) as u32 & 0x8000_0000 | field << 23 | mantissa)
                })
            };
            let (a, b) = (I::from_array(lanes()), I::from_array(lanes()));
            for x in [I::exact_add(a, b), I::exact_sub(a, b), I::exact_mul(a, b)] {
                record.extend(I::to_array(x).map(f32::to_bits));
            }
        }
    }
}

#[test]
fn qfloat_equals_plain_where_no_qfloat_is_involved() {
    trials::compare::<Plain, Ours, _>(Exact);
    trials::compare::<Plain, Ours, _>(Near);
    trials::compare::<Plain, Ours, _>(Halves);
    trials::compare::<Plain, Ours, _>(Tiles);
}

/// Two operands and what the member makes of them.
type Binary = fn([f32; LANES], [f32; LANES]) -> [f32; LANES];

/// What they should make.
type Exactly = fn(f64, f64) -> f64;

/// An operation on the member, from arrays to an array.
macro_rules! binary {
    ($name:ident) => {
        |a, b| Ours::to_array(Ours::$name(Ours::from_array(a), Ours::from_array(b)))
    };
}

#[test]
fn qfloat_arithmetic_is_within_two_units_and_keeps_infinities() {
    let vectors = trials::float_vectors();
    let operations: [(&str, Binary, Exactly); 3] = [
        ("+", binary!(add), |a, b| a + b),
        ("-", binary!(sub), |a, b| a - b),
        ("*", binary!(mul), |a, b| a * b),
    ];
    for (name, ours, exact) in operations {
        let mut worst = 0.0f64;
        for idx in 0..vectors.len() * 8 {
            let a = vectors[idx % vectors.len()];
            let b = vectors[(idx + 1 + idx / vectors.len()) % vectors.len()];
            for ((got, a), b) in ours(a, b).into_iter().zip(a).zip(b) {
                let (a, b) = (f64::from(a), f64::from(b));
                let wanted = exact(a, b);
                // Products lose what is below 2^-128, and those of a subnormal, a multiple of 2^-149, have a multiple of
                // that for a unit. Sums have the larger operand's.
                let larger = a.abs().max(b.abs());
                let small = match name {
                    "*" => (larger * 2f64.powi(-149)).max(2f64.powi(-128)),
                    _ => place(larger),
                };
                let units = error(wanted, got, small);
                assert!(
                    units <= 2.0,
                    "{a:e} {name} {b:e} = {got:e}, not {wanted:e}: {units} units"
                );
                worst = worst.max(units);
            }
        }
        std::eprintln!("{name}: at most {worst:.2} units");
    }
}

/// The error in units: the last place of the result or `small`, whatever is more.
fn error(wanted: f64, got: f32, small: f64) -> f64 {
    let rounded = wanted as f32;
    if rounded.is_nan() || got.is_nan() {
        assert_eq!(rounded.is_nan(), got.is_nan(), "{got:e}, not {wanted:e}");
        return 0.0;
    }
    if rounded.is_infinite() || got.is_infinite() {
        // Within a unit of 2^128 either may have overflowed.
        let large = f64::from(f32::MAX) * (1.0 - 2e-7);
        let both = wanted.abs() >= large && f64::from(got).abs() >= large;
        assert!(both && (wanted > 0.0) == (got > 0.0), "{got:e}, not {wanted:e}");
        return 0.0;
    }
    (f64::from(got) - wanted).abs() / place(wanted).max(small)
}

/// The last place of a float like `x`.
fn place(x: f64) -> f64 {
    (x.abs().max(2f64.powi(-126)).log2().floor() - 23.0).exp2()
}

#[test]
fn functions_on_qfloat_keep_their_relative_error() {
    type Function = fn([f32; LANES]) -> [f32; LANES];
    let check = |name: &str, ours: Function, plain: Function, from: f32, to: f32, limit: f64| {
        let mut worst = (0.0f64, 0.0);
        for step in 0..2000 {
            let lanes: [f32; LANES] =
                core::array::from_fn(|lane| from + (to - from) * (step * 32 + lane) as f32 / 64_000.0);
            for ((got, wanted), x) in ours(lanes).into_iter().zip(plain(lanes)).zip(lanes) {
                let error = (f64::from(got) - f64::from(wanted)).abs() / f64::from(wanted).abs().max(1e-30);
                if error > worst.0 || error.is_nan() {
                    worst = (error, x);
                }
            }
        }
        std::eprintln!("{name}: {:.1e} at {}", worst.0, worst.1);
        assert!(worst.0 <= limit, "{name}: relative error {} at {}", worst.0, worst.1);
    };
    check(
        "exp",
        |x| Ours::to_array(math::exp::<Ours>(Ours::from_array(x))),
        math::exp::<Plain>,
        -80.0,
        88.0,
        2e-6,
    );
    check(
        "exp",
        |x| Ours::to_array(math::exp::<Ours>(Ours::from_array(x))),
        math::exp::<Plain>,
        -1.0,
        1.0,
        2e-6,
    );
    check(
        "log",
        |x| Ours::to_array(math::log::<Ours>(Ours::from_array(x))),
        math::log::<Plain>,
        1.5,
        100.0,
        2e-6,
    );
    check(
        "sigmoid",
        |x| Ours::to_array(math::sigmoid::<Ours>(Ours::from_array(x))),
        math::sigmoid::<Plain>,
        -40.0,
        40.0,
        2e-6,
    );
    check(
        "tanh",
        |x| Ours::to_array(math::tanh::<Ours>(Ours::from_array(x))),
        math::tanh::<Plain>,
        0.001,
        8.0,
        2e-6,
    );
    check(
        "erf",
        |x| Ours::to_array(math::erf::<Ours>(Ours::from_array(x))),
        math::erf::<Plain>,
        0.001,
        4.0,
        2e-6,
    );
    check(
        "erfc",
        |x| Ours::to_array(math::erfc::<Ours>(Ours::from_array(x))),
        math::erfc::<Plain>,
        0.0,
        8.0,
        2e-5,
    );
}
