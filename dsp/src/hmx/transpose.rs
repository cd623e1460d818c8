//! Transposition of 32-bit words between 16 vectors, for tiles whose columns come as rows.
//!
//! Stage by stage, each pair of vectors whose numbers differ in one bit exchanges the words whose places differ in that
//! bit: four stages for 16 by 16 words, which on Hexagon are one `vshuff` for each pair.

use crate::hvx::LANES;

/// 16 vectors of 32 words.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(super) struct Lines(pub(super) [[u32; LANES]; 16]);

/// Transposes the low and the high halves of the vectors, each 16 by 16 words.
#[inline(always)]
pub(super) fn transpose(lines: &mut Lines) {
    stage::<1>(lines);
    stage::<2>(lines);
    stage::<4>(lines);
    stage::<8>(lines);
}

#[inline(always)]
fn stage<const BIT: usize>(lines: &mut Lines) {
    for low in (0..16).filter(|line| line & BIT == 0) {
        let [a, b] = [low, low + BIT].map(|line| lines.0[line]);
        [lines.0[low], lines.0[low + BIT]] = exchange::<BIT>(a, b);
    }
}

/// Words of `a` with the bit set in their place change places with words of `b` without it.
#[cfg(not(target_arch = "hexagon"))]
#[inline(always)]
fn exchange<const BIT: usize>(mut a: [u32; LANES], mut b: [u32; LANES]) -> [[u32; LANES]; 2] {
    for place in (0..LANES).filter(|place| place & BIT == 0) {
        core::mem::swap(&mut a[place + BIT], &mut b[place]);
    }
    [a, b]
}

/// The same in one instruction, which is told the distance in bytes.
#[cfg(target_arch = "hexagon")]
#[inline(always)]
fn exchange<const BIT: usize>(a: [u32; LANES], b: [u32; LANES]) -> [[u32; LANES]; 2] {
    use core::arch::hexagon::v128::{HvxVector, HvxVectorPair, q6_w_vshuff_vvr};
    // SAFETY: 128 bytes either way, and any bytes are a value of both.
    let [a, b] = unsafe { core::mem::transmute::<[[u32; LANES]; 2], [HvxVector; 2]>([a, b]) };
    // SAFETY: touches no memory.
    let pair = unsafe { q6_w_vshuff_vvr(b, a, 4 * BIT as i32) };
    // SAFETY: a pair is its low vector, then its high one; any bytes are a value of words.
    unsafe { core::mem::transmute::<HvxVectorPair, [[u32; LANES]; 2]>(pair) }
}
