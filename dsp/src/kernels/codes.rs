//! Quantised blocks in ggml's row layout as f32, 32 elements at a time: one function for every type.
//!
//! A block of 32 elements is one piece; a super-block of 256 is eight. Layouts are ggml's; where a type keeps its scales
//! packed in six bits, they are unpacked for each piece.

use hexloom_abi::DType;

use crate::hvx::LANES;
use crate::hvx::plain::f16_to_f32;
use crate::tensor::Span;

/// Values of `IQ4_NL` and `IQ4_XS` codes.
const IQ4: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
];
/// Values of `MXFP4` codes, doubled.
const MXFP4: [f32; 8] = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0];

/// Piece `piece` of a block of quantised type `dtype`. Not inlined: a dozen formats would be in every kernel that reads rows.
#[inline(never)]
pub(super) fn piece(dtype: DType, block: Span<'_, u8>, piece: usize) -> [f32; LANES] {
    let bytes = Bytes(block);
    match dtype {
        DType::Q4_0 => nibbles(bytes, 2, |code| bytes.half(0) * (code - 8.0)),
        DType::Q4_1 => nibbles(bytes, 4, |code| bytes.half(0) * code + bytes.half(2)),
        DType::Q5_0 => five_bits(bytes, 2, |code| bytes.half(0) * (code - 16.0)),
        DType::Q5_1 => five_bits(bytes, 4, |code| bytes.half(0) * code + bytes.half(2)),
        DType::Q8_0 => core::array::from_fn(|idx| bytes.half(0) * f32::from(bytes.get(2 + idx).cast_signed())),
        DType::Iq4Nl => nibbles(bytes, 2, |code| bytes.half(0) * IQ4[code as usize]),
        DType::Mxfp4 => {
            let scale = half_power(bytes.get(0));
            nibbles(bytes, 1, |code| {
                let value = MXFP4[code as usize % 8] * scale;
                if code < 8.0 { value } else { -value }
            })
        }
        DType::Q2K => q2_k(bytes, piece),
        DType::Q3K => q3_k(bytes, piece),
        DType::Q4K => q4_k(bytes, piece, |idx| nibble(bytes, 16, piece, idx)),
        DType::Q5K => q4_k(bytes, piece, |idx| {
            let high = bytes.get(16 + idx) >> piece & 1;
            nibble(bytes, 48, piece, idx) | high << 4
        }),
        DType::Q6K => q6_k(bytes, piece),
        DType::Iq4Xs => iq4_xs(bytes, piece),
        // Not quantised: a caller's mistake that the support rules exclude.
        DType::F32 | DType::F16 | DType::Bf16 | DType::I8 | DType::I32 | DType::I64 => [0.0; LANES],
    }
}

#[derive(Clone, Copy)]
struct Bytes<'a>(Span<'a, u8>);

impl Bytes<'_> {
    #[inline(always)]
    fn get(&self, at: usize) -> u8 {
        self.0.get(at)
    }

    #[inline(always)]
    fn half(&self, at: usize) -> f32 {
        f16_to_f32(u16::from_le_bytes([self.get(at), self.get(at + 1)]))
    }
}

/// 32 four-bit codes from byte `start`: elements 0 to 15 in low, 16 to 31 in high nibbles.
#[inline(always)]
fn nibbles(bytes: Bytes<'_>, start: usize, value: impl Fn(f32) -> f32) -> [f32; LANES] {
    core::array::from_fn(|idx| {
        let byte = bytes.get(start + idx % 16);
        value(f32::from(if idx < 16 { byte & 15 } else { byte >> 4 }))
    })
}

/// The same behind 32 fifth bits.
#[inline(always)]
fn five_bits(bytes: Bytes<'_>, start: usize, value: impl Fn(f32) -> f32) -> [f32; LANES] {
    core::array::from_fn(|idx| {
        let byte = bytes.get(start + 4 + idx % 16);
        let low = if idx < 16 { byte & 15 } else { byte >> 4 };
        let high = bytes.get(start + idx / 8) >> (idx % 8) & 1;
        value(f32::from(low | high << 4))
    })
}

