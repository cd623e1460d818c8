//! The file of `--logits`: the same bits on every machine, or one of them is wrong.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A file of 32-bit floats in little-endian order, without a header.
pub(super) struct LogitsFile {
    path: PathBuf,
    out: BufWriter<File>,
}

impl LogitsFile {
    /// Makes an empty file.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|source| Failure::Write {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            out: BufWriter::new(file),
        })
    }

    /// Adds a step.
    pub(super) fn add(&mut self, logits: &[f32]) -> Result<(), Failure> {
        let mut bytes = logits.iter().map(|logit| logit.to_le_bytes());
        let done = bytes.try_for_each(|bytes| self.out.write_all(&bytes));
        self.named(done)
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let done = self.out.flush();
        self.named(done)
    }

    fn named(&self, done: std::io::Result<()>) -> Result<(), Failure> {
        done.map_err(|source| Failure::Write {
            path: self.path.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_is_written() {
        let path = std::env::temp_dir().join(format!("hexloom-logits-file-{}", std::process::id()));
        let mut file = LogitsFile::create(&path).unwrap();
        file.add(&[1.0, f32::NAN]).unwrap();
        file.add(&[-0.0]).unwrap();
        file.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let expected = [1.0f32, f32::NAN, -0.0].map(f32::to_le_bytes).concat();
        assert_eq!(bytes, expected);
        let folder = std::env::temp_dir();
        assert!(matches!(LogitsFile::create(&folder), Err(Failure::Write { .. })));
    }
}
