//! One image: its facts, its build, its copy in the cache folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::elf;
use super::tools::Tools;
use crate::process;
use crate::workspace::Workspace;

/// A file of `toolchains/`; toolchains/README.md says what each key is.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageFacts {
    target: String,
    cpu: String,
    features: Vec<String>,
    program: String,
    image: String,
    max_bytes: u64,
}

impl ImageFacts {
    /// The facts of every image, in the order of their files' names.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
            paths.push(entry?.path());
        }
        paths.retain(|path| path.extension().is_some_and(|ext| ext == "toml"));
        paths.sort();
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path)?;
            toml::from_str(&text).with_context(|| path.display().to_string())
        };
        paths.iter().map(read).collect()
    }

    /// Flags for the compiler, one argument each.
    fn flags(&self, tools: &Tools) -> Vec<String> {
        vec![
            format!("-Ctarget-cpu={}", self.cpu),
            format!("-Ctarget-feature={}", self.features.join(",")),
            format!("-Clinker={}", tools.linker.display()),
            "-Clinker-flavor=ld.lld".to_owned(),
        ]
    }
}

/// Builds an image and gives the path of cargo's output.
pub(crate) fn build(workspace: &Workspace, tools: &Tools, facts: &ImageFacts, deadline: Instant) -> Result<PathBuf> {
    let folder = workspace.root.join("dsp/firmware");
    let target_dir = folder.join("target");
    let mut command = process::cargo();
    command
        .args(["build", "--release", "--locked", "--quiet", "--target", &facts.target])
        .args(["--bin", &facts.program])
        .arg("--target-dir")
        .arg(&target_dir)
        .current_dir(&folder)
        .env("RUSTC", &tools.rustc)
        // What the images use of the compiler is unstable; the compiler is pinned by the set-up instead.
        .env("RUSTC_BOOTSTRAP", "1")
        // One separator that no path contains; it outranks flags from anywhere else.
        .env("CARGO_ENCODED_RUSTFLAGS", facts.flags(tools).join("\x1f"))
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    process::run(&mut command, deadline)?;
    Ok(target_dir.join(&facts.target).join("release").join(&facts.program))
}

/// Copies a built image to its place, whole or not at all, and tells its size.
pub(crate) fn publish(built: &Path, facts: &ImageFacts, folder: &Path) -> Result<String> {
    let file = fs::read(built).with_context(|| format!("cannot read {}", built.display()))?;
    let bytes = elf::loaded_bytes(&file).with_context(|| built.display().to_string())?;
    if bytes > facts.max_bytes {
        bail!(
            "{}: {bytes} bytes of code and data, allowed {}",
            facts.image,
            facts.max_bytes
        );
    }
    fs::create_dir_all(folder)?;
    let path = folder.join(&facts.image);
    if fs::read(&path).ok().as_deref() != Some(&file) {
        let part = folder.join(format!("{}.part", facts.image));
        fs::write(&part, &file)?;
        fs::rename(&part, &path)?;
    }
    // The emulator loads only what the system would execute.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(format!(
        "{}: {:.1} KiB of code and data, at most {} KiB",
        path.display(),
        bytes as f64 / 1024.0,
        facts.max_bytes / 1024
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_repository_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../toolchains");
        let all = ImageFacts::all(&folder).unwrap();
        assert!(all.iter().any(|facts| facts.cpu == "hexagonv67"), "{all:?}");
        for facts in &all {
            assert!(facts.features.contains(&"+hvx-length128b".to_owned()), "{facts:?}");
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        let error = toml::from_str::<ImageFacts>("cpu = \"x\"\nfeature = []").unwrap_err();
        assert!(error.to_string().contains("feature"), "{error}");
    }
}
