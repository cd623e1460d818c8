//! `cargo xtask adb`: a package on a phone, and what runs there, from a PC.
//!
//! Everything goes through `adb` ([`phone`]); what the programs print as JSON is kept in `adb/` of the cache folder. The
//! scripts are proven without a phone by `toolchains/adb/stand-in/adb`, which the variable `ADB` names.

mod logs;
mod phone;
mod push;
mod results;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::workspace::Workspace;
use phone::Phone;

/// Longest time for all that one call does.
const LIMIT: Duration = Duration::from_secs(3600);

/// What to do on the phone.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    word: Word,
    #[command(flatten)]
    place: Place,
}

/// Which phone, and where on it.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// Serial number of the phone, where several are connected.
    #[arg(long, global = true, value_name = "SERIAL")]
    serial: Option<String>,
    /// Folder on the phone.
    #[arg(
        long,
        global = true,
        value_name = "FOLDER",
        default_value = "/data/local/tmp/hexloom"
    )]
    folder: String,
}

#[derive(clap::Subcommand)]
enum Word {
    /// Copy a package, and on request a model; what is there already is not sent again.
    Push {
        /// The package's folder, by `cargo xtask dist`.
        package: PathBuf,
        /// A GGUF file, for `models/` on the phone.
        #[arg(long, value_name = "FILE")]
        model: Option<PathBuf>,
    },
    /// Run the case list, and a model against exact arithmetic when one was pushed.
    Test {
        #[command(flatten)]
        run: Run,
        /// Only these families of cases.
        families: Vec<String>,
    },
    /// Measure the model.
    Bench {
        #[command(flatten)]
        run: Run,
    },
    /// Fetch what the DSP and its driver have logged; or switch the DSP's log on or off.
    Logs {
        /// Let the DSP log what programs of hexloom do there, from their next start on.
        #[arg(long, conflicts_with = "off")]
        on: bool,
        /// End that.
        #[arg(long)]
        off: bool,
    },
    /// A shell in the package's folder, with its paths set.
    Shell,
}

/// How programs are run.
#[derive(clap::Args)]
pub(crate) struct Run {
    /// Device that the program shall use.
    #[arg(long, default_value = "fastrpc")]
    device: String,
    /// Name of a model that was pushed.
    #[arg(long, value_name = "NAME", default_value = "SmolLM2-135M-Instruct.Q4_1.gguf")]
    model: String,
}

/// Does it.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let program = std::env::var_os("ADB").filter(|name| !name.is_empty());
    let program = program.map_or_else(|| PathBuf::from("adb"), PathBuf::from);
    let deadline = Instant::now() + LIMIT;
    let mut phone = Phone::reach(program, args.place.serial.clone(), &args.place.folder, deadline)?;
    if let Some(kind) = std::env::var_os(phone::PROCESS_VAR).filter(|kind| !kind.is_empty()) {
        phone = phone.with_process(&kind.to_string_lossy())?;
    }
    let kept = workspace.cache.join("adb");
    match &args.word {
        Word::Push { package, model } => push::run(&phone, package, model.as_deref()),
        Word::Test { run, families } => results::test(&phone, run, families, &workspace, &kept),
        Word::Bench { run } => results::bench(&phone, run, &kept),
        Word::Logs { on: true, .. } => logs::switch(&phone, true),
        Word::Logs { off: true, .. } => logs::switch(&phone, false),
        Word::Logs { .. } => logs::fetch(&phone, &kept, |lines| logs::decode(&workspace, &kept, lines, deadline)),
        Word::Shell => phone.shell_session(),
    }
}

#[cfg(test)]
mod tests;
