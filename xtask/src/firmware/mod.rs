//! `cargo xtask firmware`: sets the Hexagon tools up and builds every image of `toolchains/`.
//!
//! Images are copied to `firmware/` in the cache folder, where transports and tests look for them. cargo itself decides
//! what is out of date; `core` is built once for each architecture and kept in `dsp/firmware/target`.

mod elf;
mod image;
mod library;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::steps::{Context, DEADLINE_S, Outcome};
use crate::workspace::Workspace;
use image::ImageFacts;
pub(crate) use tools::{Libclang, Tools};

/// The environment variable that names the emulator image to tests and to the `emu` transport.
pub(crate) const IMAGE_VAR: &str = "HEXLOOM_EMULATOR_IMAGE";

/// Which images to build.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only images for this architecture, for instance v73.
    #[arg(long, value_name = "ARCH")]
    only: Option<String>,
}

/// Sets up, builds, and prints what there is.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let deadline = Instant::now() + Duration::from_secs(DEADLINE_S);
    let tools = Tools::ensure(&workspace, deadline)?;
    let mut facts = ImageFacts::all(&workspace.root.join("toolchains"))?;
    if let Some(only) = &args.only {
        let all: Vec<String> = facts.iter().map(|facts| facts.arch().to_owned()).collect();
        facts.retain(|facts| facts.arch() == only);
        ensure!(!facts.is_empty(), "no image for {only}; there are: {}", all.join(", "));
    }
    for facts in facts {
        println!(
            "{}",
            image::make(&workspace, &tools, &facts, &folder(&workspace), deadline)?
        );
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
    make_all(context, &tools)?;
    Ok(Outcome::pass())
}

/// Builds whatever is out of date.
pub(crate) fn make_all(context: &Context, tools: &Tools) -> Result<()> {
    for facts in ImageFacts::all(&context.workspace.root.join("toolchains"))? {
        let line = image::make(
            &context.workspace,
            tools,
            &facts,
            &folder(&context.workspace),
            context.deadline,
        )?;
        eprintln!("{line}");
    }
    Ok(())
}

/// A device library that was built.
pub(crate) struct Library {
    pub(crate) arch: String,
    pub(crate) cpu: String,
    pub(crate) features: Vec<String>,
    /// The copy for disassembly.
    pub(crate) with_symbols: PathBuf,
}

/// The device libraries of every architecture.
pub(crate) fn libraries(workspace: &Workspace) -> Result<Vec<Library>> {
    let all = ImageFacts::all(&workspace.root.join("toolchains"))?;
    let libraries = all.into_iter().filter(ImageFacts::is_library).map(|facts| Library {
        arch: facts.arch().to_owned(),
        with_symbols: folder(workspace).join(facts.with_symbols()),
        cpu: facts.cpu,
        features: facts.features,
    });
    Ok(libraries.collect())
}

/// Where the emulator image is once it is built.
pub(crate) fn emulator_image(workspace: &Workspace) -> Option<PathBuf> {
    let path = folder(workspace).join("hexloom-v67-emulator.elf");
    path.exists().then_some(path)
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.cache.join("firmware")
}
