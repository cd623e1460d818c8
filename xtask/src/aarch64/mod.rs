//! `cargo xtask aarch64`: the programs of phones and Snapdragon laptops, run here under `qemu-aarch64`.
//!
//! A package for linux-arm64 is made as `dist` makes it. Its program must give the logits of SmolLM2 that the program of
//! this machine gives, bit for bit ([`logits`]); the tests of the FastRPC transport pass ([`calls`]); then `cargo xtask adb`
//! pushes the package to the stand-in for a phone and runs case list and model there ([`phone`]), through the FastRPC
//! transport over the stand-in for the driver library.

mod calls;
mod logits;
mod phone;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::dist;
use crate::dist::target::{ARM64_SYSROOT, Target};
use crate::steps::{Context, Outcome};

/// What the programs run on.
struct Machine {
    target: Target,
    /// `None` where this machine itself is one.
    emulator: Option<PathBuf>,
    /// Folder of the stand-in for the driver library.
    driver: PathBuf,
}

/// Builds, runs, compares. Tools that cannot be had here are a skip.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let (workspace, deadline) = (&context.workspace, context.deadline);
    let target = Target::LinuxArm64;
    let emulator = match target.tools(deadline).and_then(|_| target.emulator(deadline)) {
        Ok(emulator) => emulator,
        Err(missing) => return Ok(Outcome::skip(format!("no programs for 64-bit ARM: {missing:#}"))),
    };
    // The libraries do not run here: any that are there already do.
    let libraries = workspace.cache.join("firmware");
    let libraries = libraries.join("libhexloom-v81.so").exists().then_some(libraries);
    let out = workspace.cache.join("dist");
    let (package, driver) = part("the package", || {
        dist::make(workspace, target, libraries.as_deref(), &out, deadline)
    })?;
    let machine = Machine {
        target,
        emulator,
        driver: driver
            .parent()
            .context("the driver library is in no folder")?
            .to_owned(),
    };
    let program = package.folder.join("bin/hexloom");
    let mut outcome = part("logits", || logits::compare(context, &machine, &program))?;
    outcome.add(part("tests of the transport", || calls::run(context, &machine))?);
    part("a phone's way", || phone::walk(context, &machine, &package.folder))?;
    outcome.add(Outcome::pass());
    Ok(outcome)
}

/// Does a part of the step and tells how long it took.
fn part<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("-- {what}");
    let begun = Instant::now();
    let done = work();
    eprintln!("-- {what}: {:.1} s", begun.elapsed().as_secs_f64());
    done
}

impl Machine {
    /// A program of the machine, to be run here.
    fn command(&self, program: &Path) -> Command {
        match &self.emulator {
            None => Command::new(program),
            Some(emulator) => {
                let mut command = Command::new(emulator);
                command.args(["-L", ARM64_SYSROOT]).arg(program);
                command
            }
        }
    }

    /// The words that stand before a program.
    fn runner(&self) -> String {
        let emulator = self.emulator.as_ref();
        emulator.map_or_else(String::new, |emulator| {
            format!("{} -L {ARM64_SYSROOT}", emulator.display())
        })
    }
}
