//! The case list on the simulator as harsh as it gets: the same bits as on the kind one.

use hexloom_conformance::{cases, runners};

#[test]
fn every_case_on_a_harsh_machine() {
    runners::harsh(1)
        .expect("the simulator opens")
        .check(&cases::all(), 2000);
}
