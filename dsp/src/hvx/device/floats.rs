//! The two float flavours: how a device adds, subtracts and multiplies.
//!
//! Operands and results are IEEE bits, so nothing in qfloat format leaves a function. Infinities and NaN come out as IEEE
//! says in both flavours; [`Qfloat`] gets there by integer instructions, because qfloat knows neither.

use super::Hvx;
use super::bits::{INFINITY, NAN, SIGN, magnitude, sign};
use super::exact;
use crate::hvx::math::{LN2_HIGH, LN2_LOW};

/// Float arithmetic on vectors of 32 lanes.
pub trait Flavour: Copy + Send + Sync + 'static {
    /// Name in profiles and test output.
    const NAME: &'static str;
    /// a + b.
    fn add<H: Hvx>(a: H::V, b: H::V) -> H::V;
    /// a - b.
    fn sub<H: Hvx>(a: H::V, b: H::V) -> H::V;
    /// a * b.
    fn mul<H: Hvx>(a: H::V, b: H::V) -> H::V;
    /// a + b, correctly rounded.
    fn exact_add<H: Hvx>(a: H::V, b: H::V) -> H::V;
    /// a * b, correctly rounded.
    fn exact_mul<H: Hvx>(a: H::V, b: H::V) -> H::V;
    /// `x - n ln 2` for |x| up to 104 and the nearest such n.
    fn exp_rest<H: Hvx>(x: H::V, n: H::V) -> H::V;
}

/// v68 to v75: qf32 inside, a unit in the last place of error, products below 2^-128 lost.
#[derive(Clone, Copy, Debug)]
pub struct Qfloat;

/// v79 and later: IEEE instructions, bits as everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Ieee;

impl Flavour for Qfloat {
    const NAME: &'static str = "qfloat";

    #[cfg_attr(target_arch = "hexagon", inline(always))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(never))]
    fn add<H: Hvx>(a: H::V, b: H::V) -> H::V {
        special_sum::<H>(a, b, H::vconv_sf_qf32(H::vadd_sf(a, b)))
    }

    #[cfg_attr(target_arch = "hexagon", inline(always))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(never))]
    fn sub<H: Hvx>(a: H::V, b: H::V) -> H::V {
        let value = H::vconv_sf_qf32(H::vsub_sf(a, b));
        special_sum::<H>(a, H::vxor(b, H::lvsplatw(SIGN)), value)
    }

    #[cfg_attr(target_arch = "hexagon", inline(always))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(never))]
    fn mul<H: Hvx>(a: H::V, b: H::V) -> H::V {
        special_product::<H>(a, b, H::vconv_sf_qf32(H::vmpy_qf32_sf(a, b)))
    }

    #[inline(always)]
    fn exact_add<H: Hvx>(a: H::V, b: H::V) -> H::V {
        special_sum::<H>(a, b, exact::add::<H>(a, b))
    }

    #[inline(always)]
    fn exact_mul<H: Hvx>(a: H::V, b: H::V) -> H::V {
        special_product::<H>(a, b, exact::mul::<H>(magnitude::<H>(a), magnitude::<H>(b)))
    }

    #[cfg_attr(target_arch = "hexagon", inline(always))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(never))]
    fn exp_rest<H: Hvx>(x: H::V, n: H::V) -> H::V {
        exact::exp_rest::<H, Self>(x, n)
    }
}

impl Flavour for Ieee {
    const NAME: &'static str = "ieee";

    #[inline(always)]
    fn add<H: Hvx>(a: H::V, b: H::V) -> H::V {
        H::vadd_sf_sf(a, b)
    }

    #[inline(always)]
    fn sub<H: Hvx>(a: H::V, b: H::V) -> H::V {
        H::vsub_sf_sf(a, b)
    }

    #[inline(always)]
    fn mul<H: Hvx>(a: H::V, b: H::V) -> H::V {
        H::vmpy_sf_sf(a, b)
    }

    #[inline(always)]
    fn exact_add<H: Hvx>(a: H::V, b: H::V) -> H::V {
        H::vadd_sf_sf(a, b)
    }

    #[inline(always)]
    fn exact_mul<H: Hvx>(a: H::V, b: H::V) -> H::V {
        H::vmpy_sf_sf(a, b)
    }

    #[inline(always)]
    fn exp_rest<H: Hvx>(x: H::V, n: H::V) -> H::V {
        let n = H::vconv_sf_w(n);
        let product = |constant: f32| H::vmpy_sf_sf(n, H::lvsplatw(constant.to_bits() as i32));
        let rest = H::vsub_sf_sf(x, product(LN2_HIGH));
        H::vsub_sf_sf(rest, product(LN2_LOW))
    }
}

/// a + b given what qfloat made of it: overflow becomes infinity, infinities and NaN are put in.
#[inline(always)]
fn special_sum<H: Hvx>(a: H::V, b: H::V, value: H::V) -> H::V {
    let value = H::vor(H::vminw(magnitude::<H>(value), H::lvsplatw(INFINITY)), sign::<H>(value));
    let (abs_a, abs_b) = (magnitude::<H>(a), magnitude::<H>(b));
    // The larger magnitude is the one that counts; equal ones of opposite signs are infinities that make NaN.
    let larger = H::vmux(H::vgtw(abs_a, abs_b), a, b);
    let opposite = H::veqw(H::vxor(a, b), H::lvsplatw(SIGN));
    let special = H::vmux(opposite, H::lvsplatw(NAN), larger);
    let is_special = H::vgtw(H::vmaxw(abs_a, abs_b), H::lvsplatw(INFINITY - 1));
    H::vmux(is_special, special, value)
}

/// a * b given what qfloat made of it, but for the sign.
#[inline(always)]
fn special_product<H: Hvx>(a: H::V, b: H::V, value: H::V) -> H::V {
    let value = H::vminw(magnitude::<H>(value), H::lvsplatw(INFINITY));
    let (abs_a, abs_b) = (magnitude::<H>(a), magnitude::<H>(b));
    let (large, small) = (H::vmaxw(abs_a, abs_b), H::vminw(abs_a, abs_b));
    // Infinity or NaN wins, but against 0 it is NaN.
    let special = H::vmux(H::veqw(small, H::lvsplatw(0)), H::lvsplatw(NAN), large);
    let value = H::vmux(H::vgtw(large, H::lvsplatw(INFINITY - 1)), special, value);
    H::vor(value, sign::<H>(H::vxor(a, b)))
}
