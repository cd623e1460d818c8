//! The host side of a package: programs and the plug-in, built by cargo for a target, and the driver library's stand-in for
//! tests.
//!
//! cargo chooses the features of what packages share by the packages that it is told to build. They are always the same
//! here, so that nothing is built twice.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

use super::target::{Target, Tools};
use crate::process;
use crate::workspace::Workspace;

/// A file that cargo has built, with its place in the package.
#[derive(Debug, PartialEq)]
pub(crate) struct Product {
    pub(crate) built: PathBuf,
    pub(crate) place: &'static str,
}

/// Everything that one build gives.
pub(crate) struct Built {
    /// For the package.
    pub(crate) products: Vec<Product>,
    /// The library that stands in for the driver; no package holds it.
    pub(crate) driver: PathBuf,
}

/// What cargo is told to build.
pub(crate) const PACKAGES: [&str; 5] = [
    "hexloom-cli",
    "hexloom-conformance",
    "hexloom-ggml-backend",
    "hexloom-fastrpc",
    "hexloom-fake-cdsprpc",
];
/// Names of cargo's targets with their places in the package.
const PRODUCTS: [(&str, &str); 3] = [
    ("hexloom", "bin/hexloom"),
    ("conformance", "bin/hexloom-conformance"),
    (PLUG_IN, "lib/libggml-hexloom.so"),
];
/// The library of the ggml back end.
const PLUG_IN: &str = "ggml_hexloom";
/// The stand-in for the driver library.
const DRIVER: &str = "cdsprpc";

/// Builds everything for `target`. The standard library, where it must be built, is kept in cargo's folder for the target.
pub(crate) fn build(workspace: &Workspace, target: Target, deadline: Instant) -> Result<Built> {
    let what = ["build", "--bin", "hexloom", "--example", "conformance", "--lib"];
    let (mut products, mut driver) = (Vec::new(), None);
    run(workspace, target, &what, deadline, |message| {
        products.extend(product(message));
        driver = library(message, DRIVER).or(driver.take());
    })?;
    if products.len() != PRODUCTS.len() {
        bail!("cargo built {products:?}; {} files were expected", PRODUCTS.len());
    }
    let driver = driver.context("cargo built no stand-in for the driver library")?;
    Ok(Built { products, driver })
}

/// Builds test programs of the packages, each named by the folder of its package and its own name, by one call of cargo.
pub(crate) fn tests<const N: usize>(
    workspace: &Workspace,
    target: Target,
    wanted: [(&str, &str); N],
    deadline: Instant,
) -> Result<[PathBuf; N]> {
    let mut what = vec!["test", "--no-run"];
    what.extend(wanted.iter().flat_map(|(_, name)| ["--test", name]));
    let mut programs = vec![None; N];
    run(workspace, target, &what, deadline, |message| {
        for ((folder, name), program) in wanted.iter().zip(&mut programs) {
            *program = test(message, &workspace.root.join(folder), name).or(program.take());
        }
    })?;
    let missing = wanted.iter().zip(&programs).find(|(_, program)| program.is_none());
    if let Some(((folder, name), _)) = missing {
        bail!("cargo built no test {name} of {folder}");
    }
    let programs: Vec<PathBuf> = programs.into_iter().flatten().collect();
    programs.try_into().map_err(|_| anyhow!("cargo built too few tests"))
}

/// Runs cargo, whose words are `what`, and hands over its messages. Its progress, and what it waits for, goes to standard
/// error.
fn run(
    workspace: &Workspace,
    target: Target,
    what: &[&str],
    deadline: Instant,
    mut on_message: impl FnMut(&Value),
) -> Result<()> {
    let mut command = cargo(workspace, target, &target.tools(deadline)?, what)?;
    eprintln!("cargo {} for {}", what.join(" "), target.triple());
    let status = process::run_lines(&mut command, deadline, |line| match serde_json::from_str(line) {
        Ok(message) => on_message(&message),
        Err(_) => eprintln!("{line}"),
    })?;
    match status.success() {
        true => Ok(()),
        false => bail!("cargo {} for {} failed: {status}", what.join(" "), target.name()),
    }
}

