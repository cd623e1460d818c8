//! qf32, the vector unit's own float format up to v75, bit by bit for one lane.
//!
//! # Format
//! Bits 31 to 8 hold a signed 24-bit significand field f, bits 7 to 0 an exponent e with bias 127. The value is
//! `(2f + 1) * 2^-23 * 2^(e - 127)`: the lowest bit of the significand is always 1 and is not stored. There is no zero,
//! no infinity, no NaN and no rule that a significand be normalised. Negation is the complement of the field.
//!
//! # Where this comes from
//! Facts, not code, of these public sources:
//! - Qualcomm's own simulator functions, as published in its QEMU tree (`quic/qemu`, `target/hexagon/mmvec/mmvec_qfloat.c`):
//!   format, exponents of sums and products, rounding thresholds, saturation, zero results;
//! - a later rewrite in integers of the same for QEMU ("legacy" qfloat, before v79), which agrees but for two points below;
//! - the HVX reference manual 80-N2040-61: v79 has another internal format with bits beyond the register's 128 bytes,
//!   all loads and stores are IEEE, results must be converted before they are stored;
//! - the vendor's remark in LLVM (`HexagonXQFloatGenerator`) that this mode has one bit less than IEEE.
//!
//! # Rounding
//! With the exact significand in units of 2^-23 at the result's exponent, let r be its remainder modulo 4: up to 1.5 it
//! becomes 1, up to 2.5 it becomes 2 (kept as 1 at the next exponent), above it becomes 3. A multiple of 4 is therefore
//! never met: 1 + 0 is 1 + 2^-23. A product of 2 or more moves to the next exponent first, where up to 2 becomes 1 and
//! above becomes 3. The error is at most 2^-23 of the result's power of two, 2^-22 when a product moved.
//!
//! # Assumptions
//! - `exact zero`: a result that is exactly 0 gets exponent 0, value 2^-150, which converts to 0. All published versions of
//!   the simulator do so; if hardware kept the exponent instead, x - x would be a unit in the last place of x.
//! - `overflow of conversion`: a qf32 of 2^128 or more becomes an sf with exponent field 255 and the mantissa it has, which
//!   reads as NaN more often than not (the simulator); the rewrite makes it infinity. Harsher for us is the first.
//! - `sf and hf operands with exponent field all ones` are numbers of 2^128 or 2^16 and more (the simulator).
//! - `conversion rounds to nearest even` where the result is subnormal; elsewhere it is exact.
//! - `all of v68 to v75 do the same`.

/// An exact or not yet rounded number: `significand * 2^(exponent - 23)`, not normalised.
#[derive(Clone, Copy)]
struct Number {
    significand: i64,
    exponent: i32,
}

const EXPONENT_MIN: i32 = -127;
const EXPONENT_MAX: i32 = 128;
/// 2.0 in units of 2^-23.
const TWO: i64 = 1 << 24;
/// Fraction bits that a sum keeps below 2^-23, the lowest of which stands for all that is lower.
const SUM_BITS: u32 = 32;

/// sf + sf. Operands of one sign are added as magnitudes.
pub(super) fn add_sf(a: u32, b: u32) -> u32 {
    let (x, y) = (from_sf(a & 0x7fff_ffff), from_sf(b & 0x7fff_ffff));
    match (a >> 31 == 1, b >> 31 == 1) {
        (false, false) => sum(x, y),
        (true, true) => negate(sum(x, y)),
        (false, true) => sum(x, minus(y)),
        (true, false) => sum(minus(x), y),
    }
}

/// sf - sf.
pub(super) fn sub_sf(a: u32, b: u32) -> u32 {
    add_sf(a, b ^ 0x8000_0000)
}

/// qf32 + qf32.
pub(super) fn add(a: u32, b: u32) -> u32 {
    sum(from_qf32(a), from_qf32(b))
}

/// qf32 - qf32.
pub(super) fn sub(a: u32, b: u32) -> u32 {
    sum(from_qf32(a), minus(from_qf32(b)))
}

/// qf32 + sf.
pub(super) fn add_mix(a: u32, b: u32) -> u32 {
    sum(from_qf32(a), from_sf(b))
}

/// qf32 - sf.
pub(super) fn sub_mix(a: u32, b: u32) -> u32 {
    sum(from_qf32(a), minus(from_sf(b)))
}

/// sf * sf: the product of magnitudes, then the sign.
pub(super) fn mul_sf(a: u32, b: u32) -> u32 {
    let value = product(from_sf(a & 0x7fff_ffff), from_sf(b & 0x7fff_ffff));
    if (a ^ b) >> 31 == 1 { negate(value) } else { value }
}

/// qf32 * qf32.
pub(super) fn mul(a: u32, b: u32) -> u32 {
    product(from_qf32(a), from_qf32(b))
}

/// hf * hf.
pub(super) fn mul_hf(a: u16, b: u16) -> u32 {
    let value = product(from_hf(a & 0x7fff), from_hf(b & 0x7fff));
    if (a ^ b) >> 15 == 1 { negate(value) } else { value }
}

