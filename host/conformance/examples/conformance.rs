//! Runs the case list and prints what ran: `cargo run -p hexloom-conformance --release --example conformance
//! [sim|emu|sim+hmx|emu+hmx|ieee|qfloat|harsh] [--json] [FAMILY...]`, where a family is a file of `cases/`. With `--json` one
//! JSON object is printed in place of text. On `emu` this is the whole
//! list, of which the tests run the cheap part; `+hmx` is with the matrix unit's model.

use std::error::Error;
use std::process::ExitCode;

use hexloom::MatrixUnit;
use hexloom_conformance::suite::{Count, Report};
use hexloom_conformance::{cases, runners};
use hexloom_emu::EmuOptions;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    let device = match wanted.first().map(String::as_str) {
        Some("sim" | "emu" | "sim+hmx" | "emu+hmx" | "ieee" | "qfloat" | "harsh") => wanted.remove(0),
        _ => "sim".to_owned(),
    };
    let json = wanted.first().is_some_and(|word| word == "--json");
    if json {
        wanted.remove(0);
    }
    let mut suite = match device.as_str() {
        "emu" => runners::emu(&EmuOptions::find()?, MatrixUnit::Auto)?,
        "emu+hmx" => runners::emu(&EmuOptions::find()?, MatrixUnit::Model)?,
        "sim+hmx" => runners::matrix_unit()?,
        "ieee" => runners::ieee_model()?,
        "harsh" => runners::harsh(1)?,
        "qfloat" => runners::qfloat_model()?,
        _ => runners::sim()?,
    };
    for (name, cases) in cases::FAMILIES {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            suite.run(&cases());
        }
    }
    let report = suite.report();
    match json {
        true => println!("{}", to_json(&report)),
        false => println!("{report}"),
    }
    Ok(ExitCode::from(u8::from(!report.failures.is_empty())))
}

/// `{"runners": [{"name", "ran", "unsupported", "gaps"}], "failures": [...]}`.
fn to_json(report: &Report) -> serde_json::Value {
    let runner = |(name, count): &(String, Count)| {
        serde_json::json!({
            "name": name, "ran": count.ran, "unsupported": count.unsupported, "gaps": count.gaps,
        })
    };
    let runners: Vec<_> = report.counts.iter().map(runner).collect();
    serde_json::json!({"runners": runners, "failures": report.failures})
}
