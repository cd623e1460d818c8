//! The vector layer in plain Rust: runs everywhere, and says what every other member must equal bit for bit.

use super::{Isa, Kernel, LANES, Part};

/// Plain lanes.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

#[inline(always)]
fn map<A: Copy, B: Copy, R>(a: [A; LANES], b: [B; LANES], f: impl Fn(A, B) -> R) -> [R; LANES] {
    core::array::from_fn(|idx| f(a[idx], b[idx]))
}

/// All bits set where `holds`.
#[inline(always)]
fn mask(holds: bool) -> i32 {
    -i32::from(holds)
}

#[inline(always)]
fn fold(mut x: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for idx in 0..half {
            x[idx] = f(x[idx], x[idx + half]);
        }
        half /= 2;
    }
    x[0]
}

impl Isa for Plain {
    const NAME: &'static str = "plain";
    type F32 = [f32; LANES];
    type I32 = [i32; LANES];

    #[inline(never)]
    fn invoke<K: Kernel>(kernel: &K, part: Part) {
        kernel.run::<Self>(part);
    }

    #[inline(always)]
    fn splat(x: f32) -> Self::F32 {
        [x; LANES]
    }
    #[inline(always)]
    fn splat_i(x: i32) -> Self::I32 {
        [x; LANES]
    }
    #[inline(always)]
    fn from_array(lanes: [f32; LANES]) -> Self::F32 {
        lanes
    }
    #[inline(always)]
    fn to_array(x: Self::F32) -> [f32; LANES] {
        x
    }

