//! The case list on models of device floats.

use hexloom_conformance::{Case, Suite, cases, runners};

fn run(mut suite: Suite, cases: &[Case], at_least: usize) {
    suite.run(cases);
    let report = suite.report();
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
    for (name, count) in &report.counts {
        assert!(count.ran > at_least, "{name} ran {} cases only", count.ran);
    }
}

fn products() -> (Vec<Case>, Vec<Case>) {
    cases::all().into_iter().partition(Case::has_tiled_weights)
}

#[test]
fn every_case_on_ieee_floats() {
    let (_, others) = products();
    run(runners::ieee_model().expect("the simulator opens"), &others, 1000);
}

#[test]
fn every_product_on_ieee_floats() {
    let (products, _) = products();
    run(runners::ieee_products().expect("the simulator opens"), &products, 150);
}

#[test]
fn every_case_on_qfloats() {
    run(
        runners::qfloat_model().expect("the simulator opens"),
        &cases::all(),
        2000,
    );
}
