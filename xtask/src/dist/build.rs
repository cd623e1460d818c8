//! The host side of a package: programs and the plug-in, built by cargo for a target.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
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

/// Names of cargo's targets with their places in the package.
const PRODUCTS: [(&str, &str); 3] = [
    ("hexloom", "bin/hexloom"),
    ("conformance", "bin/hexloom-conformance"),
    (PLUG_IN, "lib/libggml-hexloom.so"),
];
/// The library of the ggml back end.
const PLUG_IN: &str = "ggml_hexloom";
/// The package that holds it, where the workspace has it.
const PLUG_IN_PACKAGE: &str = "hexloom-ggml-backend";

/// The library that stands in for the driver, for tests; no package holds it.
pub(crate) const DRIVER_PACKAGE: &str = "hexloom-fake-cdsprpc";
const DRIVER: &str = "libcdsprpc.so";

/// Builds the stand-in for the driver library and gives its path; `None` where the workspace has none.
pub(crate) fn driver(workspace: &Workspace, target: Target, deadline: Instant) -> Result<Option<PathBuf>> {
    if !has_package(workspace, DRIVER_PACKAGE)? {
        return Ok(None);
    }
    let tools = target.tools(deadline)?;
    run(workspace, target, &tools, &["-p", DRIVER_PACKAGE, "--lib"], deadline)?;
    let path = workspace
        .target()
        .join("dist")
        .join(target.triple())
        .join("release")
        .join(DRIVER);
    match path.is_file() {
        true => Ok(Some(path)),
        false => bail!("cargo built {DRIVER_PACKAGE}, and there is no {}", path.display()),
    }
}

/// Builds everything for `target`. The standard library, where it must be built, is kept in cargo's folder for the target.
pub(crate) fn build(workspace: &Workspace, target: Target, deadline: Instant) -> Result<Vec<Product>> {
    let tools = target.tools(deadline)?;
    let has_plug_in = has_package(workspace, PLUG_IN_PACKAGE)?;
    let programs = [
        "-p",
        "hexloom-cli",
        "--bin",
        "hexloom",
        "-p",
        "hexloom-conformance",
        "--example",
        "conformance",
    ];
    let mut products = run(workspace, target, &tools, &programs, deadline)?;
    if has_plug_in {
        products.extend(run(
            workspace,
            target,
            &tools,
            &["-p", PLUG_IN_PACKAGE, "--lib"],
            deadline,
        )?);
    }
    let expected = if has_plug_in { 3 } else { 2 };
    if products.len() != expected {
        bail!("cargo built {products:?}; {expected} files were expected");
    }
    Ok(products)
}

fn has_package(workspace: &Workspace, name: &str) -> Result<bool> {
    Ok(workspace.packages("")?.iter().any(|package| package["name"] == name))
}

/// Runs cargo and gives what it has built; its progress, and what it waits for, goes to standard error.
fn run(workspace: &Workspace, target: Target, tools: &Tools, what: &[&str], deadline: Instant) -> Result<Vec<Product>> {
    let mut command = cargo(workspace, target, tools)?;
    command.args(what);
    eprintln!("building {} for {}", what.join(" "), target.triple());
    let mut products = Vec::new();
    let status = process::run_lines(&mut command, deadline, |line| match serde_json::from_str(line) {
        Ok(message) => products.extend(product(&message)),
        Err(_) => eprintln!("{line}"),
    })?;
    if !status.success() {
        bail!("building {} for {} failed: {status}", what.join(" "), target.name());
    }
    Ok(products)
}

fn cargo(workspace: &Workspace, target: Target, tools: &Tools) -> Result<Command> {
    let mut command = process::cargo();
    command
        .args([
            "build",
            "--release",
            "--locked",
            "--message-format=json-render-diagnostics",
        ])
        .args(["--target", target.triple(), "--target-dir"])
        .arg(workspace.target().join("dist"))
        .current_dir(&workspace.root)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(workspace, tools)?.join("\x1f"))
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    if let Some(rustc) = &tools.rustc {
        // Building the standard library is unstable; its source and the compiler are one package.
        command
            .args(["-Z", "build-std=std,panic_unwind"])
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
    let files = message["filenames"].as_array()?.iter().filter_map(Value::as_str);
    let is_wanted = |file: &&str| match name {
        PLUG_IN => file.ends_with(".so"),
        _ => message["executable"].as_str() == Some(file),
    };
    let built = PathBuf::from(files.into_iter().find(is_wanted)?);
    Some(Product { built, place })
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
}
