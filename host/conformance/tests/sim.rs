//! The case list on the simulator.

use hexloom::DType;
use hexloom::abi::Opcode;
use hexloom_conformance::{Case, Expect, Operand, cases, runners};

#[test]
fn every_case_on_the_simulator() {
    let report = runners::sim().expect("the simulator opens").check(&cases::all(), 2000);
    let unsupported = |wanted: &str| {
        let found = report.counts.iter().find(|(name, _)| name.starts_with(wanted));
        found.map(|(_, count)| count.unsupported)
    };
    let counts = ["sim 256 KiB", "sim 2 MiB", "sim reference"].map(unsupported);
    assert!(
        counts[0] > counts[1] && counts[1] > counts[2],
        "every case fits little scratch memory, so its limit is not tested: {counts:?}"
    );
}

#[test]
fn every_case_on_the_matrix_unit() {
    // Little scratch memory takes no large case, with the unit as without.
    let little = (runners::matrix_unit_little_scratch(), cases::cheap(200_000));
    for (suite, cases) in [(runners::matrix_unit(), cases::all()), little] {
        suite.expect("the simulator opens").check(&cases, 2000);
    }
}

/// The unit serves what it is meant to: its rounding shows in the bits of many rows, and not in those of few.
#[test]
fn the_matrix_unit_takes_over_from_five_rows_on() {
    let product = |dtype, columns| {
        Case::new(Opcode::MulMat)
            .src(Operand::weight(dtype, [96, 64, 1, 1]))
            .src(Operand::f32([96, columns, 1, 1]))
            .dst(Operand::f32([64, columns, 1, 1]))
    };
    for (case, served) in [
        (product(DType::Q4_1, 4), 0),
        (product(DType::Q4_1, 5), 1),
        (product(DType::F16, 5), 1),
        (product(DType::F32, 5), 0),
    ] {
        let mut suite = runners::vector_and_unit().expect("the simulator opens");
        suite.run(std::slice::from_ref(&case));
        assert_eq!(suite.report().failures.len(), served, "{}", case.name);
    }
}

/// Every opcode is in the list: run, or refused as having no kernel yet.
#[test]
fn every_opcode_has_a_case() {
    let cases = cases::all();
    for &opcode in Opcode::ALL {
        assert!(cases.iter().any(|case| case.opcode == opcode), "{opcode} has no case");
    }
}

/// A suite that cannot fail would prove nothing: a case that is wrong is found, and one that works is no gap.
#[test]
fn wrong_cases_and_closed_gaps_are_found() {
    let ne = [33, 2, 1, 1];
    let silu = || Case::new(Opcode::Silu).src(Operand::f32(ne)).dst(Operand::f32(ne));
    let exact = Case {
        limit: Some(0.0),
        ..silu()
    };
    let cases = [
        (silu(), 0),
        (exact.clone(), 2),
        (exact.gap("vector exponentials are not those of the reference"), 0),
        (silu().gap("none"), 2),
        (
            silu().expect(Expect::Unsupported),
            2 * runners::sim().unwrap().report().counts.len(),
        ),
    ];
    for (case, wanted) in cases {
        let mut suite = runners::sim().expect("the simulator opens");
        suite.run(std::slice::from_ref(&case));
        let report = suite.report();
        assert_eq!(report.failures.len(), wanted, "{} {report}", case.name);
    }
}
