//! Runs the generator: once for the DSP's side, twice for the host's, whose structures differ with the size of pointers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use bindgen::{Builder, EnumVariation, Formatter, RustEdition, RustTarget};

use super::split::{self, Parts};
use crate::process;
use crate::workspace::Workspace;

const FOLDER: &str = "host/hexagon-sys";
/// What stands in for the SDK where there is none.
const STAND_IN: &str = "toolchains/sdk/stand-in";
/// Where the SDK keeps its headers for the host.
const SDK_FOLDERS: &[&str] = &["incs", "incs/stddef", "ipc/fastrpc/incs", "ipc/fastrpc/rpcmem/inc"];
/// What is included there in place of our headers.
const SDK_HEADERS: &str =
    "#include \"AEEStdErr.h\"\n#include \"dspqueue.h\"\n#include \"remote.h\"\n#include \"rpcmem.h\"\n";
/// Headers of a C library, as far as headers of the SDK need them.
const C_LIBRARY: [(&str, &str); 5] = [
    (
        "stdint.h",
        "#pragma once\ntypedef __INT8_TYPE__ int8_t;\ntypedef __UINT8_TYPE__ uint8_t;\ntypedef __INT16_TYPE__ int16_t;\n\
         typedef __UINT16_TYPE__ uint16_t;\ntypedef __INT32_TYPE__ int32_t;\ntypedef __UINT32_TYPE__ uint32_t;\n\
         typedef __INT64_TYPE__ int64_t;\ntypedef __UINT64_TYPE__ uint64_t;\ntypedef __INTPTR_TYPE__ intptr_t;\n\
         typedef __UINTPTR_TYPE__ uintptr_t;\n",
    ),
    (
        "stddef.h",
        "#pragma once\ntypedef __SIZE_TYPE__ size_t;\n#define NULL ((void *)0)\n",
    ),
    (
        "stdbool.h",
        "#pragma once\n#define bool _Bool\n#define true 1\n#define false 0\n",
    ),
    ("stdlib.h", "#pragma once\n#include <stddef.h>\n"),
    ("sys/types.h", "#pragma once\n#include <stddef.h>\n"),
];
/// A target of each size of pointer whose C compilers agree with all others of hexloom's on layouts.
const TARGETS: [&str; 2] = ["aarch64-linux-android", "armv7-linux-androideabi"];

pub(super) fn run(workspace: &Workspace, check: bool) -> Result<ExitCode> {
    let folder = workspace.root.join(FOLDER);
    let header = folder.join("include/host.h");
    let ours = Host::from_headers(&header, &[], ".*/include/host/.*")?.same_for_both(&header)?;
    let sdk = std::env::var_os("HEXAGON_SDK_ROOT").filter(|root| !root.is_empty());
    let sdk = sdk
        .map(|root| Host::from_sdk(workspace, Path::new(&root), &ours))
        .transpose()?;
    let (source, host) = match (&sdk, check) {
        (Some(sdk), false) => ("the SDK's headers", sdk),
        _ => ("`include/host.h`; edit the headers, not this file", &ours),
    };
    if let (Some(sdk), true) = (&sdk, check) {
        agree(&ours, sdk)?;
    }
    if check {
        let root = workspace.root.join(STAND_IN);
        compile(&Host::from_sdk(workspace, &root, &ours)?).context("what the stand-in for the SDK gives")?;
    }
    // What does not compile replaces nothing.
    compile(host)?;
    let mut files = vec![("src/dsp.rs", dsp(&folder)?)];
    files.extend(host.files(source));
    for (name, text) in files {
        put(&folder.join(name), name, &text, check)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Holds our headers against the SDK's.
fn agree(ours: &Host, sdk: &Host) -> Result<()> {
    let pairs = ours.parts.iter().zip(&sdk.parts);
    let faults: Vec<String> = pairs.flat_map(|(ours, sdk)| ours.faults(sdk)).collect();
    if !faults.is_empty() {
        bail!(
            "{FOLDER}/include/host differs from the SDK's headers:\n  {}",
            faults.join("\n  ")
        );
    }
    println!("include/host agrees with the SDK's headers");
    Ok(())
}

/// Compiles declarations and layouts as the crate does, for this machine.
fn compile(host: &Host) -> Result<()> {
    const CRATE: &str = "#![no_std]\n#![allow(warnings)]\npub mod host;\n\
                         #[cfg(not(target_arch = \"x86\"))]\n\
                         #[cfg_attr(target_pointer_width = \"64\", path = \"host/layout64.rs\")]\n\
                         #[cfg_attr(target_pointer_width = \"32\", path = \"host/layout32.rs\")]\nmod host_layout;\n";
    let folder = std::env::temp_dir().join(format!("hexloom-declarations-{}", std::process::id()));
    fs::create_dir_all(folder.join("src/host"))?;
    fs::write(folder.join("src/lib.rs"), CRATE)?;
    for (name, text) in host.files("headers") {
        fs::write(folder.join(name), text)?;
    }
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--crate-name",
            "declarations",
            "--emit",
            "metadata",
            "-o",
        ])
        .arg(folder.join("declarations.rmeta"))
        .arg(folder.join("src/lib.rs"));
    let compiled = process::output(&mut rustc).context("the declarations do not compile");
    fs::remove_dir_all(&folder)?;
    compiled.map(drop)
}

