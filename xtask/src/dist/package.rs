//! A package: a folder whose `manifest.json` names every file in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::target::Target;
use crate::firmware::elf::Image;

/// The file that names the others.
pub(crate) const MANIFEST: &str = "manifest.json";
/// The folder of the device libraries.
pub(crate) const DEVICE_FOLDER: &str = "dsp";

/// What is in a package. Whoever reads it may rely on every key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Version of this structure.
    pub(crate) format: u32,
    pub(crate) name: String,
    pub(crate) version: String,
    /// `android`, `linux-arm64` or `linux-x86_64`.
    pub(crate) target: String,
    /// Version of the wire that host side and device libraries speak.
    pub(crate) abi_version: u32,
    /// The oldest C library that the programs start with, for instance `2.34`; none where no GNU library is used.
    pub(crate) glibc: Option<String>,
    pub(crate) device_libraries: Vec<DeviceLibrary>,
    /// Serial numbers of the devices that a test signature in the package is for.
    pub(crate) test_signatures: Vec<String>,
    /// Every other file, by path.
    pub(crate) files: Vec<File>,
}

/// A library for one architecture of the DSP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeviceLibrary {
    /// For instance `v73`.
    pub(crate) arch: String,
    pub(crate) path: String,
    pub(crate) signer: Signer,
}

/// Who has signed a library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Signer {
    /// Nobody: it loads into unsigned processes, and into any on a device that has a test signature.
    #[default]
    None,
    /// The SDK's test key: it loads on test devices.
    Test,
    /// A key that production devices know.
    Production,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct File {
    /// Below the package's folder, with slashes.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// SHA-256 in hexadecimal digits.
    pub(crate) sha256: String,
    pub(crate) executable: bool,
}

/// A folder with a manifest that fits it.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) folder: PathBuf,
    pub(crate) manifest: Manifest,
}

impl Package {
    /// Writes the manifest of what lies in `folder`.
    pub(crate) fn seal(folder: &Path, target: Target, version: &str, abi_version: u32) -> Result<Self> {
        let manifest = Manifest {
            format: 1,
            name: "hexloom".to_owned(),
            version: version.to_owned(),
            target: target.name().to_owned(),
            abi_version,
            glibc: None,
            device_libraries: Vec::new(),
            test_signatures: Vec::new(),
            files: Vec::new(),
        };
        let mut package = Self {
            folder: folder.to_owned(),
            manifest,
        };
        package.refresh()?;
        Ok(package)
    }

    /// Reads a package; an error when a file is missing, changed, or not in the manifest.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST);
        let text = fs::read_to_string(&path).with_context(|| {
            format!(
                "{} is no package: it has no readable {MANIFEST}; `cargo xtask dist` makes one",
                folder.display()
            )
        })?;
        let manifest: Manifest = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        if manifest.format != 1 {
            bail!(
                "{}: format {} is not known here, only 1",
                path.display(),
                manifest.format
            );
        }
        let found = files(folder)?;
        if found != manifest.files {
            let all = found.iter().chain(&manifest.files);
            let differs = all.filter(|file| !found.contains(file) || !manifest.files.contains(file));
            let names: BTreeSet<&str> = differs.map(|file| file.path.as_str()).collect();
            bail!(
                "{}: not as its {MANIFEST} says: {names:?}; make it again",
                folder.display()
            );
        }
        Ok(Self {
            folder: folder.to_owned(),
            manifest,
        })
    }

    /// Takes the folder as it is now, and writes the manifest. Who has signed a library is kept by its path; a library that
    /// has no signature any more, or is new, has no signer.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        let manifest = &mut self.manifest;
        manifest.files = files(&self.folder)?;
        let signers = std::mem::take(&mut manifest.device_libraries);
        manifest.test_signatures.clear();
        let mut newest = None;
        for file in &manifest.files {
            let bytes = fs::read(self.folder.join(&file.path))?;
            let name = file.path.rsplit('/').next().unwrap_or_default();
            if let Some(serial) = name.strip_prefix("testsig-").and_then(|name| name.strip_suffix(".so")) {
                manifest.test_signatures.push(serial.to_owned());
            } else if file.path.starts_with(DEVICE_FOLDER) {
                let image = Image::parse(&bytes).with_context(|| file.path.clone())?;
                let was = signers.iter().find(|library| library.path == file.path);
                let signer = was.map_or(Signer::None, |library| library.signer);
                manifest.device_libraries.push(DeviceLibrary {
                    arch: format!("v{:x}", image.flags()),
                    path: file.path.clone(),
                    signer: if image.is_signed() { signer } else { Signer::None },
                });
            } else if file.executable || name.ends_with(".so") {
                newest = newest.max(newest_glibc(&bytes));
            }
        }
        manifest.glibc = newest.map(|minor| format!("2.{minor}"));
        let text = serde_json::to_string_pretty(manifest)? + "\n";
        fs::write(self.folder.join(MANIFEST), text)?;
        Ok(())
    }
}

/// Every file below `folder` but the manifest, by path.
fn files(folder: &Path) -> Result<Vec<File>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
                continue;
            }
            let relative = path.strip_prefix(folder)?.to_string_lossy().into_owned();
            if relative != MANIFEST {
                found.push(describe(&path, relative)?);
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// A file's entry for the manifest.
pub(crate) fn describe(path: &Path, relative: String) -> Result<File> {
    use std::os::unix::fs::PermissionsExt as _;
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let digest = Sha256::digest(&bytes);
    Ok(File {
        path: relative,
        bytes: bytes.len() as u64,
        sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        executable: fs::metadata(path)?.permissions().mode() & 0o100 != 0,
    })
}

/// The newest version 2.N of the GNU C library that a program asks for, from the names of versions in it.
fn newest_glibc(bytes: &[u8]) -> Option<u32> {
    const NAME: &[u8] = b"GLIBC_2.";
    let minor = |at: usize| {
        let digits = bytes[at + NAME.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        let text: String = digits.take(3).map(|&byte| char::from(byte)).collect();
        text.parse::<u32>().ok()
    };
    let places = bytes
        .windows(NAME.len())
        .enumerate()
        .filter(|(_, window)| *window == NAME);
    places.filter_map(|(at, _)| minor(at)).max()
}

#[cfg(test)]
mod tests;
