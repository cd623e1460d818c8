//! Every developer command of hexloom, one file per command.
//!
//! The words of `cargo xtask` are either *steps* (they check something, have a time budget and are
//! part of `ci`: see `steps.rs`) or *programs* (`demo`, `firmware`, `bench`, `fuzz`). Only public tools are
//! used, and nothing here knows what a kernel or a batch is.

#![forbid(unsafe_code)]

mod aarch64;
mod adb;
mod bench;
mod bindgen;
mod checks;
mod codegen;
mod demo;
mod dist;
mod examples;
mod firmware;
mod fuzz;
mod gemma;
mod generated;
mod model;
mod peer;
mod peer_test;
mod process;
mod sdk;
mod sign;
mod steps;
mod suite;
mod testlog;
mod tidy;
mod wanted;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Every developer command of hexloom.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Set everything up, then let SmolLM2-135M write text.
    Demo(demo::Args),
    /// Set everything up, then run every test.
    Test,
    /// Every check of a submission: the steps of docs/testing.md in order.
    Ci {
        /// Seconds after which what still runs is ended.
        #[arg(long, default_value_t = steps::DEADLINE_S)]
        deadline_s: u64,
    },
    /// Check the formatting of every crate.
    Fmt,
    /// Lint every target of every crate, warnings denied.
    Clippy,
    /// Check crate dependencies and source habits.
    Tidy,
    /// Build the API documentation, warnings denied.
    Doc,
    /// Check that generated parts of files are up to date.
    Generated {
        /// Rewrite them instead.
        #[arg(long)]
        write: bool,
    },
    /// Fetch a model into the cache folder and print its path.
    Model(model::Args),
    /// Set the Hexagon tools up and build every image of the firmware.
    Firmware(firmware::Args),
    /// Make a package of programs and device libraries for a kind of machine.
    Dist(dist::Args),
    /// Sign the device libraries of a package.
    Sign(sign::Args),
    /// Run the programs for 64-bit ARM under emulation: logits bit for bit, and a phone's whole way.
    Aarch64,
    /// Push a package to a phone and run it there.
    Adb(adb::Args),
    /// Count the packets of the hot loops in the device libraries.
    Codegen(codegen::Args),
    /// Write the declarations of host/hexagon-sys from its headers.
    Bindgen(bindgen::Args),
    /// Fuzz the parsers of foreign bytes.
    Fuzz(fuzz::Args),
    /// Run ggml's operator test and llama.cpp on libggml-hexloom.so.
    PeerTest(peer_test::Args),
    /// Compare Gemma 3 270M with what exact arithmetic makes of the same texts.
    Gemma,
    /// Measure tokens per second, on request beside llama.cpp.
    Bench(bench::Args),
}

/// Runs the command line. Exit code 0: all is well; 1: the work failed; 2: bad usage.
pub fn main() -> ExitCode {
    let done = match Cli::parse().word {
        Word::Demo(args) => demo::run(&args),
        Word::Test => steps::run("test", steps::DEADLINE_S),
        Word::Ci { deadline_s } => steps::run("", deadline_s),
        Word::Fmt => steps::run("fmt", steps::DEADLINE_S),
        Word::Clippy => steps::run("clippy", steps::DEADLINE_S),
        Word::Tidy => steps::run("tidy", steps::DEADLINE_S),
        Word::Doc => steps::run("doc", steps::DEADLINE_S),
        Word::Generated { write: false } => steps::run("generated", steps::DEADLINE_S),
        Word::Generated { write: true } => generated::write(),
        Word::Model(args) => model::print_path(&args),
        Word::Firmware(args) => firmware::run(&args),
        Word::Dist(args) => dist::run(&args),
        Word::Sign(args) => sign::run(&args),
        Word::Aarch64 => steps::run("aarch64", steps::DEADLINE_S),
        Word::Adb(args) => adb::run(&args),
        Word::Codegen(args) => codegen::run(&args),
        Word::Bindgen(args) => bindgen::run(&args),
        Word::Fuzz(args) => fuzz::run(&args),
        Word::PeerTest(args) => peer_test::run(&args),
        Word::Gemma => steps::run("gemma", steps::DEADLINE_S),
        Word::Bench(args) => bench::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
