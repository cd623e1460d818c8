//! The device library by the vendor's SDK: its IDL compiler makes the dispatcher, its compiler driver compiles that and links.
//!
//! Rust's part is the same static library as in the public route, built without a dispatcher of its own. What comes out is
//! held against the same rules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::image::{Built, ImageFacts};
use super::library::{Linked, Lists, version_script};
use crate::process;
use crate::sdk::Sdk;

/// The interface, and what its files are called.
const IDL: &str = "hexloom.idl";
const SKEL: &str = "hexloom_skel";

/// Makes the library in a folder beside the static library. `idl` is the folder of the interface.
pub(crate) fn link(
    sdk: &Sdk,
    idl: &Path,
    lists: &Lists,
    built: &Built,
    facts: &ImageFacts,
    deadline: Instant,
) -> Result<Linked> {
    let work = built.file.with_extension("sdk");
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let versions = work.join("versions.map");
    fs::write(&versions, version_script(lists))?;
    let (qaic, clang) = (sdk.qaic()?, sdk.clang()?);
    process::run(&mut interface(sdk, &qaic, idl, &work), deadline)?;
    let object = work.join(SKEL).with_extension("o");
    process::run(&mut compile(sdk, &clang, facts, &work, &object), deadline)?;
    let one = |strip: bool| {
        let output = work.join(&facts.image);
        let mut command = library(&clang, facts, lists, built, &versions, strip);
        command.arg(&object).arg(&built.file).arg("-o").arg(&output);
        process::run(&mut command, deadline)?;
        fs::read(&output).with_context(|| format!("cannot read {}", output.display()))
    };
    Ok(Linked {
        with_symbols: one(false)?,
        stripped: one(true)?,
    })
}

fn interface(sdk: &Sdk, qaic: &Path, idl: &Path, work: &Path) -> Command {
    let mut command = Command::new(qaic);
    command.args(["-mdll", "-o"]).arg(work);
    for folder in sdk.includes() {
        command.arg("-I").arg(folder);
    }
    command.arg(idl.join(IDL));
    command
}

fn compile(sdk: &Sdk, clang: &Path, facts: &ImageFacts, work: &Path, object: &Path) -> Command {
    let mut command = Command::new(clang);
    command.args(machine(facts)).args(["-O2", "-Wall", "-I"]).arg(work);
    for folder in sdk.includes() {
        command.arg("-I").arg(folder);
    }
    command
        .arg("-c")
        .arg(work.join(SKEL).with_extension("c"))
        .arg("-o")
        .arg(object);
    command
}

/// The link, without inputs and output. The compiler driver adds what runs before and behind it, and the C library.
fn library(clang: &Path, facts: &ImageFacts, lists: &Lists, built: &Built, versions: &Path, strip: bool) -> Command {
    let mut command = Command::new(clang);
    let linker = |words: &[&str]| format!("-Wl,{}", words.join(","));
    let path = |option: &str, path: &Path| linker(&[option, &path.to_string_lossy()]);
    command
        .args(machine(facts))
        .args(["-shared", "-Wl,-Bsymbolic", "-Wl,--gc-sections"]);
    command.arg(linker(&["-soname", &facts.image]));
    command.args([linker(&["--hash-style=sysv"]), linker(&["-z", "max-page-size=4096"])]);
    command.args([linker(&["-z", "norelro"]), linker(&["-z", "now"])]);
    command.args([
        path("-T", &lists.script),
        path("-T", &built.log_table),
        path("--version-script", versions),
    ]);
    command.args(lists.exports.iter().map(|name| linker(&["-u", name])));
    if strip {
        command.arg(linker(&["--strip-all"]));
    }
    command
}

/// Options of every call of the compiler driver.
fn machine(facts: &ImageFacts) -> [String; 3] {
    // Nothing is addressed by the global pointer in a library.
    [format!("-m{}", facts.arch()), "-G0".to_owned(), "-fpic".to_owned()]
}

/// Where the repository keeps the interface.
pub(crate) fn idl_folder(root: &Path) -> PathBuf {
    root.join("toolchains/sdk")
}

#[cfg(test)]
mod tests;
