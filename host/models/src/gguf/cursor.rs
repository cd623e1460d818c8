//! A reading position in the header of a file, with every step checked.
//!
//! Each read is told in words what it reads, so that a file cut anywhere yields an error that says what is missing.

use std::fmt::Arguments;
use std::ops::Range;
use std::path::Path;

use crate::ModelError;

pub(super) struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(path: &'a Path, bytes: &'a [u8]) -> Self {
        Self { path, bytes, offset: 0 }
    }

    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// Bytes read so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset as u64
    }

    /// The next `n_bytes` bytes as a range of the file.
    pub(super) fn take(&mut self, n_bytes: u64, what: Arguments<'_>) -> Result<Range<usize>, ModelError> {
        let start = self.offset;
        match usize::try_from(n_bytes).ok().and_then(|n| start.checked_add(n)) {
            Some(end) if end <= self.bytes.len() => {
                self.offset = end;
                Ok(start..end)
            }
            _ => Err(ModelError::CutShort {
                path: self.path.into(),
                what: what.to_string(),
                start: start as u64,
                end: (start as u64).saturating_add(n_bytes),
                file_bytes: self.bytes.len() as u64,
            }),
        }
    }

    /// The bytes of a range that was read by [`Cursor::take`].
    pub(super) fn bytes(&self, range: Range<usize>) -> &'a [u8] {
        &self.bytes[range]
    }

    pub(super) fn array<const N: usize>(&mut self, what: Arguments<'_>) -> Result<[u8; N], ModelError> {
        let range = self.take(N as u64, what)?;
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[range]);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: Arguments<'_>) -> Result<u32, ModelError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: Arguments<'_>) -> Result<u64, ModelError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A count of entries that take at least `min_bytes` each, refused when the rest of the file cannot hold them.
    pub(super) fn count(&mut self, min_bytes: u64, what: Arguments<'_>) -> Result<u64, ModelError> {
        let count = self.u64(format_args!("the number of {what}"))?;
        self.check_count(count, min_bytes, what)?;
        Ok(count)
    }

    pub(super) fn check_count(&self, count: u64, min_bytes: u64, what: Arguments<'_>) -> Result<(), ModelError> {
        let left_bytes = (self.bytes.len() - self.offset) as u64;
        let most = left_bytes / min_bytes;
        if count > most {
            let (path, what) = (self.path.into(), what.to_string());
            return Err(ModelError::Count {
                path,
                what,
                count,
                left_bytes,
                most,
            });
        }
        Ok(())
    }

    /// A string with its length in front, as a range of the file that has been checked to be UTF-8.
    pub(super) fn string(&mut self, what: Arguments<'_>) -> Result<Range<usize>, ModelError> {
        let n_bytes = self.u64(format_args!("the length of {what}"))?;
        let range = self.take(n_bytes, what)?;
        self.text(range.clone(), what)?;
        Ok(range)
    }

    /// The text of a range that was read by [`Cursor::string`].
    pub(super) fn text(&self, range: Range<usize>, what: Arguments<'_>) -> Result<&'a str, ModelError> {
        let offset = range.start as u64;
        std::str::from_utf8(&self.bytes[range]).map_err(|_| ModelError::NotUtf8 {
            path: self.path.into(),
            what: what.to_string(),
            offset,
        })
    }
}
