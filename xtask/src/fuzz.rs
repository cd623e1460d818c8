//! `cargo xtask fuzz`: cargo-fuzz on the parsers of foreign bytes.
//!
//! The committed corpus is read only; what the fuzzer finds goes to the cache folder.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process;
use crate::workspace::Workspace;

const FOLDER: &str = "shared-abi/fuzz";
/// Time to build a target beside the time to run it.
const BUILD: Duration = Duration::from_secs(600);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One target (default: each in turn).
    target: Option<String>,
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    if !workspace.root.join(FOLDER).join("Cargo.toml").exists() {
        bail!("there are no fuzz targets: {FOLDER}/Cargo.toml does not exist");
    }
    if !process::works(Command::new("cargo").arg("+nightly")) {
        bail!("fuzzing needs a nightly toolchain; install it with `rustup toolchain install nightly`");
    }
    if !process::works(Command::new("cargo").arg("fuzz")) {
        eprintln!("installing cargo-fuzz (once)");
        process::run(
            process::cargo().args(["install", "cargo-fuzz", "--locked"]),
            Instant::now() + BUILD,
        )?;
    }
    let listed = process::output(fuzz(&workspace).args(["list", "--fuzz-dir", FOLDER]))?;
    let targets = pick(&listed, args.target.as_deref())?;
    for target in targets {
        let found = workspace.cache.join("fuzz").join(target);
        std::fs::create_dir_all(&found)?;
        let mut command = fuzz(&workspace);
        command.args(["run", "--fuzz-dir", FOLDER, target]).arg(found);
        let corpus = workspace.root.join(FOLDER).join("corpus").join(target);
        if corpus.is_dir() {
            command.arg(corpus);
        }
        command.args(["--", &format!("-max_total_time={}", args.seconds)]);
        eprintln!("\n== fuzz {target}, {} s", args.seconds);
        let limit = Duration::from_secs(args.seconds) + BUILD;
        process::run(&mut command, Instant::now() + limit)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// By rustup's cargo: the one that runs us is bound to its own toolchain.
fn fuzz(workspace: &Workspace) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(["+nightly", "fuzz"])
        .env_remove("RUSTUP_TOOLCHAIN")
        .current_dir(&workspace.root);
    command
}

fn pick<'a>(listed: &'a str, wanted: Option<&str>) -> Result<Vec<&'a str>> {
    let all: Vec<&str> = listed.split_whitespace().collect();
    let Some(wanted) = wanted else {
        return Ok(all);
    };
    match all.iter().find(|&&target| target == wanted) {
        Some(&target) => Ok(vec![target]),
        None => bail!("no fuzz target `{wanted}`; there are: {}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_picked_by_name() {
        assert_eq!(pick("batch\nstart\n", None).unwrap(), ["batch", "start"]);
        assert_eq!(pick("batch\nstart\n", Some("start")).unwrap(), ["start"]);
        let error = pick("batch\nstart\n", Some("star")).unwrap_err().to_string();
        assert!(error.contains("batch, start"), "{error}");
    }
}