fn cargo(workspace: &Workspace, target: Target, tools: &Tools, what: &[&str]) -> Result<Command> {
    let mut command = process::cargo();
    command
        .args(what)
        .args(PACKAGES.iter().flat_map(|package| ["-p", package]))
        .args([
            "--release",
            "--locked",
            "--no-default-features",
            "--message-format=json-render-diagnostics",
        ])
        .args(target.features())
        .args(["--target", target.triple(), "--target-dir"])
        .arg(workspace.target().join("dist"))
        .current_dir(&workspace.root)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(workspace, tools)?.join("\x1f"))
        // It would be stripped.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    if let Some(rustc) = &tools.rustc {
        // Building the standard library is unstable; its source and the compiler are one package. What is built depends on
        // the whole list, so that programs take the test runner's part, too.
        command
            .args(["-Z", "build-std=std,panic_unwind,test"])
            .env("RUSTC", rustc)
            .env("RUSTC_BOOTSTRAP", "1");
    }
    Ok(command)
}

/// Flags for the compiler. Paths of this machine are taken out of panic messages, so that what comes out does not depend on
/// where it was built.
fn flags(workspace: &Workspace, tools: &Tools) -> Result<Vec<String>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let rustc = tools.rustc.as_deref().unwrap_or(Path::new("rustc"));
    let mut print = Command::new(rustc);
    let sysroot = process::output(print.args(["--print", "sysroot"]).current_dir(&workspace.root))?;
    let folders = [
        (workspace.root.clone(), "hexloom"),
        (home.context("neither CARGO_HOME nor HOME is set")?, "cargo"),
        (PathBuf::from(sysroot.trim()), "rust"),
    ];
    let mut flags = vec!["-Cstrip=symbols".to_owned()];
    let remap = |(from, to): (PathBuf, &str)| format!("--remap-path-prefix={}=/{to}", from.display());
    flags.extend(folders.map(remap));
    flags.extend(
        tools
            .linker
            .iter()
            .map(|linker| format!("-Clinker={}", linker.display())),
    );
    Ok(flags)
}

/// What a message of cargo says about one of the products.
fn product(message: &Value) -> Option<Product> {
    if message["reason"] != "compiler-artifact" {
        return None;
    }
    let name = message["target"]["name"].as_str()?;
    let (_, place) = *PRODUCTS.iter().find(|(product, _)| *product == name)?;
    let built = match name {
        PLUG_IN => library(message, name),
        _ => message["executable"].as_str().map(PathBuf::from),
    }?;
    Some(Product { built, place })
}

/// The program that a message says was built of the test `name` of the package in `folder`. Packages have tests of one name.
fn test(message: &Value, folder: &Path, name: &str) -> Option<PathBuf> {
    let manifest = message["manifest_path"].as_str()?;
    let is_it = message["target"]["name"] == name && Path::new(manifest) == folder.join("Cargo.toml");
    message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
}

/// The shared library that a message says was built of the target `name`.
fn library(message: &Value, name: &str) -> Option<PathBuf> {
    if message["reason"] != "compiler-artifact" || message["target"]["name"] != name {
        return None;
    }
    let mut files = message["filenames"].as_array()?.iter().filter_map(Value::as_str);
    files.find(|file| file.ends_with(".so")).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cargo_name_programs_and_the_plug_in() {
        let artifact = |name: &str, files: &[&str], executable: Option<&str>| {
            product(&serde_json::json!({
                "reason": "compiler-artifact",
                "target": {"name": name},
                "filenames": files,
                "executable": executable,
            }))
        };
        let hexloom = artifact("hexloom", &["/t/hexloom"], Some("/t/hexloom")).unwrap();
        assert_eq!((hexloom.built, hexloom.place), ("/t/hexloom".into(), "bin/hexloom"));
        // The library of the same name.
        assert_eq!(artifact("hexloom", &["/t/libhexloom.rlib"], None), None);
        let plug_in = artifact(PLUG_IN, &["/t/libggml_hexloom.rlib", "/t/libggml_hexloom.so"], None).unwrap();
        assert_eq!(
            (plug_in.built, plug_in.place),
            ("/t/libggml_hexloom.so".into(), "lib/libggml-hexloom.so")
        );
        assert_eq!(artifact("serde", &["/t/libserde.rlib"], None), None);
        assert_eq!(product(&serde_json::json!({"reason": "build-finished"})), None);
    }

    #[test]
    fn tests_of_one_name_are_told_apart_by_their_package() {
        let built = |folder: &str, executable: Option<&str>| {
            let message = serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": format!("/w/{folder}/Cargo.toml"),
                "target": {"name": "fastrpc"},
                "executable": executable,
            });
            test(&message, Path::new("/w/host/conformance"), "fastrpc")
        };
        assert_eq!(built("host/conformance", Some("/t/a")), Some("/t/a".into()));
        assert_eq!(built("host/cli", Some("/t/b")), None);
        assert_eq!(built("host/conformance", None), None);
    }
}
