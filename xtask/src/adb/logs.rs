//! `adb logs`: the DSP's log by its driver, the kernel's lines about it, and the switch for the former.
//!
//! A process on the DSP logs what its mask allows; the mask stands in a file named after the host's program, beside the
//! device libraries. Part of what it logs are frames, whose texts are in the libraries' files with symbols: the example
//! `device_log` of `hexloom-emu` fills them in.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use super::phone::Phone;
use super::results::keep;
use crate::process;
use crate::workspace::Workspace;

/// Programs of a package that have a process on the DSP.
const PROGRAMS: [&str; 2] = ["hexloom", "hexloom-conformance"];
/// All levels, low to fatal.
const MASK: &str = "0x1f";
/// Where a frame begins in a line: `hexloom-frame ARCH BASE DIGITS`.
const FRAME: &str = "hexloom-frame ";
/// Words by which lines about DSPs are known.
const WORDS: [&str; 6] = ["adsprpc", "cdsprpc", "fastrpc", "cdsp", "adsp", "hexloom"];

/// Writes the masks, or takes them away.
pub(super) fn switch(phone: &Phone, on: bool) -> Result<ExitCode> {
    for program in PROGRAMS {
        let mask = format!("dsp/{program}.farf");
        match on {
            true => phone.must(&format!("echo {MASK} > {mask}"))?,
            false => phone.must(&format!("rm -f {mask}"))?,
        };
    }
    match on {
        true => println!("programs that start from now on log on the DSP; `cargo xtask adb logs` fetches it"),
        false => println!("programs that start from now on are silent on the DSP"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints and keeps the lines about DSPs, those with frames as `decode` gives them.
pub(super) fn fetch(phone: &Phone, kept: &Path, decode: impl Fn(&[String]) -> Result<Vec<String>>) -> Result<ExitCode> {
    let system = phone.run("logcat -d -v threadtime")?;
    // Only root may read the kernel's log on most phones.
    let kernel = phone.run("dmesg")?;
    let [system_lines, kernel_lines] = [&system, &kernel].map(|ran| about_dsps(&ran.lines));
    let system_lines = match system_lines.iter().any(|line| line.contains(FRAME)) {
        false => system_lines,
        true => decode(&system_lines).unwrap_or_else(|error| {
            println!("log frames stay as they are: {error:#}");
            system_lines
        }),
    };
    for line in system_lines.iter().chain(&kernel_lines) {
        println!("{line}");
    }
    if !kernel.success {
        println!("the kernel's log is closed here: {}", kernel.lines.join(" "));
    }
    let all = json!({"system": system_lines, "kernel": kernel_lines, "kernel_is_open": kernel.success});
    keep(kept, "logs.json", &all)?;
    Ok(ExitCode::SUCCESS)
}

/// The lines with their frames as text, by the decoder, which is built if need be. The libraries on the phone must be those
/// of this machine.
pub(super) fn decode(workspace: &Workspace, kept: &Path, lines: &[String], deadline: Instant) -> Result<Vec<String>> {
    fs::create_dir_all(kept).with_context(|| format!("cannot make {}", kept.display()))?;
    let file = kept.join("frames.log");
    fs::write(&file, lines.join("\n")).with_context(|| format!("cannot write {}", file.display()))?;
    let mut decoder = process::cargo();
    decoder
        .args([
            "run",
            "--quiet",
            "--profile",
            "test",
            "-p",
            "hexloom-emu",
            "--example",
            "device_log",
            "--",
        ])
        .arg(workspace.cache.join("firmware"))
        .arg(&file)
        .current_dir(&workspace.root);
    let mut decoded = Vec::new();
    let status = process::run_lines(&mut decoder, deadline, |line| decoded.push(line.to_owned()))?;
    fs::remove_file(&file)?;
    match status.success() {
        true => Ok(decoded),
        false => bail!("the decoder failed ({status}): {}", decoded.join("\n")),
    }
}

fn about_dsps(lines: &[String]) -> Vec<String> {
    let is_wanted = |line: &&String| {
        let line = line.to_lowercase();
        WORDS.iter().any(|word| line.contains(word))
    };
    lines.iter().filter(is_wanted).cloned().collect()
}
