//! `cargo xtask bindgen`: writes the declarations of `host/hexagon-sys` from its headers, or checks that they are so.
//!
//! With `HEXAGON_SDK_ROOT` set, the declarations of the host's side come from the SDK's own headers, and `--check` also
//! compares ours with those: values of constants, layouts of structures, types of calls.
//!
//! The generator takes long to build and needs libclang, so it is a feature of this crate that the command switches on
//! for itself; every other command is built without it.

#[cfg(feature = "bindgen")]
mod generate;
#[cfg_attr(not(feature = "bindgen"), allow(dead_code, reason = "only the generator calls it"))]
mod split;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use crate::firmware::Libclang;
use crate::process;
use crate::steps::{Context, Outcome};
use crate::workspace::Workspace;

/// What to do with what is generated.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Compare with the committed files instead of writing them.
    #[arg(long)]
    check: bool,
}

#[cfg(feature = "bindgen")]
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    generate::run(&Workspace::find()?, args.check)
}

/// Runs this command once more, with the generator in.
#[cfg(not(feature = "bindgen"))]
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let deadline = Instant::now() + std::time::Duration::from_secs(crate::steps::DEADLINE_S);
    let libclang = Libclang::ensure(deadline)?;
    again(&workspace, &libclang, args.check, deadline)?;
    Ok(ExitCode::SUCCESS)
}

/// The step of `ci`. Without libclang it is skipped; a file that is out of date is a failure.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let libclang = match Libclang::ensure(context.deadline) {
        Ok(libclang) => libclang,
        Err(missing) => return Ok(Outcome::skip(format!("declarations not compared: {missing:#}"))),
    };
    again(&context.workspace, &libclang, true, context.deadline)?;
    Ok(Outcome::pass())
}

fn again(workspace: &Workspace, libclang: &Libclang, check: bool, deadline: Instant) -> Result<()> {
    let mut command = process::cargo();
    command
        .args([
            "run",
            "--locked",
            "--quiet",
            "--package",
            "xtask",
            "--features",
            "bindgen",
            "--",
            "bindgen",
        ])
        .args(check.then_some("--check"))
        .env("LIBCLANG_PATH", libclang.folder())
        .current_dir(&workspace.root);
    process::run(&mut command, deadline)
}
