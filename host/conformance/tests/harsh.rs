//! The case list on the simulator as harsh as it gets: the same bits as on the kind one.

use hexloom_conformance::{cases, runners};

#[test]
fn every_case_on_a_harsh_machine() {
    let mut suite = runners::harsh(1).expect("the simulator opens");
    suite.run(&cases::all());
    let report = suite.report();
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
    for (name, count) in &report.counts {
        assert!(count.ran > 2000, "{name} ran {} cases only", count.ran);
    }
}
