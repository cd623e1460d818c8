//! `cargo xtask firmware`: sets the Hexagon tools up and builds every image of `toolchains/`.
//!
//! Images are copied to `firmware/` in the cache folder, where transports and tests look for them. cargo itself decides
//! what is out of date; `core` is built once for each architecture and kept in `dsp/firmware/target`.

mod elf;
mod image;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::steps::{Context, DEADLINE_S, Outcome};
use crate::workspace::Workspace;
use image::ImageFacts;
use tools::Tools;

/// The environment variable that names the emulator image to tests and to the `emu` transport.
pub(crate) const IMAGE_VAR: &str = "HEXLOOM_EMULATOR_IMAGE";

/// Sets up, builds, and prints what there is.
pub(crate) fn run() -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let deadline = Instant::now() + Duration::from_secs(DEADLINE_S);
    let tools = Tools::ensure(&workspace, deadline)?;
    for line in build(&workspace, &tools, deadline)? {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The step before the test suite. Tools that cannot be had here are a skip; a build that fails is a failure.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let tools = match Tools::ensure(&context.workspace, context.deadline) {
        Ok(tools) => tools,
        Err(missing) => {
            return Ok(Outcome {
                skipped: 1,
                skips: vec![format!("no emulator image: {missing:#}")],
                ..Outcome::default()
            });
        }
    };
    for line in build(&context.workspace, &tools, context.deadline)? {
        eprintln!("{line}");
    }
    Ok(Outcome::pass())
}

/// Where the emulator image is once it is built.
pub(crate) fn emulator_image(workspace: &Workspace) -> Option<PathBuf> {
    let path = folder(workspace).join("hexloom-v67-emulator.elf");
    path.exists().then_some(path)
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.cache.join("firmware")
}

/// Builds every image; one line about each.
fn build(workspace: &Workspace, tools: &Tools, deadline: Instant) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for facts in ImageFacts::all(&workspace.root.join("toolchains"))? {
        let built = image::build(workspace, tools, &facts, deadline)?;
        lines.push(image::publish(&built, &facts, &folder(workspace))?);
    }
    Ok(lines)
}
