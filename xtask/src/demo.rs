//! `cargo xtask demo`: all set-up, then the main work: a real model writes text.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::workspace::Workspace;
use crate::{model, process};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the model continues.
    #[arg(short, long, default_value = "The northern lights are")]
    prompt: String,
    /// Tokens to write.
    #[arg(short, default_value_t = 48)]
    n: u32,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let model = model::ensure(&workspace)?;
    let mut hexloom = process::cargo();
    hexloom
        .args(["run", "--release", "--package", "hexloom-cli"])
        .args(["--bin", "hexloom", "--", "run"])
        .arg(model)
        .arg("-p")
        .arg(&args.prompt)
        .arg("-n")
        .arg(args.n.to_string())
        .current_dir(&workspace.root);
    // From here on this process is the program: Ctrl-C and the exit code are its own.
    Err(hexloom.exec()).context("cannot start cargo")
}
