//! The vocabulary as bytes: each line is a token in the alphabet of byte-level BPE, which writes every byte as a
//! visible character.

use anyhow::{Context as _, Result};

/// The first of the special tokens, which whisper.cpp makes itself.
const FIRST_SPECIAL: &str = "<|endoftext|>";

/// The bytes of the tokens before the special ones.
pub(super) fn tokens(lines: &str) -> Result<Vec<Vec<u8>>> {
    let bytes = |(idx, line): (usize, &str)| {
        let bytes: Option<Vec<u8>> = line.chars().map(byte_of).collect();
        bytes.with_context(|| format!("line {}: {line:?} is not written in bytes", idx + 1))
    };
    lines
        .split('\n')
        .take_while(|&line| line != FIRST_SPECIAL)
        .enumerate()
        .map(bytes)
        .collect()
}

/// Visible bytes of Latin-1 are themselves, the others count on from U+0100 in order.
fn byte_of(letter: char) -> Option<u8> {
    let visible = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    match u32::from(letter).checked_sub(0x100) {
        None => u8::try_from(letter).ok().filter(visible),
        Some(idx) => (0..=u8::MAX).filter(|byte| !visible(byte)).nth(idx as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stand_for_bytes_up_to_the_special_tokens() {
        let found = tokens("!\nĠthe\nĊ\nÃ©\nŃ\n<|endoftext|>\n<|startoftranscript|>").unwrap();
        assert_eq!(found, [&b"!"[..], b" the", b"\n", "é".as_bytes(), &[0xAD]]);
        let error = tokens("a\nb c").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn every_byte_has_one_letter() {
        let mut bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=u8::MAX).collect::<Vec<_>>());
    }
}
