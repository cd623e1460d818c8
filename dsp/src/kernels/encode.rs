//! 32 floats to a quantised block in ggml's row layout, as ggml makes it: what CPY and SET_ROWS store.

use hexloom_abi::DType;

use crate::hvx::LANES;
use crate::hvx::plain::{f32_to_f16, round_even};
use crate::tensor::Span;

/// Stores one block of 32 elements. Non-finite values give a block that means nothing.
#[inline(never)]
pub(super) fn block(dtype: DType, x: &[f32; LANES], to: Span<'_, u8>) {
    match dtype {
        DType::Q4_0 => signed(x, to, 8.0),
        DType::Q5_0 => signed(x, to, 16.0),
        DType::Q4_1 => unsigned(x, to, 15.0),
        DType::Q5_1 => unsigned(x, to, 31.0),
        _ => bytes(x, to),
    }
}

/// Codes around a middle: the value of largest magnitude becomes code 0.
#[inline(never)]
fn signed(x: &[f32; LANES], to: Span<'_, u8>, middle: f32) {
    let largest = x
        .iter()
        .fold(0.0f32, |best, &x| if magnitude(x) > magnitude(best) { x } else { best });
    let scale = largest / -middle;
    let inverse = if scale != 0.0 { 1.0 / scale } else { 0.0 };
    put_half(to, 0, scale);
    let code = |idx: usize| (x[idx] * inverse + middle + 0.5) as i32;
    codes(to, 2, middle > 8.0, |idx| {
        code(idx).clamp(0, 2 * middle as i32 - 1) as u8
    });
}

/// Codes from a minimum.
#[inline(never)]
fn unsigned(x: &[f32; LANES], to: Span<'_, u8>, largest: f32) {
    let low = x.iter().fold(f32::MAX, |low, &x| if x < low { x } else { low });
    let high = x.iter().fold(-f32::MAX, |high, &x| if x > high { x } else { high });
    let scale = (high - low) / largest;
    let inverse = if scale != 0.0 { 1.0 / scale } else { 0.0 };
    put_half(to, 0, scale);
    put_half(to, 2, low);
    let code = |idx: usize| ((x[idx] - low) * inverse + 0.5) as i32;
    codes(to, 4, largest > 15.0, |idx| code(idx).clamp(0, largest as i32) as u8);
}

/// Signed bytes: scale amax / 127.
#[inline(always)]
fn bytes(x: &[f32; LANES], to: Span<'_, u8>) {
    let largest = x
        .iter()
        .fold(0.0f32, |best, &x| if magnitude(x) > best { magnitude(x) } else { best });
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    put_half(to, 0, largest / 127.0);
    for (idx, &x) in x.iter().enumerate() {
        to.set(
            2 + idx,
            (round_even((x * inverse).clamp(-127.0, 127.0)) as i8).cast_unsigned(),
        );
    }
}

/// Nibbles from byte `start`, behind fifth bits where codes have five.
#[inline(always)]
fn codes(to: Span<'_, u8>, start: usize, five: bool, code: impl Fn(usize) -> u8) {
    let start = if five {
        for byte in 0..4 {
            let bits = (0..8).fold(0, |bits, bit| bits | (code(8 * byte + bit) >> 4) << bit);
            to.set(start + byte, bits);
        }
        start + 4
    } else {
        start
    };
    for idx in 0..16 {
        to.set(start + idx, code(idx) & 15 | (code(idx + 16) & 15) << 4);
    }
}

#[inline(always)]
fn put_half(to: Span<'_, u8>, at: usize, x: f32) {
    let [low, high] = f32_to_f16(x).to_le_bytes();
    to.set(at, low);
    to.set(at + 1, high);
}

#[inline(always)]
fn magnitude(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & !(1 << 31))
}
