//! The case list with every weight in an extended buffer, which only DMA reaches: the same bits as with weights in the
//! window.

use hexloom_conformance::{cases, runners};

#[test]
fn every_case_with_extended_weights() {
    let mut suite = runners::extended().expect("the simulator opens");
    suite.run(&cases::all());
    let report = suite.report();
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
    for (name, count) in &report.counts {
        assert!(count.ran > 2000, "{name} ran {} cases only", count.ran);
    }
}
