//! The case list with weights by DMA: the same bits as with direct reads.

use hexloom_conformance::{cases, runners};

#[test]
fn every_case_with_streamed_weights() {
    runners::dma().expect("the simulator opens").check(&cases::all(), 2000);
}
