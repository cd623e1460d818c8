//! The file that whisper.cpp reads: little-endian words, no padding, everything in one go.

use std::io::{self, Write};

use super::mel::N_BINS;

/// "ggml", the last letter first.
const MAGIC: u32 = 0x6767_6d6c;
/// Matrices are F16, the rest F32.
const FTYPE_F16: u32 = 1;

/// Sizes of the model, in the file's order.
#[derive(Debug, PartialEq)]
pub(super) struct Head {
    pub(super) n_vocab: u32,
    pub(super) n_audio_ctx: u32,
    pub(super) n_audio_state: u32,
    pub(super) n_audio_head: u32,
    pub(super) n_audio_layer: u32,
    pub(super) n_text_ctx: u32,
    pub(super) n_text_state: u32,
    pub(super) n_text_head: u32,
    pub(super) n_text_layer: u32,
    pub(super) n_mels: u32,
}

impl Head {
    pub(super) fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let words = [
            MAGIC,
            self.n_vocab,
            self.n_audio_ctx,
            self.n_audio_state,
            self.n_audio_head,
            self.n_audio_layer,
            self.n_text_ctx,
            self.n_text_state,
            self.n_text_head,
            self.n_text_layer,
            self.n_mels,
            FTYPE_F16,
        ];
        write_words(file, &words)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DType {
    F32 = 0,
    F16 = 1,
}

/// A tensor of the file.
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) dtype: DType,
    /// Fastest dimension first.
    pub(super) ne: Vec<u32>,
    pub(super) bytes: Vec<u8>,
}

impl Tensor {
    pub(super) fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let (n_dims, n_letters) = (self.ne.len() as u32, self.name.len() as u32);
        write_words(file, &[n_dims, n_letters, self.dtype as u32])?;
        write_words(file, &self.ne)?;
        file.write_all(self.name.as_bytes())?;
        file.write_all(&self.bytes)
    }
}

pub(super) fn write_filters(file: &mut impl Write, filters: &[[f32; N_BINS]]) -> io::Result<()> {
    write_words(file, &[filters.len() as u32, N_BINS as u32])?;
    for weight in filters.iter().flatten() {
        file.write_all(&weight.to_le_bytes())?;
    }
    Ok(())
}

pub(super) fn write_vocabulary(file: &mut impl Write, tokens: &[Vec<u8>]) -> io::Result<()> {
    write_words(file, &[tokens.len() as u32])?;
    for token in tokens {
        write_words(file, &[token.len() as u32])?;
        file.write_all(token)?;
    }
    Ok(())
}

fn write_words(file: &mut impl Write, words: &[u32]) -> io::Result<()> {
    words.iter().try_for_each(|word| file.write_all(&word.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_its_words_its_name_and_its_bytes() {
        let tensor = Tensor {
            name: "ab".to_owned(),
            dtype: DType::F16,
            ne: vec![3, 1],
            bytes: vec![7; 6],
        };
        let mut file = Vec::new();
        tensor.write(&mut file).unwrap();
        let words = [2_u32, 2, 1, 3, 1].map(u32::to_le_bytes).concat();
        assert_eq!(file, [&words, &b"ab"[..], &[7; 6]].concat());
    }

    #[test]
    fn tokens_have_their_length_before_them() {
        let mut file = Vec::new();
        write_vocabulary(&mut file, &[vec![9], vec![]]).unwrap();
        assert_eq!(file, [2, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0]);
    }
}
