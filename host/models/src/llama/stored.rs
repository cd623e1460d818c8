//! In which form a weight is kept. Types without tiles whose values fit those of a type with tiles are kept as that one,
//! which the DSP multiplies many times faster than rows:
//!
//! - `Q5_0` as `Q8_0`: the same scales, codes in more bits. Exact.
//! - `Q4_K` as `Q4_1`: the same codes; scale and minimum of 32 elements, products in the file, are rounded to f16, which
//!   moves a weight by less than a two-thousandth of its block's largest. Products beyond f16 become its largest number.
//!
//! All other types stay what they are.

use std::borrow::Cow;

use half::f16;
use hexloom::DType;

use crate::gguf::TensorType;

const Q5_0_BYTES: usize = 22;
const Q4_K_BYTES: usize = 144;

/// The type that a weight of type `ty` is kept as.
pub(super) fn stored(ty: TensorType) -> DType {
    match ty {
        TensorType::Q5_0 => DType::Q8_0,
        TensorType::Q4K => DType::Q4_1,
        _ => ty.dtype(),
    }
}

/// Whole blocks of type `ty` in the form that they are kept in.
pub(super) fn convert(ty: TensorType, blocks: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match ty {
        TensorType::Q5_0 => blocks.as_chunks().0.iter().flat_map(q8_0_of_q5_0).collect(),
        TensorType::Q4K => blocks.as_chunks().0.iter().flat_map(q4_1_of_q4_k).collect(),
        _ => blocks,
    }
}

/// A scale, the fifth bits of 32 codes, their lower bits: the first half in low nibbles, the second in high ones.
fn q8_0_of_q5_0(block: &[u8; Q5_0_BYTES]) -> [u8; 34] {
    let [s0, s1, h0, h1, h2, h3, low @ ..] = *block;
    let high = u32::from_le_bytes([h0, h1, h2, h3]);
    let mut q8_0 = [0; 34];
    (q8_0[0], q8_0[1]) = (s0, s1);
    for (idx, code) in q8_0[2..].iter_mut().enumerate() {
        let nibble = low[idx % 16] >> (idx / 16 * 4) & 15;
        let fifth = (high >> idx & 1) as u8;
        *code = (nibble | fifth << 4).wrapping_sub(16);
    }
    q8_0
}

/// Scales of the scales and of the minima, 8 of each in 6 bits, 4 times 64 codes: 32 in low nibbles, 32 in high ones.
fn q4_1_of_q4_k(block: &[u8; Q4_K_BYTES]) -> [u8; 160] {
    let number = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let (scale, minimum) = (number(0), number(2));
    let (sixes, codes) = (&block[4..16], &block[16..]);
    let mut q4_1 = [0; 160];
    for (idx, to) in q4_1.as_chunks_mut::<20>().0.iter_mut().enumerate() {
        let (scale_code, minimum_code) = match idx {
            0..4 => (sixes[idx] & 63, sixes[idx + 4] & 63),
            _ => (
                sixes[idx + 4] & 15 | sixes[idx - 4] >> 6 << 4,
                sixes[idx + 4] >> 4 | sixes[idx] >> 6 << 4,
            ),
        };
        to[..2].copy_from_slice(&rounded(scale * f32::from(scale_code)));
        to[2..4].copy_from_slice(&rounded(-minimum * f32::from(minimum_code)));
        let shift = idx % 2 * 4;
        let code = |at: usize| codes[idx / 2 * 32 + at] >> shift & 15;
        for (at, pair) in to[4..].iter_mut().enumerate() {
            *pair = code(at) | code(at + 16) << 4;
        }
    }
    q4_1
}

fn rounded(value: f32) -> [u8; 2] {
    let most = f16::MAX.to_f32();
    f16::from_f32(value.clamp(-most, most)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f16_at(bytes: &[u8], at: usize) -> f32 {
        f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
    }

    #[test]
    fn five_bits_become_eight() {
        let mut block = [0; Q5_0_BYTES];
        block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        // Code k of 32 is k.
        block[2..6].copy_from_slice(&0xffff_0000_u32.to_le_bytes());
        for (idx, pair) in block[6..].iter_mut().enumerate() {
            *pair = idx as u8 | (idx as u8) << 4;
        }
        let q8_0 = convert(TensorType::Q5_0, Cow::Borrowed(&block));
        assert_eq!(f16_at(&q8_0, 0), 0.5);
        let codes: Vec<i8> = q8_0[2..].iter().map(|&code| code as i8).collect();
        assert_eq!(codes, (-16..16).collect::<Vec<i8>>());
    }

    #[test]
    fn products_of_scales_become_scales() {
        let mut block = [0; Q4_K_BYTES];
        block[..2].copy_from_slice(&f16::from_f32(0.25).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(2.0).to_le_bytes());
        // Scales 1 to 8 times 7, minima 63 down to 56.
        let (scales, minima): (Vec<u8>, Vec<u8>) = (0..8).map(|idx| (7 * (idx + 1), 63 - idx)).unzip();
        for idx in 0..4 {
            block[4 + idx] = scales[idx] | scales[idx + 4] >> 4 << 6;
            block[8 + idx] = minima[idx] | minima[idx + 4] >> 4 << 6;
            block[12 + idx] = scales[idx + 4] & 15 | (minima[idx + 4] & 15) << 4;
        }
        // Code k of 32 is k modulo 16 in even parts, 15 minus that in odd ones.
        for (idx, pair) in block[16..].iter_mut().enumerate() {
            let code = idx as u8 % 16;
            *pair = code | (15 - code) << 4;
        }
        let q4_1 = convert(TensorType::Q4K, Cow::Borrowed(&block));
        assert_eq!(q4_1.len(), 8 * 20);
        for (idx, part) in q4_1.chunks(20).enumerate() {
            assert_eq!(f16_at(part, 0), 0.25 * f32::from(scales[idx]), "scale {idx}");
            assert_eq!(f16_at(part, 2), -2.0 * f32::from(minima[idx]), "minimum {idx}");
            for (at, pair) in part[4..].iter().enumerate() {
                let code = if idx % 2 == 0 { at as u8 } else { 15 - at as u8 };
                assert_eq!(*pair, code | code << 4, "part {idx}");
            }
        }
    }

    #[test]
    fn scales_beyond_f16_are_its_largest() {
        let mut block = [0; Q4_K_BYTES];
        block[..2].copy_from_slice(&f16::MAX.to_le_bytes());
        block[4] = 63;
        let q4_1 = convert(TensorType::Q4K, Cow::Borrowed(&block));
        assert_eq!(f16_at(&q4_1, 0), f16::MAX.to_f32());
    }
}
