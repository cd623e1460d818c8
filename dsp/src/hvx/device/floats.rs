//! The two float flavours: how a device adds, subtracts and multiplies.
//!
//! Operands and results are IEEE bits, so nothing in qfloat format leaves a function. Infinities and NaN come out as IEEE
//! says in both flavours; [`Qfloat`] gets there by integer instructions, because qfloat knows neither.

use super::Hvx;
use super::bits::{INFINITY, NAN, SIGN, magnitude, sign};

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
}

/// v68 to v75: qf32 inside, a unit in the last place of error, products below 2^-128 lost.
#[derive(Clone, Copy, Debug)]
pub struct Qfloat;

/// v79 and later: IEEE instructions, bits as everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Ieee;

impl Flavour for Qfloat {
    const NAME: &'static str = "qfloat";

    #[inline(always)]
    fn add<H: Hvx>(a: H::V, b: H::V) -> H::V {
        special_sum::<H>(a, b, H::vconv_sf_qf32(H::vadd_sf(a, b)))
    }

    #[inline(always)]
    fn sub<H: Hvx>(a: H::V, b: H::V) -> H::V {
        let value = H::vconv_sf_qf32(H::vsub_sf(a, b));
        special_sum::<H>(a, H::vxor(b, H::lvsplatw(SIGN)), value)
    }

    #[inline(always)]
    fn mul<H: Hvx>(a: H::V, b: H::V) -> H::V {
        let value = magnitude::<H>(H::vconv_sf_qf32(H::vmpy_qf32_sf(a, b)));
        let value = H::vminw(value, H::lvsplatw(INFINITY));
        let (abs_a, abs_b) = (magnitude::<H>(a), magnitude::<H>(b));
        let (large, small) = (H::vmaxw(abs_a, abs_b), H::vminw(abs_a, abs_b));
        // Infinity or NaN wins, but against 0 it is NaN.
        let special = H::vmux(H::veqw(small, H::lvsplatw(0)), H::lvsplatw(NAN), large);
        let value = H::vmux(H::vgtw(large, H::lvsplatw(INFINITY - 1)), special, value);
        H::vor(value, sign::<H>(H::vxor(a, b)))
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
