//! Which rests of a search have failed, as a set of hashes.
//!
//! A clash of two hashes makes the search overlook packings; it never makes it return a wrong one.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Failed rests to remember; past it the memory is emptied.
const MAX_FAILURES: usize = 1 << 20;

/// A set of hashes of bounded size.
#[derive(Debug, Default)]
pub(crate) struct Failures(HashSet<u64, BuildHasherDefault<Hashed>>);

impl Failures {
    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.0.contains(&hash)
    }

    pub(crate) fn insert(&mut self, hash: u64) {
        if self.0.len() >= MAX_FAILURES {
            self.0.clear();
        }
        self.0.insert(hash);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Spreads a word over 64 bits.
pub(crate) fn mix(word: u64) -> u64 {
    let x = (word ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let x = (x ^ x >> 32).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 29
}

/// The keys are hashes already.
#[derive(Debug, Clone, Copy, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |h, &b| h.rotate_left(8) ^ u64::from(b));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}
