//! Where things are: the workspace root, its packages, the cache folder.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::process;

/// The environment variable that moves the cache folder (default: `.cache` in the root).
pub(crate) const CACHE_VAR: &str = "HEXLOOM_CACHE";

pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Absolute. Holds `models/`, `firmware/` and `peer/`; everything in it can be deleted at any time.
    pub(crate) cache: PathBuf,
}

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        let manifest =
            process::output(process::cargo().args(["locate-project", "--workspace", "--message-format=plain"]))?;
        let root = Path::new(manifest.trim())
            .parent()
            .context("cargo named a workspace manifest without a folder")?
            .to_path_buf();
        let cache = match std::env::var_os(CACHE_VAR).filter(|v| !v.is_empty()) {
            Some(folder) => std::path::absolute(folder)?,
            None => root.join(".cache"),
        };
        Ok(Self { root, cache })
    }

    /// cargo's folder for what it builds.
    pub(crate) fn target(&self) -> PathBuf {
        let named = std::env::var_os("CARGO_TARGET_DIR").filter(|name| !name.is_empty());
        named.map_or_else(|| self.root.join("target"), PathBuf::from)
    }

    /// The packages of the workspace whose manifest lies in `folder` (relative to the root), as
    /// `cargo metadata` tells them, dependencies declared but not resolved.
    pub(crate) fn packages(&self, folder: &str) -> Result<Vec<Value>> {
        let text = process::output(
            process::cargo()
                .args(["metadata", "--no-deps", "--format-version=1"])
                .current_dir(self.root.join(folder)),
        )?;
        let mut metadata: Value = serde_json::from_str(&text).context("cargo metadata printed no valid JSON")?;
        match metadata["packages"].take() {
            Value::Array(packages) => Ok(packages),
            _ => anyhow::bail!("cargo metadata printed no list of packages"),
        }
    }
}