/// 2^(exponent - 128), subnormals included.
#[inline(always)]
fn half_power(exponent: u8) -> f32 {
    let exponent = u32::from(exponent);
    f32::from_bits(match exponent {
        0 | 1 => 0x0020_0000 << exponent,
        _ => (exponent - 1) << 23,
    })
}

/// Two bits of element `idx` of a piece: four pieces share 32 bytes from `start`.
#[inline(always)]
fn two_bits(bytes: Bytes<'_>, start: usize, piece: usize, idx: usize) -> u8 {
    bytes.get(start + 32 * (piece / 4) + idx) >> (2 * (piece % 4)) & 3
}

/// Four bits of element `idx` of a piece: two pieces share 32 bytes from `start`.
#[inline(always)]
fn nibble(bytes: Bytes<'_>, start: usize, piece: usize, idx: usize) -> u8 {
    bytes.get(start + 32 * (piece / 2) + idx) >> (4 * (piece % 2)) & 15
}

/// 16 scales with minima in nibbles, codes, scale, scale of the minima.
#[inline(always)]
fn q2_k(bytes: Bytes<'_>, piece: usize) -> [f32; LANES] {
    let (scale, minimum) = (bytes.half(80), bytes.half(82));
    core::array::from_fn(|idx| {
        let packed = bytes.get(2 * piece + idx / 16);
        let code = f32::from(two_bits(bytes, 16, piece, idx));
        scale * f32::from(packed & 15) * code - minimum * f32::from(packed >> 4)
    })
}

/// Third bits, codes, 16 six-bit scales, scale.
#[inline(always)]
fn q3_k(bytes: Bytes<'_>, piece: usize) -> [f32; LANES] {
    let scale = bytes.half(108);
    core::array::from_fn(|idx| {
        let at = 2 * piece + idx / 16;
        let low = bytes.get(96 + at % 8) >> (4 * (at / 8)) & 15;
        let high = bytes.get(104 + at % 4) >> (2 * (at / 4)) & 3;
        let own = f32::from(low | high << 4) - 32.0;
        let third = f32::from(bytes.get(idx) >> piece & 1);
        let code = f32::from(two_bits(bytes, 32, piece, idx)) - 4.0 * (1.0 - third);
        scale * own * code
    })
}

/// Scale, scale of the minima, 8 six-bit scales and minima; codes as `code` reads them.
#[inline(always)]
fn q4_k(bytes: Bytes<'_>, piece: usize, code: impl Fn(usize) -> u8) -> [f32; LANES] {
    let at = |idx: usize| bytes.get(4 + idx);
    let (scale, minimum) = if piece < 4 {
        (at(piece) & 63, at(piece + 4) & 63)
    } else {
        let both = at(piece + 4);
        (both & 15 | at(piece - 4) >> 6 << 4, both >> 4 | at(piece) >> 6 << 4)
    };
    let scale = bytes.half(0) * f32::from(scale);
    let minimum = bytes.half(2) * f32::from(minimum);
    core::array::from_fn(|idx| scale * f32::from(code(idx)) - minimum)
}

/// Low nibbles, high bits, 16 signed scales, scale.
#[inline(always)]
fn q6_k(bytes: Bytes<'_>, piece: usize) -> [f32; LANES] {
    let (half, quarter) = (piece / 4, piece % 4);
    let scale = bytes.half(208);
    core::array::from_fn(|idx| {
        let byte = bytes.get(64 * half + 32 * (quarter % 2) + idx);
        let low = byte >> (4 * (quarter / 2)) & 15;
        let high = two_bits(bytes, 128, piece, idx);
        let own = f32::from(bytes.get(192 + 2 * piece + idx / 16).cast_signed());
        scale * own * (f32::from(low | high << 4) - 32.0)
    })
}

/// Scale, high bits of 8 scales, their low nibbles, codes.
#[inline(always)]
fn iq4_xs(bytes: Bytes<'_>, piece: usize) -> [f32; LANES] {
    let high = u16::from_le_bytes([bytes.get(2), bytes.get(3)]) >> (2 * piece) & 3;
    let low = bytes.get(4 + piece / 2) >> (4 * (piece % 2)) & 15;
    let scale = bytes.half(0) * (f32::from(u16::from(low) | high << 4) - 32.0);
    nibbles(bytes, 8 + 16 * piece, |code| scale * IQ4[code as usize])
}
