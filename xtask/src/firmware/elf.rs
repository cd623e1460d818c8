//! As much of ELF as it takes to tell how large an image is once it is loaded.

use anyhow::{Context as _, Result, bail};

/// Bytes of code and data that a 32-bit little-endian ELF file puts into memory, zeroed memory not counted.
pub(crate) fn loaded_bytes(file: &[u8]) -> Result<u64> {
    const LOAD: u64 = 1;
    if file.get(..6) != Some(b"\x7fELF\x01\x01") {
        bail!("this is no 32-bit little-endian ELF file");
    }
    let [start, size, count] = [(28, 4), (42, 2), (44, 2)].map(|(at, len)| number(file, at, len));
    let (start, size) = (start?, size?);
    let mut bytes = 0;
    for idx in 0..count? {
        let header = start + idx * size;
        if number(file, header, 4)? == LOAD {
            bytes += number(file, header + 16, 4)?;
        }
    }
    Ok(bytes)
}

/// A little-endian number of `len` bytes.
fn number(file: &[u8], at: u64, len: usize) -> Result<u64> {
    let at = usize::try_from(at)?;
    let bytes = at.checked_add(len).and_then(|end| file.get(at..end));
    let bytes = bytes.context("the ELF file ends inside its headers")?;
    Ok(bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header and two segments of 32 bytes: one loaded with 0x1234 bytes in the file, one not loaded.
    fn sample() -> Vec<u8> {
        let mut file = vec![0; 52 + 64];
        file[..6].copy_from_slice(b"\x7fELF\x01\x01");
        file[28] = 52;
        file[42] = 32;
        file[44] = 2;
        file[52] = 1;
        file[52 + 16..52 + 18].copy_from_slice(&[0x34, 0x12]);
        file[84] = 6;
        file[84 + 16] = 9;
        file
    }

    #[test]
    fn loaded_segments_count() {
        assert_eq!(loaded_bytes(&sample()).unwrap(), 0x1234);
    }

    #[test]
    fn short_and_foreign_files_are_errors() {
        let file = sample();
        // The second segment is not loaded, so nothing behind its type is looked at.
        for len in 0..84 + 4 {
            assert!(loaded_bytes(&file[..len]).is_err(), "{len} bytes");
        }
        let mut wide = file;
        wide[4] = 2;
        assert!(loaded_bytes(&wide).is_err());
    }
}
