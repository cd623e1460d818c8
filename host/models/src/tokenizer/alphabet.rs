//! GPT-2's printable alphabet: one letter per byte.
//!
//! Bytes that print in Latin-1 stand for themselves; the other 68, in order, take the letters from U+0100 on.

/// The letters, and the way back.
pub(super) struct Alphabet {
    letters: [char; 256],
    /// Byte of each letter below U+0144, the first code point that is none.
    bytes: [Option<u8>; 0x144],
}

impl Alphabet {
    pub(super) fn new() -> Self {
        let mut letters = ['\0'; 256];
        let mut bytes = [None; 0x144];
        let mut next = 0x100;
        for byte in 0..=255u8 {
            let code = match byte {
                b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
                _ => {
                    next += 1;
                    next - 1
                }
            };
            letters[usize::from(byte)] = char::from_u32(code).expect("codes below 0x144 are characters");
            bytes[code as usize] = Some(byte);
        }
        Self { letters, bytes }
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

    /// The bytes whose letters are missing by `is_missing`.
    pub(super) fn missing(&self, is_missing: impl Fn(&str) -> bool) -> Vec<u8> {
        (0..=255)
            .filter(|byte| is_missing(self.letters[usize::from(*byte)].encode_utf8(&mut [0; 4])))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let alphabet = Alphabet::new();
        let text: String = alphabet.letters.iter().collect();
        let mut bytes = Vec::new();
        alphabet.decode(&text, &mut bytes);
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn known_letters() {
        let alphabet = Alphabet::new();
        let letter = |byte: u8| alphabet.letters[usize::from(byte)];
        assert_eq!(
            [letter(b' '), letter(b'\n'), letter(b'\t'), letter(0)],
            ['Ġ', 'Ċ', 'ĉ', 'Ā']
        );
        assert_eq!([letter(b'a'), letter(0xad), letter(0xff)], ['a', 'Ń', 'ÿ']);
    }
}
