//! The matrix unit's six instruction words, and the device's unit that executes them.
//!
//! No public assembler knows these instructions, so each word is put together from its fields: registers s and t, and the
//! parse bits P (15..14) that say whether a packet goes on (1) or ends (3). An activation load and its weight load share
//! a packet; all other instructions are packets of their own.

/// Parse bits of an instruction that another one of its packet follows.
pub const MORE: u32 = 1;
/// Parse bits of a packet's last instruction.
pub const LAST: u32 = 3;

/// `mxclracc.hf`: clears the accumulator.
pub const fn clear(parse: u32) -> u32 {
    0xa6e0_0013 | parse << 14
}

/// `activation.hf = mxmem(Rs, Rt):deep`: loads activation tiles from Rs on; Rt is the bytes of all but one byte.
pub const fn activation(s: u32, t: u32, parse: u32) -> u32 {
    0x9200_00e2 | s << 16 | t << 8 | parse << 14
}

/// `activation.hf = mxmem(Rs, Rt)`: the same for tiles that are not a run along k.
pub const fn activation_shallow(s: u32, t: u32, parse: u32) -> u32 {
    0x9200_00e4 | s << 16 | t << 8 | parse << 14
}

/// `weight.hf = mxmem(Rs, Rt)`: loads weight tiles, which starts the multiplication.
pub const fn weight(s: u32, t: u32, parse: u32) -> u32 {
    0x9200_20ef | s << 16 | t << 8 | parse << 14
}

/// `bias = mxmem2(Rs)`: loads column scales and offsets.
pub const fn scale(s: u32, parse: u32) -> u32 {
    0x9200_03fe | s << 16 | parse << 14
}

/// `mxmem(Rs, Rt):after.hf = acc`: stores the accumulator as f16; Rt is 0 for one tile.
pub const fn store(s: u32, t: u32, parse: u32) -> u32 {
    0xa6e0_2004 | s << 16 | t << 8 | parse << 14
}

#[cfg(target_arch = "hexagon")]
pub use device::Device;

#[cfg(target_arch = "hexagon")]
mod device {
    use core::arch::asm;

    use super::super::{MatrixUnit, TILE_BYTES};
    use super::{LAST, MORE};
    use crate::tensor::Span;

    /// The unit of the processor that runs this. Its session holds the unit, and one thread at a time drives it.
    pub struct Device;

    impl MatrixUnit for Device {
        #[inline(always)]
        fn clear(&mut self) {
            // SAFETY: changes nothing but the unit's accumulator, which nothing else relies on.
            unsafe { asm!(".word {word}", word = const super::clear(LAST), options(nostack)) };
        }

        #[inline(always)]
        fn multiply(&mut self, act: Span<'_, u16>, weight: Span<'_, u16>) {
            let range = act.len() * 2 - 1;
            debug_assert!(range < 32 * TILE_BYTES && act.len() == weight.len());
            // SAFETY: both spans are readable up to the last byte, which is what the range names.
            unsafe {
                asm!(
                    ".word {act}",
                    ".word {weight}",
                    act = const super::activation(0, 1, MORE),
                    weight = const super::weight(2, 3, LAST),
                    in("r0") act.as_ptr(),
                    in("r1") range,
                    in("r2") weight.as_ptr(),
                    in("r3") range,
                    options(nostack, readonly),
                );
            }
        }

        #[inline(always)]
        fn set_scale(&mut self, scales: Span<'_, u16>) {
            debug_assert!(scales.len() == super::super::SCALE_HALVES);
            // SAFETY: reads 256 bytes, which the span has.
            unsafe {
                asm!(
                    ".word {word}",
                    word = const super::scale(0, LAST),
                    in("r0") scales.as_ptr(),
                    options(nostack, readonly),
                );
            }
        }

        #[inline(always)]
        fn store(&mut self, to: Span<'_, u16>) {
            debug_assert!(to.len() * 2 == TILE_BYTES);
            // SAFETY: writes one tile, which the span has.
            unsafe {
                asm!(
                    ".word {word}",
                    word = const super::store(0, 1, LAST),
                    in("r0") to.as_ptr(),
                    in("r1") 0,
                    options(nostack),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What shipped v73, v75 and v79 firmware holds for these registers and places in a packet.
    #[test]
    fn words_are_the_documented_ones() {
        assert_eq!(clear(LAST), 0xa6e0_c013);
        assert_eq!(activation(0, 1, MORE), 0x9200_41e2);
        assert_eq!(activation_shallow(0, 1, MORE), 0x9200_41e4);
        assert_eq!(weight(2, 3, LAST), 0x9202_e3ef);
        assert_eq!(scale(0, LAST), 0x9200_c3fe);
        assert_eq!(store(0, 1, LAST), 0xa6e0_e104);
    }

    /// Fields do not run into each other: every register and place comes back out of the word.
    #[test]
    fn fields_are_apart() {
        for s in 0..32 {
            for t in 0..32 {
                for parse in [MORE, LAST] {
                    for word in [
                        activation(s, t, parse) ^ 0x9200_00e2,
                        activation_shallow(s, t, parse) ^ 0x9200_00e4,
                        weight(s, t, parse) ^ 0x9200_20ef,
                        store(s, t, parse) ^ 0xa6e0_2004,
                    ] {
                        assert_eq!((word >> 16, word >> 8 & 0x1f, word >> 14 & 3), (s, t, parse));
                    }
                    assert_eq!(scale(s, parse) ^ 0x9200_03fe, s << 16 | parse << 14);
                }
            }
        }
    }
}
