//! Descriptors as the hardware reads them, one type per shape and generation, with its limits as types.
//!
//! A field is a [`Bits`], which holds no number that the field cannot: what does not fit is no descriptor, and
//! [`super::split`] cuts it. Bit positions count from the least significant one; all words are little-endian.
//!
//! ```text
//! both       word 0   address of the next descriptor, 0 for none
//!            word 1   24 bits by shape | shape:2 | compression:2 | target bypass | source bypass | order | done
//!            word 2   source, low half        word 3   target, low half
//! linear     word 1   bytes:24
//! rows, < v75   word 4   0                    word 5   row bytes:16 | rows:16
//!               word 6   source stride:16 | target stride:16            word 7   0
//! rows, >= v75  word 1   target stride:24     word 4   type:8 | source upper:8 | target upper:8 | 0
//!               word 5   row bytes:24 | rows, low:8                     word 6   rows, high:8 | source stride:24
//!               word 7   0
//! ```
//!
//! Upper address bytes exist above v79, with type 10. Both bypass bits are set: weights and their copies in scratch have
//! no place in the caches. The order bit is not: completion is read from each descriptor's own done bit.

use core::sync::atomic::{AtomicU32, Ordering};

/// Generations of the engine that differ in their descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arch {
    /// Below v75: rows of 16-bit sizes and strides.
    V68,
    /// v75 to v79: 24-bit sizes and strides.
    V75,
    /// Above v79: as before, and addresses of 40 bits.
    V81,
}

/// A number below 2^`N`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits<const N: u32>(u64);

/// Contiguous bytes: 16 bytes of descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Linear {
    /// First byte to read.
    pub source: Bits<32>,
    /// First byte to write.
    pub target: Bits<32>,
    /// How many.
    pub bytes: Bits<24>,
}

/// Rows whose sizes and strides have `SIZE` bits, at addresses of `ADDRESS` bits: 32 bytes of descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rows<const SIZE: u32, const ADDRESS: u32> {
    /// First byte to read.
    pub source: Bits<ADDRESS>,
    /// First byte to write.
    pub target: Bits<ADDRESS>,
    /// Bytes of a row.
    pub row_bytes: Bits<SIZE>,
    /// Rows.
    pub rows: Bits<16>,
    /// Bytes from one row to the next at the source.
    pub source_stride: Bits<SIZE>,
    /// Bytes from one row to the next at the target.
    pub target_stride: Bits<SIZE>,
}

/// Rows below v75.
pub type NarrowRows = Rows<16, 32>;
/// Rows from v75.
pub type WideRows = Rows<24, 32>;
/// Rows above v79 with an address that 32 bits do not hold.
pub type FarRows = Rows<24, 40>;

/// A descriptor of any kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Descriptor {
    /// Every generation.
    Linear(Linear),
    /// Below v75.
    Narrow(NarrowRows),
    /// From v75.
    Wide(WideRows),
    /// Above v79.
    Far(FarRows),
}

/// A descriptor's place in memory, shared with the engine, which sets its done bit.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Place {
    words: [AtomicU32; 8],
}

const _: () = assert!(size_of::<Place>() == 32 && align_of::<Place>() == 32);

/// Shape in word 1: two dimensions.
const TWO_DIMENSIONS: u32 = 1 << 24;
/// The engine writes past the caches.
const TARGET_BYPASS: u32 = 1 << 28;
/// The engine reads past the caches.
const SOURCE_BYPASS: u32 = 1 << 29;
/// Set by the engine when every byte has been written.
pub const DONE: u32 = 1 << 31;
/// Type of rows from v75 at addresses of 32 bits.
const TYPE_WIDE: u64 = 9;
/// Type of rows above v79 with upper address bytes.
const TYPE_FAR: u64 = 10;

impl Arch {
    /// The generation of an architecture version, for instance 73.
    pub const fn of(version: u32) -> Self {
        match version {
            0..75 => Self::V68,
            75..80 => Self::V75,
            _ => Self::V81,
        }
    }
}

impl<const N: u32> Bits<N> {
    /// The largest number.
    pub const MAX: u64 = (1 << N) - 1;

    /// `value`, if the field holds it.
    pub const fn new(value: u64) -> Option<Self> {
        if value <= Self::MAX { Some(Self(value)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Linear {
    /// Words 0 to 3, the next descriptor's address left zero.
    pub const fn encode(&self) -> [u32; 4] {
        [
            0,
            low(self.bytes.0) | TARGET_BYPASS | SOURCE_BYPASS,
            low(self.source.0),
            low(self.target.0),
        ]
    }
}

impl Rows<16, 32> {
    /// All words, the next descriptor's address left zero.
    pub const fn encode(&self) -> [u32; 8] {
        [
            0,
            TWO_DIMENSIONS | TARGET_BYPASS | SOURCE_BYPASS,
            low(self.source.0),
            low(self.target.0),
            0,
            low(self.row_bytes.0 | self.rows.0 << 16),
            low(self.source_stride.0 | self.target_stride.0 << 16),
            0,
        ]
    }
}

impl<const ADDRESS: u32> Rows<24, ADDRESS> {
    /// All words, the next descriptor's address left zero.
    pub const fn encode(&self) -> [u32; 8] {
        const { assert!(ADDRESS == 32 || ADDRESS == 40) };
        let kind = if ADDRESS > 32 { TYPE_FAR } else { TYPE_WIDE };
        let (source_upper, target_upper) = (self.source.0 >> 32, self.target.0 >> 32);
        [
            0,
            low(self.target_stride.0) | TWO_DIMENSIONS | TARGET_BYPASS | SOURCE_BYPASS,
            low(self.source.0),
            low(self.target.0),
            low(kind | source_upper << 8 | target_upper << 16),
            low(self.row_bytes.0 | (self.rows.0 & 0xff) << 24),
            low(self.rows.0 >> 8 | self.source_stride.0 << 8),
            0,
        ]
    }
}

impl Descriptor {
    /// All words, zeros behind a linear descriptor's four, the next descriptor's address left zero.
    pub const fn encode(&self) -> [u32; 8] {
        match self {
            Self::Linear(linear) => {
                let [next, control, source, target] = linear.encode();
                [next, control, source, target, 0, 0, 0, 0]
            }
            Self::Narrow(rows) => rows.encode(),
            Self::Wide(rows) => rows.encode(),
            Self::Far(rows) => rows.encode(),
        }
    }
}

impl Place {
    /// A place that holds no descriptor yet.
    pub const fn new() -> Self {
        Self {
            words: [const { AtomicU32::new(0) }; 8],
        }
    }

    /// Stores a descriptor; the caller then hands the place to the engine, which publishes it.
    pub fn store(&self, descriptor: &Descriptor) {
        for (place, word) in self.words.iter().zip(descriptor.encode()) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// The words as they are.
    pub fn words(&self) -> [u32; 8] {
        let mut words = [0; 8];
        for (word, place) in words.iter_mut().zip(&self.words) {
            *word = place.load(Ordering::Relaxed);
        }
        words
    }

    /// Whether the engine has written every byte; they are visible then.
    pub fn is_done(&self) -> bool {
        self.words[1].load(Ordering::Acquire) & DONE != 0
    }

    /// What an engine in software does last: every byte written before is visible to whom sees the place done.
    pub fn set_done(&self) {
        self.words[1].fetch_or(DONE, Ordering::Release);
    }

    /// The address by which the hardware knows the place.
    pub fn address(&self) -> usize {
        self.words.as_ptr() as usize
    }
}

/// The low word of a field's bits, which the callers have put below 2^32.
const fn low(bits: u64) -> u32 {
    (bits & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests;