/// The host's declarations for both sizes of pointer.
struct Host {
    parts: [Parts; 2],
}

impl Host {
    fn from_headers(header: &Path, folders: &[PathBuf], files: &str) -> Result<Self> {
        let of = |target| {
            let builder = builder().header(header.display().to_string());
            let builder = builder.clang_args(folders.iter().map(|folder| format!("-I{}", folder.display())));
            let text = builder
                .clang_arg(format!("--target={target}"))
                .allowlist_file(files)
                .generate()?
                .to_string();
            Ok::<_, anyhow::Error>(split::parts(&text))
        };
        let parts = [of(TARGETS[0])?, of(TARGETS[1])?];
        Ok(Self { parts })
    }

    /// One file of declarations serves both sizes of pointer.
    fn same_for_both(self, headers: &Path) -> Result<Self> {
        if self.parts[0].declarations != self.parts[1].declarations {
            bail!("{}: declarations differ with the size of pointers", headers.display());
        }
        Ok(self)
    }

    /// The same declarations from the SDK: of its headers only what ours have and what that refers to, and from ours what
    /// the SDK's lack, because versions differ in names and calls.
    fn from_sdk(workspace: &Workspace, root: &Path, ours: &Self) -> Result<Self> {
        let mut folders: Vec<PathBuf> = SDK_FOLDERS.iter().map(|folder| root.join(folder)).collect();
        if !folders.iter().any(|folder| folder.join("remote.h").is_file()) {
            bail!("HEXAGON_SDK_ROOT is {}, which has no incs/remote.h", root.display());
        }
        // What the SDK's headers take from a C library are plain types; that of this machine may be no match for the targets.
        let cache = workspace.cache.join("sdk-headers");
        fs::create_dir_all(cache.join("sys"))?;
        for (name, text) in C_LIBRARY.into_iter().chain([("host.h", SDK_HEADERS)]) {
            fs::write(cache.join(name), text).with_context(|| format!("cannot write {}", cache.display()))?;
        }
        folders.insert(0, cache.clone());
        let header = cache.join("host.h");
        let mut all = Self::from_headers(&header, &folders, ".*")?;
        let mut lacking = String::new();
        for (parts, ours) in all.parts.iter_mut().zip(&ours.parts) {
            parts.keep(&ours.names());
            let missing: Vec<String> = parts.fill(ours).into_iter().collect();
            lacking = missing.join(", ");
        }
        if !lacking.is_empty() {
            println!("not in the headers of {}, taken from ours: {lacking}", root.display());
        }
        all.same_for_both(root)
    }

    fn files(&self, source: &str) -> Vec<(&'static str, String)> {
        let head = |what: &str| format!("//! {what}\n//!\n//! Generated by `cargo xtask bindgen` from {source}.\n\n");
        let declarations = head("The DSP's driver library, for code on the host.") + &self.parts[0].declarations;
        let layouts = |parts: &Parts, bits| {
            head(&format!(
                "Sizes and offsets of the driver library's structures with {bits}-bit pointers."
            )) + "use crate::host::*;\n\n"
                + &parts.layouts
        };
        vec![
            ("src/host.rs", declarations),
            ("src/host/layout64.rs", layouts(&self.parts[0], 64)),
            ("src/host/layout32.rs", layouts(&self.parts[1], 32)),
        ]
    }
}

fn dsp(folder: &Path) -> Result<String> {
    const HEAD: &str = "//! The DSP's system software, for code that runs there.\n\
                        //!\n\
                        //! Generated by `cargo xtask bindgen` from `include/dsp.h`; edit the headers, not this file.\n";
    let bindings = builder()
        .header(folder.join("include/dsp.h").display().to_string())
        .clang_arg("--target=hexagon")
        .allowlist_file(".*/include/dsp/.*")
        .generate()?;
    Ok(format!("{HEAD}\n{bindings}"))
}

fn builder() -> Builder {
    let target = RustTarget::stable(85, 0).unwrap_or_default();
    Builder::default()
        .clang_args(["-ffreestanding", "-fparse-all-comments", "-std=c11"])
        .use_core()
        .rust_target(target)
        .rust_edition(RustEdition::Edition2024)
        .formatter(Formatter::Prettyplease)
        .default_enum_style(EnumVariation::Consts)
        .prepend_enum_name(false)
        .disable_header_comment()
        .blocklist_type("u?int(8|16|32|64)_t")
        .blocklist_type("size_t")
        .derive_default(true)
        .derive_debug(false)
}

fn put(path: &Path, name: &str, text: &str, check: bool) -> Result<()> {
    let old = fs::read_to_string(path).unwrap_or_default();
    if old == *text {
        println!("{name}: as generated");
    } else if check {
        bail!("{FOLDER}/{name} is not what its headers give; run `cargo xtask bindgen`");
    } else {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{name}: written");
    }
    Ok(())
}
