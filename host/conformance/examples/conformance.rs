//! Runs the case list and prints what ran: `cargo run -p hexloom-conformance --release --example conformance
//! [sim|emu|sim+hmx|emu+hmx|ieee|qfloat|harsh|fastrpc] [--json] [FAMILY...]`, where a family is a file of `cases/`. With
//! `--json` one JSON object is printed in place of text. The status is 1 when a case failed, 2 when nothing could run. On
//! `emu` this is the whole list, of which the tests run the cheap part; `+hmx` is with the matrix unit's model; `fastrpc` is
//! the device that the driver library of this machine serves.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use hexloom::transport::SessionAt;
use hexloom::{MatrixUnit, SessionOptions};
use hexloom_conformance::suite::{Count, Report};
use hexloom_conformance::{Runner, Suite, cases, runners};
use hexloom_emu::EmuOptions;
use hexloom_fastrpc::{FastRpcOptions, FastRpcTransport};
use hexloom_sim::SimTransport;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("conformance: {error}");
        ExitCode::from(2)
    })
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    let found = wanted.first().and_then(|device| suite(device));
    let mut suite = match found {
        Some(suite) => {
            wanted.remove(0);
            suite?
        }
        None => runners::sim()?,
    };
    let json = wanted.first().is_some_and(|word| word == "--json");
    if json {
        wanted.remove(0);
    }
    let is_family = |word: &String| cases::FAMILIES.iter().any(|(name, _)| name == word);
    if let Some(word) = wanted.iter().find(|word| !is_family(word)) {
        return Err(format!("{word} is neither a device nor a family of cases").into());
    }
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

/// The runners of a device by its word; `None` for any other word.
fn suite(device: &str) -> Option<Result<Suite, Box<dyn Error>>> {
    let emu = |unit| Ok(runners::emu(&EmuOptions::find()?, unit)?);
    Some(match device {
        "sim" => runners::sim().map_err(Into::into),
        "sim+hmx" => runners::matrix_unit().map_err(Into::into),
        #[cfg(feature = "float-model")]
        "ieee" => runners::ieee_model().map_err(Into::into),
        #[cfg(feature = "float-model")]
        "qfloat" => runners::qfloat_model().map_err(Into::into),
        "harsh" => runners::harsh(1).map_err(Into::into),
        "emu" => emu(MatrixUnit::Auto),
        "emu+hmx" => emu(MatrixUnit::Model),
        "fastrpc" => fastrpc(),
        _ => return None,
    })
}

/// The device behind the driver library, in two sessions: one thread, and all there are, bit for bit the same. The reference
/// is the simulator's.
fn fastrpc() -> Result<Suite, Box<dyn Error>> {
    let transport = Arc::new(FastRpcTransport::open(FastRpcOptions::default())?);
    let open = |name: &str, session, n_threads| {
        let options = SessionOptions {
            at: SessionAt { core: 0, session },
            n_threads,
            ..SessionOptions::default()
        };
        Runner::open(name, Arc::clone(&transport) as _, options)
    };
    let runners = vec![open("fastrpc 1 thread", 0, 1)?, open("fastrpc", 1, 0)?];
    let options = SessionOptions {
        reference: true,
        ..SessionOptions::default()
    };
    let reference = Runner::open("sim reference", Arc::new(SimTransport::default()), options)?;
    Ok(Suite::new(reference, runners))
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
