//! Keeps crates for other cores out of the firmware.
//!
//! Embedded crates tend to bring `cortex-m` and its kin for their critical sections; on Hexagon
//! that builds and then does nothing. The lock file lists whatever any target could pull in.

use std::fs;
use std::path::Path;

use anyhow::Result;

pub(crate) const FOLDER: &str = "dsp/firmware";

pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let folder = root.join(FOLDER);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let Ok(lock) = fs::read_to_string(folder.join("Cargo.lock")) else {
        return Ok(vec![format!("{FOLDER} has no Cargo.lock; commit it")]);
    };
    Ok(foreign(&lock)
        .map(|name| {
            format!("{FOLDER}/Cargo.lock: `{name}` is for another core; find out who uses it and turn that off")
        })
        .collect())
}

fn foreign(lock: &str) -> impl Iterator<Item = &str> {
    lock.lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        .filter(|name| name.starts_with("cortex-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_for_other_cores_are_found() {
        let good = "[[package]]\nname = \"heapless\"\nversion = \"0.9.1\"\n";
        assert_eq!(foreign(good).count(), 0);
        let bad = "[[package]]\nname = \"cortex-m\"\n[[package]]\nname = \"cortex-m-rt\"\n";
        assert_eq!(foreign(bad).collect::<Vec<_>>(), ["cortex-m", "cortex-m-rt"]);
    }
}