/// qf32 as sf.
pub(super) fn to_sf(a: u32) -> u32 {
    let Number { significand, exponent } = from_qf32(a);
    let sign = if significand < 0 { 0x8000_0000 } else { 0 };
    let magnitude = significand.unsigned_abs() as u32;
    let lead = 31 - magnitude.leading_zeros() as i32;
    let power = exponent - 23 + lead;
    if power >= -126 {
        // At most 24 bits, so that nothing is lost; field 255 for 2^128 and above.
        let mantissa = magnitude << (23 - lead) & 0x007f_ffff;
        return sign | ((power + 127) as u32) << 23 | mantissa;
    }
    // In units of 2^-149: rounded, and a carry into the exponent field is right.
    let up = exponent + 126;
    if up >= 0 {
        return sign | magnitude << up;
    }
    let down = up.unsigned_abs();
    if down > 24 {
        return sign;
    }
    let (kept, lost) = (magnitude >> down, magnitude & ((1 << down) - 1));
    let half = 1 << (down - 1);
    let more = lost > half || (lost == half && kept & 1 == 1);
    sign | (kept + u32::from(more))
}

fn from_qf32(bits: u32) -> Number {
    Number {
        significand: i64::from(((bits as i32) >> 7) | 1),
        exponent: (bits & 0xff) as i32 - 127,
    }
}

fn from_sf(bits: u32) -> Number {
    let field = (bits >> 23 & 0xff) as i32;
    let hidden = if field > 0 { 1 << 23 } else { 0 };
    let magnitude = i64::from(bits & 0x007f_ffff | hidden);
    Number {
        significand: if bits >> 31 == 1 { -magnitude } else { magnitude },
        exponent: (field - 127).max(-126),
    }
}

/// A half without sign.
fn from_hf(bits: u16) -> Number {
    let field = i32::from(bits >> 10 & 0x1f);
    let hidden = if field > 0 { 1 << 10 } else { 0 };
    Number {
        significand: i64::from(bits & 0x3ff | hidden) << 13,
        exponent: (field - 15).max(-14),
    }
}

fn minus(a: Number) -> Number {
    Number {
        significand: -a.significand,
        ..a
    }
}

fn negate(bits: u32) -> u32 {
    bits ^ 0xffff_ff00
}

/// The exponent of the leading bit: where a normalised number would have it. 24 below the own exponent for 0.
fn leading(a: Number) -> i32 {
    match a.significand.unsigned_abs() {
        0 => a.exponent - 24,
        magnitude => a.exponent - 23 + 63 - magnitude.leading_zeros() as i32,
    }
}

fn sum(a: Number, b: Number) -> u32 {
    // The larger exponent, lowered as far as its significand allows, but not below the other.
    let exponent = if a.exponent > b.exponent {
        leading(a).max(b.exponent)
    } else {
        leading(b).max(a.exponent)
    };
    let aligned = |x: Number| {
        let up = SUM_BITS as i32 + x.exponent - exponent;
        if up >= 0 {
            return x.significand << up;
        }
        let down = up.unsigned_abs().min(62);
        let lost = x.significand & ((1 << down) - 1) != 0;
        x.significand >> down | i64::from(lost)
    };
    round(aligned(a) + aligned(b), SUM_BITS, exponent)
}

fn product(a: Number, b: Number) -> u32 {
    round(a.significand * b.significand, 23, a.exponent + b.exponent)
}

/// `significand * 2^-bits` in units of 2^-23 at `exponent`, rounded and saturated.
fn round(significand: i64, bits: u32, exponent: i32) -> u32 {
    let negative = significand < 0;
    let field = |exponent: i32| (exponent + 127) as u32;
    if significand == 0 {
        return 0;
    }
    // -2.0 itself fits.
    let large = significand >= TWO << bits || significand < -TWO << bits;
    if exponent > EXPONENT_MAX || (large && exponent == EXPONENT_MAX) {
        let limit = if negative { 0x8000_0000 } else { 0x7fff_ff00 };
        return limit | field(EXPONENT_MAX);
    }
    if exponent < EXPONENT_MIN - 1 {
        let least = if negative { 0xffff_ff00 } else { 0 };
        return least | field(EXPONENT_MIN);
    }
    let next = large || exponent == EXPONENT_MIN - 1;
    let bits = if next { bits + 1 } else { bits };
    let group = significand >> (bits + 2);
    let rest = significand & ((4 << bits) - 1);
    let half = 1i64 << (bits - 1);
    let (units, exponent) = if next {
        (group * 4 + if rest <= 4 * half { 1 } else { 3 }, exponent + 1)
    } else if exponent == EXPONENT_MAX {
        (group * 4 + if rest <= 4 * half { 1 } else { 3 }, exponent)
    } else if rest <= 3 * half {
        (group * 4 + 1, exponent)
    } else if rest <= 5 * half {
        (group * 2 + 1, exponent + 1)
    } else {
        (group * 4 + 3, exponent)
    };
    ((units >> 1) as u32) << 8 | field(exponent)
}
