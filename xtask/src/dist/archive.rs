//! A package as one file: the same bytes whenever and wherever the same files are packed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};

use super::package::{MANIFEST, Package};

/// Time of change of everything inside: 2001-09-09, as some programs take 0 for "unknown".
const TIME_S: u64 = 1_000_000_000;

/// Writes `NAME.tar.gz` beside the package's folder, with the folder inside; gives its path.
pub(crate) fn write(package: &Package) -> Result<PathBuf> {
    let name = package.folder.file_name().context("the package's folder has no name")?;
    let name = name.to_string_lossy();
    let path = package.folder.with_file_name(format!("{name}.tar.gz"));
    let part = path.with_extension("part");
    let file = fs::File::create(&part).with_context(|| format!("cannot write {}", part.display()))?;
    let packed = GzBuilder::new().operating_system(255).write(file, Compression::best());
    let mut archive = tar::Builder::new(packed);
    let manifest = [(MANIFEST, false)];
    let files = package
        .manifest
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.executable));
    for (relative, executable) in manifest.into_iter().chain(files) {
        let bytes = fs::read(package.folder.join(relative))?;
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(if executable { 0o755 } else { 0o644 });
        header.set_mtime(TIME_S);
        archive.append_data(&mut header, Path::new(&*name).join(relative), &bytes[..])?;
    }
    archive.into_inner()?.finish()?.sync_all()?;
    fs::rename(&part, &path)?;
    Ok(path)
}
