//! The case list on models of device floats.

use hexloom_conformance::{Case, cases, runners};

fn products() -> (Vec<Case>, Vec<Case>) {
    cases::all().into_iter().partition(Case::has_tiled_weights)
}

#[test]
fn every_case_on_ieee_floats() {
    let (_, others) = products();
    runners::ieee_model().expect("the simulator opens").check(&others, 1000);
}

#[test]
fn every_product_on_ieee_floats() {
    let (products, _) = products();
    runners::ieee_products()
        .expect("the simulator opens")
        .check(&products, 150);
}

#[test]
fn every_case_on_qfloats() {
    runners::qfloat_model()
        .expect("the simulator opens")
        .check(&cases::all(), 2000);
}
