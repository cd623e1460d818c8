//! `fmt`, `clippy` and `doc`: steps that are one call of cargo.

use anyhow::Result;

use crate::dist::build::PACKAGES;
use crate::process;
use crate::steps::{Context, Outcome};

pub(crate) fn fmt(context: &Context) -> Result<Outcome> {
    // The firmware is a workspace of its own.
    let mut command = process::cargo();
    command
        .args(["fmt", "--check"])
        .current_dir(context.workspace.root.join("dsp/firmware"));
    process::run(&mut command, context.deadline)?;
    cargo(context, &["fmt", "--all", "--check"], None)
}

/// Everything, and what packages for devices are made of without the features that they are built without.
pub(crate) fn clippy(context: &Context) -> Result<Outcome> {
    let packages = PACKAGES.iter().flat_map(|package| ["-p", package]);
    let lean: Vec<&str> = packages.chain(["--no-default-features"]).collect();
    let mut outcome = Outcome::default();
    for what in [&["--workspace", "--all-targets"], lean.as_slice()] {
        let args = [&["clippy"], what, &["--", "-D", "warnings"]].concat();
        outcome.add(cargo(context, &args, None)?);
    }
    Ok(outcome)
}

/// Libraries only: the program `hexloom` and the library `hexloom` would share one output folder.
pub(crate) fn doc(context: &Context) -> Result<Outcome> {
    let args = ["doc", "--workspace", "--no-deps", "--lib"];
    cargo(context, &args, Some(("RUSTDOCFLAGS", "-D warnings")))
}

fn cargo(context: &Context, args: &[&str], variable: Option<(&str, &str)>) -> Result<Outcome> {
    let mut command = process::cargo();
    command.args(args).current_dir(&context.workspace.root);
    command.envs(variable);
    process::run(&mut command, context.deadline)?;
    Ok(Outcome::pass())
}
