//! The whole way of a package to a phone, by the command line of xtask itself: `adb` is the stand-in, which runs the pushed
//! programs under the emulator.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Machine;
use crate::steps::Context;
use crate::workspace::CACHE_VAR;
use crate::{model, process};

/// Pushes the package and the model, runs the case list and scores the model, fetches the logs.
pub(super) fn walk(context: &Context, machine: &Machine, package: &Path) -> Result<()> {
    let phone = std::env::temp_dir().join(format!("hexloom-phone-{}", std::process::id()));
    let stand_in = context.workspace.root.join("toolchains/adb/stand-in/adb");
    let adb = |words: &[&str]| {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("adb")
            .args(["--folder", &phone.to_string_lossy()])
            .args(words)
            .current_dir(&context.workspace.root)
            .env("ADB", &stand_in)
            .env("HEXLOOM_STAND_IN_RUNNER", machine.runner())
            .env("HEXLOOM_STAND_IN_DRIVER", &machine.driver)
            .env(CACHE_VAR, &context.workspace.cache);
        process::run(&mut command, context.deadline)
    };
    let model = model::ensure(&context.workspace)?;
    let model = model.to_string_lossy();
    let done = adb(&["push", &package.to_string_lossy(), "--model", &model])
        .and_then(|()| adb(&["test"]))
        .and_then(|()| adb(&["logs"]));
    // Whatever happened, the phone's folder goes.
    let _ = fs::remove_dir_all(&phone);
    done.context("the package on the stand-in for a phone")
}
