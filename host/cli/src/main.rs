//! `hexloom`: run, score, bench, profile and plan GGUF models, and see what they can run on.
//!
//! One file per command under `commands`; each gives text for standard output or a [`Failure`], and only this file
//! turns one into an exit code: 0 done, 1 the work failed, 2 bad usage or input, 130 ended by Ctrl-C.

mod args;
mod budget;
mod commands;
mod device;
mod failure;
mod load;
mod memory;
mod output;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error),
    };
    let done = match cli.command {
        Command::Run(args) => commands::run::run(&args),
        Command::Score(args) => commands::score::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Plan(args) => commands::plan::run(&args),
        Command::Profile(args) => commands::profile::run(&args),
        Command::Devices(args) => commands::devices::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
    };
    done.unwrap_or_else(|failure: Failure| failure.report())
}
