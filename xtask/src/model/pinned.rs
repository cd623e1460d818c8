//! A file that is known by its size and SHA-256.
//!
//! A stamp next to the file remembers that the hash was right for this size and time of change: later runs read no more
//! than the stamp.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest as _, Sha256};

pub(super) struct Pinned {
    pub(super) name: &'static str,
    pub(super) size_bytes: u64,
    pub(super) sha256: &'static str,
}

#[derive(Debug, PartialEq)]
pub(super) enum State {
    Missing,
    Good,
    Damaged(String),
}

impl Pinned {
    /// What is at `path`, which is hashed once.
    pub(super) fn state(&self, path: &Path) -> Result<State> {
        let Ok(metadata) = fs::metadata(path) else {
            return Ok(State::Missing);
        };
        if metadata.len() != self.size_bytes {
            let why = format!("{} bytes, should be {}", metadata.len(), self.size_bytes);
            return Ok(State::Damaged(why));
        }
        let changed = metadata.modified()?.duration_since(UNIX_EPOCH)?.as_nanos();
        let stamp = format!("{} {} {changed}\n", self.sha256, self.size_bytes);
        let stamp_path = path.with_extension("stamp");
        if fs::read_to_string(&stamp_path).is_ok_and(|text| text == stamp) {
            return Ok(State::Good);
        }
        let found = sha256(path, self)?;
        if found != self.sha256 {
            let why = format!("SHA-256 is {found}, should be {}", self.sha256);
            return Ok(State::Damaged(why));
        }
        fs::write(&stamp_path, stamp).with_context(|| format!("cannot write {}", stamp_path.display()))?;
        Ok(State::Good)
    }
}

fn sha256(path: &Path, pinned: &Pinned) -> Result<String> {
    let bar = ProgressBar::new(pinned.size_bytes).with_style(ProgressStyle::with_template(
        "checking {msg} [{bar:30}] {bytes}/{total_bytes}",
    )?);
    bar.set_message(pinned.name);
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        let n_bytes = file.read(&mut block)?;
        if n_bytes == 0 {
            break;
        }
        hash.update(&block[..n_bytes]);
        bar.inc(n_bytes as u64);
    }
    bar.finish_and_clear();
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::super::wheel::Unpacked;
    use super::*;

    const ABC: Pinned = Pinned {
        name: "abc.gguf",
        size_bytes: 3,
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    };

    #[test]
    fn good_damaged_and_missing_files_are_told_apart() {
        let folder = Unpacked::empty(&std::env::temp_dir()).unwrap();
        let path = folder.path(ABC.name);
        assert_eq!(ABC.state(&path).unwrap(), State::Missing);

        fs::write(&path, "abc").unwrap();
        assert_eq!(ABC.state(&path).unwrap(), State::Good);
        assert!(path.with_extension("stamp").exists());
        assert_eq!(ABC.state(&path).unwrap(), State::Good);

        let damaged = |text: &str| {
            fs::write(&path, text).unwrap();
            // A stamp of another time must not vouch for the file.
            File::options()
                .append(true)
                .open(&path)
                .unwrap()
                .set_modified(UNIX_EPOCH)
                .unwrap();
            matches!(ABC.state(&path).unwrap(), State::Damaged(_))
        };
        assert!(damaged("abd"));
        assert!(damaged("ab"));
    }
}
