//! `adb logs`: the DSP's log by its driver, the kernel's lines about it, and the switch for the former.
//!
//! A process on the DSP logs what its mask allows; the mask stands in a file named after the host's program, beside the
//! device libraries.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::phone::Phone;
use super::results::keep;

/// Programs of a package that have a process on the DSP.
const PROGRAMS: [&str; 2] = ["hexloom", "hexloom-conformance"];
/// All levels, low to fatal.
const MASK: &str = "0x1f";
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

/// Prints and keeps the lines about DSPs.
pub(super) fn fetch(phone: &Phone, kept: &Path) -> Result<ExitCode> {
    let system = phone.run("logcat -d -v threadtime")?;
    // Only root may read the kernel's log on most phones.
    let kernel = phone.run("dmesg")?;
    let [system_lines, kernel_lines] = [&system, &kernel].map(|ran| about_dsps(&ran.lines));
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

fn about_dsps(lines: &[String]) -> Vec<&str> {
    let is_wanted = |line: &&String| {
        let line = line.to_lowercase();
        WORDS.iter().any(|word| line.contains(word))
    };
    lines.iter().filter(is_wanted).map(String::as_str).collect()
}
