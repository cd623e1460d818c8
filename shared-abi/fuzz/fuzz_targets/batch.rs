//! Any bytes as a request with its block: no panic, and nothing accepted that reaches outside its buffer.
//!
//! `cargo xtask fuzz batch` runs it; the committed corpus in `corpus/batch` also runs as the ordinary test `corpus` of
//! `shared-abi/tests/view.rs`, by the same check.
#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = support::check_message(bytes);
});
