//! `cargo xtask peer-test`: programs that we did not write, on `libggml-hexloom.so`.
//!
//! ggml's operator test runs a fixed list of cases, chosen by a seed from everything that the back end claims; llama.cpp
//! writes text and whisper.cpp hears words that must be their CPU back end's. Without the programs (no Debian mirror,
//! another API version) everything is skipped, loudly and counted.

mod calls;
mod operators;
mod programs;
mod speech;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::peer::{self, Peer};
use crate::steps::{self, Context, Outcome};
use crate::workspace::Workspace;
use crate::{firmware, model, process};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run every case that is claimed, and print the table by op.
    #[arg(long)]
    all: bool,
    /// With `--all`: only these ops, as the operator test names them, separated by commas.
    #[arg(long, requires = "all")]
    ops: Option<String>,
    /// With `--all`: write the table to docs/ops.md.
    #[arg(long, requires = "all", conflicts_with = "ops")]
    write: bool,
    /// Run whisper.cpp alone.
    #[arg(long, conflicts_with = "all")]
    speech: bool,
}

/// A program of the peer with our library in it.
pub(crate) struct Loaded<'a> {
    pub(crate) peer: &'a Peer,
    library: PathBuf,
    /// What its devices run on, as the library takes it.
    devices: &'static str,
    /// A further variable of its environment.
    var: Option<(&'static str, PathBuf)>,
}

impl Loaded<'_> {
    /// Makes a program load the library.
    pub(crate) fn with(&self, mut command: Command) -> Command {
        command
            .env("GGML_BACKEND_PATH", &self.library)
            .env("HEXLOOM_DEVICES", self.devices)
            .envs(self.var.clone());
        command
    }

    /// The same library on other devices.
    pub(crate) fn on(&self, devices: &'static str) -> Self {
        Self {
            peer: self.peer,
            library: self.library.clone(),
            devices,
            var: self.var.clone(),
        }
    }

    /// The same with a variable that names a file.
    fn with_var(&self, name: &'static str, path: &Path) -> Self {
        Self {
            var: Some((name, path.to_path_buf())),
            ..self.on(self.devices)
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.speech {
        return steps::run("peer-test speech", steps::DEADLINE_S);
    }
    if !args.all {
        return steps::run("peer-test", steps::DEADLINE_S);
    }
    let workspace = Workspace::find()?;
    let peer = match peer::ensure(&workspace)? {
        Ok(peer) => peer,
        Err(why) => {
            println!("SKIPPED: {why}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let loaded = load(&workspace, &peer)?;
    let table = operators::run_all(&loaded, &workspace, args.ops.as_deref())?;
    println!("{table}");
    table.failures().for_each(|failed| println!("FAILED: {failed}"));
    if args.write {
        let path = workspace.root.join("docs/ops.md");
        let of = of(&workspace, &peer)?;
        fs::write(&path, table.document(&of)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::from(u8::from(table.failures().next().is_some())))
}

/// What was tested with what, and when, for the head of the table.
fn of(workspace: &Workspace, peer: &Peer) -> Result<String> {
    let git = |args: &[&str]| process::output(Command::new("git").args(args).current_dir(&workspace.root));
    let date = git(&["log", "-1", "--format=%cs"])?;
    Ok(format!(
        "ggml's operator test on the simulator: hexloom {} of {}, {}. Made by `cargo xtask peer-test --all --write`.",
        env!("CARGO_PKG_VERSION"),
        date.trim(),
        peer.version
    ))
}

pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let workspace = &context.workspace;
    let peer = match peer::ensure(workspace)? {
        Ok(peer) => peer,
        Err(why) => return Ok(Outcome::skip(why)),
    };
    eprintln!("{}", peer.version);
    let loaded = load(workspace, &peer)?;
    if let Some(refusal) = operators::refusal(&loaded)? {
        if !peer.pinned {
            return Ok(Outcome::skip(format!("{}: {refusal}", peer.version)));
        }
        return Ok(Outcome::from_findings(vec![refusal]));
    }
    let mut outcome = operators::run_list(&loaded, &operators::SIMULATED, context.deadline)?;
    outcome.add(match firmware::emulator_image(workspace) {
        Some(_) => operators::run_list(&loaded.on("emu"), &operators::EMULATED, context.deadline)?,
        None => Outcome::skip("there is no emulator image, so no operator was tested on it".to_owned()),
    });
    outcome.add(calls::run(&loaded, workspace, context.deadline)?);
    outcome.add(programs::run(&loaded, workspace, context.deadline)?);
    Ok(outcome)
}

/// The same library in whisper.cpp, which has packages and a model of its own.
pub(crate) fn speech_step(context: &Context) -> Result<Outcome> {
    let workspace = &context.workspace;
    let peer = match peer::ensure_speech(workspace)? {
        Ok(peer) => peer,
        Err(why) => return Ok(Outcome::skip(why)),
    };
    eprintln!("{}", peer.version);
    let model = match model::ensure_named(workspace, model::Name::WhisperTiny)? {
        Ok(model) => model,
        Err(why) => return Ok(Outcome::skip(why)),
    };
    speech::run(&load(workspace, &peer)?, &model, context.deadline)
}

/// Builds the library and gives it the name that ggml's own search knows.
pub(crate) fn load<'a>(workspace: &Workspace, peer: &'a Peer) -> Result<Loaded<'a>> {
    let mut build = process::cargo();
    build
        .args([
            "build",
            "--release",
            "--package=hexloom-ggml-backend",
            "--message-format=json",
        ])
        .current_dir(&workspace.root);
    let messages = process::output(&mut build)?;
    let built = built_library(&messages).context("cargo named no libggml_hexloom.so")?;
    let library = built.with_file_name("libggml-hexloom.so");
    fs::copy(&built, &library).with_context(|| format!("cannot write {}", library.display()))?;
    Ok(Loaded {
        peer,
        library,
        devices: "sim",
        var: None,
    })
}

/// The library's path in cargo's messages.
fn built_library(messages: &str) -> Option<PathBuf> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let files = messages.flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default());
    let paths = files.filter_map(|file| Some(Path::new(file.as_str()?).to_path_buf()));
    let mut found = paths.filter(|path| path.ends_with("libggml_hexloom.so"));
    found.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_in_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","filenames":["/t/liba.rlib"]}
not json
{"reason":"compiler-artifact","filenames":["/t/libggml_hexloom.rlib","/t/libggml_hexloom.so"]}"#;
        assert_eq!(built_library(messages), Some("/t/libggml_hexloom.so".into()));
        assert_eq!(built_library("{}"), None);
    }
}
