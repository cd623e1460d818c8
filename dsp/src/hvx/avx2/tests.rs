//! Every operation of the member against `Plain`, bit by bit.

use super::*;
use crate::hvx::trials::{self, Floats, Halves, Integers, Tiles, Trial};

/// Skips loudly on a processor without the features.
fn check<F: Trial>(trial: F) {
    if available() {
        trials::compare::<Plain, Avx2, F>(trial);
    } else {
        std::eprintln!("SKIPPED: this processor has no AVX2");
    }
}

#[test]
fn floats_equal_plain() {
    check(Floats);
}

#[test]
fn every_half_equals_plain() {
    check(Halves);
}

#[test]
fn integers_equal_plain() {
    check(Integers);
}

#[test]
fn tiles_equal_plain() {
    check(Tiles);
}
