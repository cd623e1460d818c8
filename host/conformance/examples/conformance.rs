//! Runs the case list on the simulator and prints what ran: `cargo run -p hexloom-conformance --release --example
//! conformance [FAMILY...]`, where a family is a file of `cases/`.

use std::process::ExitCode;

use hexloom_conformance::{cases, runners};

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut suite = match runners::sim() {
        Ok(suite) => suite,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for (name, cases) in cases::FAMILIES {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            suite.run(&cases());
        }
    }
    let report = suite.report();
    println!("{report}");
    ExitCode::from(u8::from(!report.failures.is_empty()))
}
