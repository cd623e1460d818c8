//! The case list with weights by DMA: the same bits as with direct reads.

use hexloom_conformance::{cases, runners};

#[test]
fn every_case_with_streamed_weights() {
    let mut suite = runners::dma().expect("the simulator opens");
    suite.run(&cases::all());
    let report = suite.report();
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
    for (name, count) in &report.counts {
        assert!(count.ran > 2000, "{name} ran {} cases only", count.ran);
    }
}
