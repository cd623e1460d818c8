//! Bounds of vector loads and stores, for tests: inside [`within`], one that leaves the memory it was given is a failure.

use core::cell::RefCell;
use core::ops::Range;
use std::vec::Vec;

std::thread_local! {
    static GIVEN: RefCell<Option<Vec<Range<usize>>>> = const { RefCell::new(None) };
}

/// Runs `what`, whose vector loads and stores must stay inside one of `given`, ranges of addresses.
pub(in crate::hvx::device) fn within<T>(given: &[Range<usize>], what: impl FnOnce() -> T) -> T {
    GIVEN.set(Some(given.to_vec()));
    let result = what();
    GIVEN.set(None);
    result
}

/// Looks at one access of `bytes` bytes.
pub(super) fn check(address: usize, bytes: usize) {
    GIVEN.with_borrow(|given| {
        let Some(given) = given else { return };
        assert!(
            given
                .iter()
                .any(|range| range.start <= address && address + bytes <= range.end),
            "a vector of {bytes} bytes at {address:#x} leaves {given:x?}"
        );
    });
}
