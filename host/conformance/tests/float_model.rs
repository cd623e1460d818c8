//! The case list on models of device floats.

use hexloom_conformance::{Suite, cases, runners};

fn run(mut suite: Suite) {
    suite.run(&cases::all());
    let report = suite.report();
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
    for (name, count) in &report.counts {
        assert!(count.ran > 2000, "{name} ran {} cases only", count.ran);
    }
}

#[test]
fn every_case_on_ieee_floats() {
    run(runners::ieee_model().expect("the simulator opens"));
}

#[test]
fn every_case_on_qfloats() {
    run(runners::qfloat_model().expect("the simulator opens"));
}
