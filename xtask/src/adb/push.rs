//! `adb push`: the files of a package that the phone lacks or has otherwise, checked when they are there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use super::phone::Phone;
use crate::dist::package::{File, MANIFEST, Package, describe};

pub(super) fn run(phone: &Phone, folder: &Path, model: Option<&Path>) -> Result<ExitCode> {
    let package = Package::open(folder)?;
    phone.make_folder("models")?;
    fits(phone, &package.manifest.target)?;
    let mut wanted: Vec<(std::path::PathBuf, File)> = Vec::new();
    for file in &package.manifest.files {
        wanted.push((package.folder.join(&file.path), file.clone()));
    }
    let manifest = package.folder.join(MANIFEST);
    wanted.push((manifest.clone(), describe(&manifest, MANIFEST.to_owned())?));
    if let Some(model) = model {
        let name = model
            .file_name()
            .context("the model's path has no name")?
            .to_string_lossy();
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
            bail!("{name}: rename the model to letters, digits, `.`, `_` and `-`");
        }
        wanted.push((model.to_owned(), describe(model, format!("models/{name}"))?));
    }
    let there = sums(phone, &wanted)?;
    let is_there = |file: &File| there.get(&file.path) == Some(&file.sha256);
    let missing: Vec<_> = wanted.iter().filter(|(_, file)| !is_there(file)).collect();
    for (from, file) in &missing {
        if let Some((parent, _)) = file.path.rsplit_once('/') {
            phone.make_folder(parent)?;
        }
        println!("pushing {} ({} bytes)", file.path, fs::metadata(from)?.len());
        phone.push(from, &file.path)?;
    }
    for (_, file) in wanted.iter().filter(|(_, file)| file.executable) {
        phone.must(&format!("chmod 755 {}", file.path))?;
    }
    let there = sums(phone, &wanted)?;
    if let Some((_, file)) = wanted
        .iter()
        .find(|(_, file)| there.get(&file.path) != Some(&file.sha256))
    {
        bail!(
            "{} has arrived damaged: is there room on the phone? `adb shell df {}`",
            file.path,
            phone.folder()
        );
    }
    println!(
        "{}: {} files, {} of them sent",
        phone.folder(),
        wanted.len(),
        missing.len()
    );
    Ok(ExitCode::SUCCESS)
}

/// Whether the phone runs programs of that target.
fn fits(phone: &Phone, target: &str) -> Result<()> {
    let release = phone
        .must("getprop ro.build.version.release 2>/dev/null || true")?
        .join("");
    let is_android = !release.trim().is_empty();
    match (is_android, target) {
        (true, "android") | (false, "linux-arm64") => Ok(()),
        (true, _) => bail!(
            "the phone runs Android {}, and the package is for {target}; make one with `cargo xtask dist --target android`",
            release.trim()
        ),
        (false, _) => bail!(
            "the machine behind adb is no Android, and the package is for {target}; make one with `cargo xtask dist --target linux-arm64`"
        ),
    }
}

/// SHA-256 of the files that are on the phone, by path.
fn sums(phone: &Phone, wanted: &[(std::path::PathBuf, File)]) -> Result<BTreeMap<String, String>> {
    let paths: Vec<&str> = wanted.iter().map(|(_, file)| file.path.as_str()).collect();
    // Files that are not there are no failure here.
    let lines = phone.must(&format!("sha256sum {} 2>/dev/null || true", paths.join(" ")))?;
    let pair = |line: &String| {
        let (sum, path) = line.split_once(char::is_whitespace)?;
        Some((path.trim_start().to_owned(), sum.to_owned()))
    };
    Ok(lines.iter().filter_map(pair).collect())
}
