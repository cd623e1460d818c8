//! The vendor's SDK, where `HEXAGON_SDK_ROOT` names it: its compiler, its IDL compiler, its signer.
//!
//! Nothing here needs the SDK; what it brings is an alternative. Each tool is looked for when it is wanted, and an error
//! names the places and the remedy.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The variable that the SDK's own set-up script sets.
const ROOT_VAR: &str = "HEXAGON_SDK_ROOT";

/// An SDK that is there.
#[derive(Debug)]
pub(crate) struct Sdk {
    root: PathBuf,
}

impl Sdk {
    /// The SDK of this machine; an error where the variable is unset or names no folder.
    pub(crate) fn find() -> Result<Self> {
        Self::at(
            std::env::var_os(ROOT_VAR)
                .filter(|name| !name.is_empty())
                .map(PathBuf::from),
        )
    }

    pub(crate) fn at(root: Option<PathBuf>) -> Result<Self> {
        let root = root.with_context(|| {
            format!(
                "{ROOT_VAR} is not set: install the Hexagon SDK (version 5 or 6) and run its `setup_sdk_env.source`, or \
                 set {ROOT_VAR} to its folder; without it, `cargo xtask firmware` builds with public tools"
            )
        })?;
        if !root.join("tools").is_dir() {
            bail!(
                "{ROOT_VAR} is {}, which holds no folder `tools`: set it to the SDK's own folder",
                root.display()
            );
        }
        Ok(Self { root })
    }

    /// The compiler of the newest tools in the SDK.
    pub(crate) fn clang(&self) -> Result<PathBuf> {
        let all = self.root.join("tools/HEXAGON_Tools");
        let versions = folders(&all);
        let programs = versions.iter().map(|version| version.join("Tools/bin/hexagon-clang"));
        programs.rev().find(|program| program.is_file()).with_context(|| {
            format!(
                "the SDK has no {}/VERSION/Tools/bin/hexagon-clang: install its component \"Hexagon Tools\"",
                all.display()
            )
        })
    }

    /// The IDL compiler; its folder's name differs between versions.
    pub(crate) fn qaic(&self) -> Result<PathBuf> {
        let all = self.root.join("ipc/fastrpc/qaic");
        let mut programs = folders(&all).into_iter().map(|folder| folder.join("qaic"));
        programs.find(|program| program.is_file()).with_context(|| {
            format!(
                "the SDK has no {0}/*/qaic: run `make` in {0}, or install the SDK's component \"FastRPC\"",
                all.display()
            )
        })
    }

    /// The script that signs for test devices.
    pub(crate) fn signer(&self) -> Result<PathBuf> {
        let script = self.root.join("tools/elfsigner/elfsigner.py");
        if !script.is_file() {
            bail!(
                "the SDK has no {}: install its component \"Elf signer\"",
                script.display()
            );
        }
        Ok(script)
    }

    /// Folders of headers that generated code includes.
    pub(crate) fn includes(&self) -> [PathBuf; 2] {
        ["incs", "incs/stddef"].map(|folder| self.root.join(folder))
    }
}

/// The folders in a folder, sorted by the numbers in their names, so that 8.7.06 comes before 19.0.04.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    let numbers = |path: &PathBuf| -> Vec<u64> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split(|c: char| !c.is_ascii_digit())
            .filter_map(|digits| digits.parse().ok())
            .collect()
    };
    found.sort_by_key(|path| (numbers(path), path.clone()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_found_whatever_the_version_and_missing_ones_are_named() {
        let root = std::env::temp_dir().join(format!("hexloom-sdk-{}", std::process::id()));
        let error = Sdk::at(None).unwrap_err().to_string();
        assert!(
            error.contains("HEXAGON_SDK_ROOT is not set") && error.contains("setup_sdk_env"),
            "{error}"
        );
        fs::create_dir_all(&root).unwrap();
        let error = Sdk::at(Some(root.clone())).unwrap_err().to_string();
        assert!(error.contains("no folder `tools`"), "{error}");
        fs::create_dir_all(root.join("tools")).unwrap();
        let sdk = Sdk::at(Some(root.clone())).unwrap();
        for (missing, words) in [
            (sdk.clang(), "Hexagon Tools"),
            (sdk.qaic(), "ipc/fastrpc/qaic"),
            (sdk.signer(), "elfsigner.py"),
        ] {
            let error = missing.unwrap_err().to_string();
            assert!(
                error.contains(words) && error.contains(&*root.to_string_lossy()),
                "{error}"
            );
        }
        for file in [
            "tools/HEXAGON_Tools/8.7.06/Tools/bin/hexagon-clang",
            "tools/HEXAGON_Tools/19.0.04/Tools/bin/hexagon-clang",
            "ipc/fastrpc/qaic/Ubuntu/qaic",
            "tools/elfsigner/elfsigner.py",
        ] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        assert!(
            sdk.clang()
                .unwrap()
                .starts_with(root.join("tools/HEXAGON_Tools/19.0.04"))
        );
        assert!(sdk.qaic().unwrap().ends_with("Ubuntu/qaic"));
        sdk.signer().unwrap();
        fs::remove_dir_all(root).unwrap();
    }
}