    #[inline(always)]
    unsafe fn load_f32(ptr: *const f32) -> Self::F32 {
        // SAFETY: the caller promises 128 readable bytes; the read asks for no alignment.
        unsafe { ptr.cast::<[f32; LANES]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_f16(ptr: *const u16) -> Self::F32 {
        // SAFETY: the caller promises 64 readable bytes; the read asks for no alignment.
        unsafe { ptr.cast::<[u16; LANES]>().read_unaligned() }.map(f16_to_f32)
    }
    #[inline(always)]
    unsafe fn load_i32(ptr: *const i32) -> Self::I32 {
        // SAFETY: the caller promises 128 readable bytes; the read asks for no alignment.
        unsafe { ptr.cast::<[i32; LANES]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_i8(ptr: *const i8) -> Self::I32 {
        // SAFETY: the caller promises 32 readable bytes.
        unsafe { ptr.cast::<[i8; LANES]>().read_unaligned() }.map(i32::from)
    }
    #[inline(always)]
    unsafe fn store_f32(ptr: *mut f32, x: Self::F32) {
        // SAFETY: the caller promises 128 writable bytes; the write asks for no alignment.
        unsafe { ptr.cast::<[f32; LANES]>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn store_f16(ptr: *mut u16, x: Self::F32) {
        // SAFETY: the caller promises 64 writable bytes; the write asks for no alignment.
        unsafe { ptr.cast::<[u16; LANES]>().write_unaligned(x.map(f32_to_f16)) }
    }
    #[inline(always)]
    unsafe fn store_i8(ptr: *mut i8, x: Self::I32) {
        // SAFETY: the caller promises 32 writable bytes.
        unsafe { ptr.cast::<[i8; LANES]>().write_unaligned(x.map(|lane| lane as i8)) }
    }

    #[inline(always)]
    fn add(a: Self::F32, b: Self::F32) -> Self::F32 {
        map(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(a: Self::F32, b: Self::F32) -> Self::F32 {
        map(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(a: Self::F32, b: Self::F32) -> Self::F32 {
        map(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(a: Self::F32, b: Self::F32) -> Self::F32 {
        map(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn sqrt(x: Self::F32) -> Self::F32 {
        x.map(sqrt)
    }
    #[inline(always)]
    fn max(a: Self::F32, b: Self::F32) -> Self::F32 {
        map(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(a: Self::F32, b: Self::F32) -> Self::F32 {
        map(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn gt(a: Self::F32, b: Self::F32) -> Self::I32 {
        map(a, b, |a, b| mask(a > b))
    }
    #[inline(always)]
    fn eq(a: Self::F32, b: Self::F32) -> Self::I32 {
        map(a, b, |a, b| mask(a == b))
    }
    #[inline(always)]
    fn select(mask: Self::I32, a: Self::F32, b: Self::F32) -> Self::F32 {
        core::array::from_fn(|idx| if mask[idx] != 0 { a[idx] } else { b[idx] })
    }
    #[inline(always)]
    fn bits(x: Self::F32) -> Self::I32 {
        x.map(|lane| lane.to_bits() as i32)
    }
    #[inline(always)]
    fn from_bits(x: Self::I32) -> Self::F32 {
        x.map(|lane| f32::from_bits(lane as u32))
    }
    #[inline(always)]
    fn to_int(x: Self::F32) -> Self::I32 {
        x.map(round_even)
    }
    #[inline(always)]
    fn to_float(x: Self::I32) -> Self::F32 {
        x.map(|lane| lane as f32)
    }

    #[inline(always)]
    fn add_i(a: Self::I32, b: Self::I32) -> Self::I32 {
        map(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    fn sub_i(a: Self::I32, b: Self::I32) -> Self::I32 {
        map(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    fn and(a: Self::I32, b: Self::I32) -> Self::I32 {
        map(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn or(a: Self::I32, b: Self::I32) -> Self::I32 {
        map(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn xor(a: Self::I32, b: Self::I32) -> Self::I32 {
        map(a, b, |a, b| a ^ b)
    }
    #[inline(always)]
    fn shl<const N: i32>(a: Self::I32) -> Self::I32 {
        a.map(|lane| lane << N)
    }
    #[inline(always)]
    fn sar<const N: i32>(a: Self::I32) -> Self::I32 {
        a.map(|lane| lane >> N)
    }
    #[inline(always)]
    fn gt_i(a: Self::I32, b: Self::I32) -> Self::I32 {
        map(a, b, |a, b| mask(a > b))
    }

    #[inline(always)]
    fn sum(x: Self::F32) -> f32 {
        fold(x, |a, b| a + b)
    }
    #[inline(always)]
    fn max_lane(x: Self::F32) -> f32 {
        fold(x, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn dot_tile_u4<const N: usize>(codes: *const u8, act: [*const i8; N], start: [i32; N]) -> [Self::I32; N] {
        let mut sums = start.map(Self::splat_i);
        for (vector, lane, byte) in tile_bytes(4) {
            // SAFETY: the index is below 512, which the caller promises to be readable.
            let code = unsafe { codes.wrapping_add(vector * 128 + lane * 4 + byte).read() };
            for (act, sums) in act.iter().zip(&mut sums) {
                // SAFETY: 8 * 3 + 3 + 4 = 31 is the largest index of 32 activations.
                let low = unsafe { act.wrapping_add(8 * vector + byte).read() };
                // SAFETY: as above.
                let high = unsafe { act.wrapping_add(8 * vector + 4 + byte).read() };
                sums[lane] += i32::from(code & 15) * i32::from(low) + i32::from(code >> 4) * i32::from(high);
            }
        }
        sums
    }
    #[inline(always)]
    unsafe fn dot_tile_u8<const N: usize>(codes: *const u8, act: [*const i8; N], start: [i32; N]) -> [Self::I32; N] {
        let mut sums = start.map(Self::splat_i);
        for (vector, lane, byte) in tile_bytes(8) {
            // SAFETY: the index is below 1024, which the caller promises to be readable.
            let code = unsafe { codes.wrapping_add(vector * 128 + lane * 4 + byte).read() };
            for (act, sums) in act.iter().zip(&mut sums) {
                // SAFETY: 4 * 7 + 3 = 31 is the largest index of 32 activations.
                let value = unsafe { act.wrapping_add(4 * vector + byte).read() };
                sums[lane] += i32::from(code) * i32::from(value);
            }
        }
        sums
    }
}

/// Every (vector, lane, byte in lane) of a tile of `vectors` vectors.
#[inline(always)]
fn tile_bytes(vectors: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..vectors * 128).map(|idx| (idx / 128, idx % 128 / 4, idx % 4))
}

/// Nearest integer, ties to even, for |x| < 2^31, without a library call.
#[inline(always)]
pub fn round_even(x: f32) -> i32 {
    const MAGIC: f32 = 8_388_608.0; // 2^23: adding it leaves no fraction bits
    if x.abs() >= MAGIC {
        return x as i32;
    }
    let magic = MAGIC.copysign(x);
    ((x + magic) - magic) as i32
}

/// Square root, correctly rounded, without a library call.
///
/// The root of an f32 lies at least 2^-50 (relative) from any midpoint between two f32, so an f64 root that is good to
/// 2^-51 rounds to the right one.
#[inline]
pub fn sqrt(x: f32) -> f32 {
    if x == 0.0 {
        return x;
    }
    crate::real::sqrt(f64::from(x)) as f32
}

/// A bf16's value.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bf16, ties to even; a NaN stays one.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 64;
    }
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// f16 bits to f32, exactly.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10 & 0x1f);
    let mantissa = u32::from(bits & 0x3ff);
    let magnitude = match exponent {
        0 => (mantissa as f32 * f32::from_bits(0x3380_0000)).to_bits(), // times 2^-24
        31 => 0x7f80_0000 | mantissa << 13 | if mantissa != 0 { 0x40_0000 } else { 0 },
        _ => (exponent + 112) << 23 | mantissa << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// f32 to f16 bits, nearest even, overflow to infinity, NaN kept quiet.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00 | (magnitude >> 13 & 0x3ff) as u16;
    }
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00; // 65520 and more round to infinity
    }
    if magnitude < 0x3880_0000 {
        // Subnormal: a float addition does the rounding at 2^-24.
        let shifted = f32::from_bits(magnitude) + 0.5;
        return sign | (shifted.to_bits() - 0x3f00_0000) as u16;
    }
    let rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    sign | ((rounded - 0x3800_0000) >> 13) as u16
}
