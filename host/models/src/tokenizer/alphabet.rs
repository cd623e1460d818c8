//! GPT-2's printable alphabet: one letter per byte.
//!
//! Bytes that print in Latin-1 stand for themselves; the other 68, in order, take the letters from U+0100 on.

/// The byte of each letter.
pub(super) struct Alphabet {
    /// By code point; U+0144 is the first beyond the alphabet.
    bytes: [Option<u8>; 0x144],
}

impl Alphabet {
    pub(super) fn new() -> Self {
        let mut bytes = [None; 0x144];
        let mut next = 0x100;
        for byte in 0..=255u8 {
            if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
                bytes[usize::from(byte)] = Some(byte);
            } else {
                bytes[next] = Some(byte);
                next += 1;
            }
        }
        Self { bytes }
    }

    /// Appends the bytes that `token` stands for. A character that is no letter of the alphabet stands for itself.
    pub(super) fn decode(&self, token: &str, to: &mut Vec<u8>) {
        for letter in token.chars() {
            match self.bytes.get(letter as usize).copied().flatten() {
                Some(byte) => to.push(byte),
                None => to.extend(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(token: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        Alphabet::new().decode(token, &mut bytes);
        bytes
    }

    #[test]
    fn every_byte_has_one_letter() {
        let mut bytes: Vec<u8> = Alphabet::new().bytes.into_iter().flatten().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn known_letters() {
        assert_eq!(decode("ĠĊĉĀ"), [b' ', b'\n', b'\t', 0]);
        assert_eq!(decode("a~ÿŃŀ"), [b'a', b'~', 0xff, 0xad, 0x9e]);
        assert_eq!(decode("Ã©"), "é".as_bytes());
    }

    #[test]
    fn other_characters_stand_for_themselves() {
        assert_eq!(decode("▁ \u{144}"), "▁ \u{144}".as_bytes());
    }
}
