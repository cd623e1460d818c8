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

use anyhow::{Context as _, Result, anyhow, bail};

use crate::sdk::Sdk;
use crate::steps::{Context, DEADLINE_S, Outcome};
use crate::workspace::Workspace;
use image::ImageFacts;
use library::Lists;
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

/// What every device library is held against, whoever made it.
pub(crate) struct Rules {
    lists: Lists,
    /// The facts of each library.
    all: Vec<ImageFacts>,
}

impl Rules {
    pub(crate) fn read(workspace: &Workspace) -> Result<Self> {
        let mut all = ImageFacts::all(&workspace.root.join("toolchains"))?;
        all.retain(ImageFacts::is_library);
        Ok(Self {
            lists: Lists::read(&workspace.root.join(image::LINK_FILES))?,
            all,
        })
    }

    /// Names of the libraries' files.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|facts| facts.image.as_str())
    }

    /// Holds a file against what a build of the library of that name is held against: the lists, the loader's rules, the
    /// architecture, the size.
    pub(crate) fn check(&self, file: &[u8], name: &str) -> Result<()> {
        let facts = self.all.iter().find(|facts| facts.image == name);
        let facts = facts.with_context(|| format!("no library is called {name}"))?;
        self.lists.check(file, facts)?;
        image::check_size(file, facts).map(drop)
    }
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Rules for a library called `lib.so` for v73, which needs and gives no names.
    pub(crate) fn rules() -> Rules {
        let text = "target = \"t\"\ncpu = \"hexagonv73\"\nfeatures = []\nimage = \"lib.so\"\nmax_bytes = 4096\n\
                    build.library = \"l\"\n";
        Rules {
            lists: Lists {
                exports: BTreeSet::new(),
                undefined: Default::default(),
                optional: Default::default(),
                provided: BTreeSet::new(),
                script: PathBuf::new(),
            },
            all: vec![toml::from_str(text).unwrap()],
        }
    }

    #[test]
    fn a_library_is_held_against_the_rules_of_its_name() {
        let rules = rules();
        let mut file = elf::sample::library();
        let text = |file: &[u8], name: &str| format!("{:#}", rules.check(file, name).unwrap_err());
        assert!(text(&file, "lib.so").contains("0x70000001"));
        loader::stamp(&mut file).unwrap();
        rules.check(&file, "lib.so").unwrap();
        assert!(text(&file, "other.so").contains("no library is called other.so"));
        loader::stamp_arch(&mut file, "v75").unwrap();
        assert!(text(&file, "lib.so").contains("flags are 0x75, not those of v73"));
    }

    #[test]
    fn every_library_of_the_repository_has_rules() {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let workspace = Workspace {
            cache: root.join("no"),
            root,
        };
        assert_eq!(Rules::read(&workspace).unwrap().names().count(), 6);
    }
}
