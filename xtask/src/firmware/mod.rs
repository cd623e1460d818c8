//! `cargo xtask firmware`: sets the Hexagon tools up and builds every image of `toolchains/`.
//!
//! Images are copied to `firmware/` in the cache folder, where transports and tests look for them. cargo itself decides
//! what is out of date; `core` is built once for each architecture and kept in `dsp/firmware/target`.

pub(crate) mod elf;
mod image;
mod library;
pub(crate) mod loader;
mod tools;
mod vendor;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use crate::sdk::Sdk;
use crate::steps::{Context, DEADLINE_S, Outcome};
use crate::workspace::Workspace;
use image::ImageFacts;
pub(crate) use tools::{Libclang, Tools, compiler};

/// The environment variable that names the emulator image to tests and to the `emu` transport.
pub(crate) const IMAGE_VAR: &str = "HEXLOOM_EMULATOR_IMAGE";

/// Images that are built at the same time.
const BUILDS: usize = 2;

/// Which images to build.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only images for this architecture, for instance v73.
    #[arg(long, value_name = "ARCH")]
    only: Option<String>,
    /// Link the device libraries with the vendor's SDK that HEXAGON_SDK_ROOT names, into `firmware/sdk/`.
    #[arg(long)]
    sdk: bool,
}

/// Sets up, builds, and prints what there is.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let deadline = Instant::now() + Duration::from_secs(DEADLINE_S);
    let sdk = if args.sdk { Some(Sdk::find()?) } else { None };
    let tools = Tools::ensure(&workspace, deadline)?;
    let facts = ImageFacts::all(&workspace.root.join("toolchains"))?;
    let is_wanted = |facts: &ImageFacts| {
        (sdk.is_none() || facts.is_library()) && args.only.as_ref().is_none_or(|only| facts.arch() == only)
    };
    if let Some(only) = args.only.as_ref().filter(|_| !facts.iter().any(is_wanted)) {
        let all: Vec<&str> = facts.iter().map(ImageFacts::arch).collect();
        bail!("no image for {only}; there are: {}", all.join(", "));
    }
    for line in make_side_by_side(&workspace, (&tools, sdk.as_ref()), &facts, is_wanted, deadline)? {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The step before the test suite. Tools that cannot be had here are a skip; a build that fails is a failure.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    match Tools::ensure(&context.workspace, context.deadline) {
        Ok(tools) => make_all(context, &tools).map(|()| Outcome::pass()),
        Err(missing) => Ok(Outcome::skip(format!("no images: {missing:#}"))),
    }
}

/// Builds whatever is out of date.
pub(crate) fn make_all(context: &Context, tools: &Tools) -> Result<()> {
    let facts = ImageFacts::all(&context.workspace.root.join("toolchains"))?;
    for line in make_side_by_side(&context.workspace, (tools, None), &facts, |_| true, context.deadline)? {
        eprintln!("{line}");
    }
    Ok(())
}

/// Builds the wanted images and gives a line about each.
///
/// Most of a build is one crate's optimisation, on one thread, so [`BUILDS`] run at a time, in folders of their own, because
/// cargo locks the folder that it builds in. An image is always built in the same one, and images of one instruction set
/// share one, so that what they have in common is compiled once.
fn make_side_by_side(
    workspace: &Workspace,
    (tools, sdk): (&Tools, Option<&Sdk>),
    facts: &[ImageFacts],
    is_wanted: impl Fn(&ImageFacts) -> bool + Sync,
    deadline: Instant,
) -> Result<Vec<String>> {
    let make_share = |share: usize| {
        let sets: BTreeSet<&str> = facts.iter().map(ImageFacts::instruction_set).collect();
        let sets: Vec<&str> = sets.into_iter().skip(share).step_by(BUILDS).collect();
        let mine = facts.iter().filter(|facts| sets.contains(&facts.instruction_set()));
        let made = mine.filter(|facts| is_wanted(facts)).map(|facts| {
            let target = workspace.root.join(format!("dsp/firmware/target/{share}"));
            let folder = match sdk {
                None => folder(workspace),
                Some(_) => folder(workspace).join("sdk"),
            };
            image::make(workspace, (tools, sdk), facts, (&target, &folder), deadline)
        });
        made.collect::<Result<Vec<_>>>()
    };
    std::thread::scope(|scope| {
        let make_share = &make_share;
        let builds: Vec<_> = (0..BUILDS)
            .map(|share| scope.spawn(move || make_share(share)))
            .collect();
        let mut lines = Vec::new();
        for build in builds {
            lines.extend(
                build
                    .join()
                    .map_err(|_| anyhow!("the thread of a build has panicked"))??,
            );
        }
        Ok(lines)
    })
}

/// Builds the device libraries that are out of date, and gives their folder.
pub(crate) fn make_libraries(workspace: &Workspace, deadline: Instant) -> Result<PathBuf> {
    let tools = Tools::ensure(workspace, deadline)?;
    let facts = ImageFacts::all(&workspace.root.join("toolchains"))?;
    for line in make_side_by_side(workspace, (&tools, None), &facts, ImageFacts::is_library, deadline)? {
        eprintln!("{line}");
    }
    Ok(folder(workspace))
}

/// A device library that was built.
pub(crate) struct Library {
    pub(crate) arch: String,
    /// Its file's name.
    pub(crate) image: String,
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
        image: facts.image.clone(),
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
