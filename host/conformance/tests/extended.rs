//! The case list with every weight in an extended buffer, which only DMA reaches: the same bits as with weights in the
//! window.

use hexloom_conformance::{cases, runners};

#[test]
fn every_case_with_extended_weights() {
    runners::extended()
        .expect("the simulator opens")
        .check(&cases::all(), 2000);
}
