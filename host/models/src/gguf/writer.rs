//! Writes small GGUF files.
//!
//! For tests, here and in the crates above: a model of a few kilobytes stands in for a real one, and files that are
//! wrong in one chosen place show that the reader says so. Therefore it writes what it is told, sense or not.

use super::{DEFAULT_ALIGNMENT, MAGIC, TensorType};

/// A GGUF file (version 3) under construction.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    n_pairs: u64,
    pairs: Vec<u8>,
    n_tensors: u64,
    tensors: Vec<u8>,
    data: Vec<u8>,
}

impl Writer {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a u32.
    pub fn u32(self, key: &str, value: u32) -> Self {
        self.raw_value(key, 4, &value.to_le_bytes())
    }

    /// Adds an f32.
    pub fn f32(self, key: &str, value: f32) -> Self {
        self.raw_value(key, 6, &value.to_le_bytes())
    }

    /// Adds a bool.
    pub fn bool(self, key: &str, value: bool) -> Self {
        self.raw_value(key, 7, &[value.into()])
    }

    /// Adds a string.
    pub fn str(self, key: &str, value: &str) -> Self {
        let mut bytes = Vec::new();
        put_str(&mut bytes, value);
        self.raw_value(key, 8, &bytes)
    }

    /// Adds an array of strings.
    pub fn strs<S: AsRef<str>>(self, key: &str, values: &[S]) -> Self {
        let mut bytes = Vec::new();
        bytes.extend(8u32.to_le_bytes());
        bytes.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| put_str(&mut bytes, value.as_ref()));
        self.raw_value(key, 9, &bytes)
    }

    /// Adds an array of i32.
    pub fn i32s(self, key: &str, values: &[i32]) -> Self {
        let mut bytes = Vec::new();
        bytes.extend(5u32.to_le_bytes());
        bytes.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        self.raw_value(key, 9, &bytes)
    }

    /// Adds a value by its type code and encoded bytes.
    pub fn raw_value(mut self, key: &str, code: u32, bytes: &[u8]) -> Self {
        self.n_pairs += 1;
        put_str(&mut self.pairs, key);
        self.pairs.extend(code.to_le_bytes());
        self.pairs.extend(bytes);
        self
    }

    /// Adds a tensor with its data, which is put at the next multiple of 32.
    pub fn tensor(mut self, name: &str, ty: TensorType, ne: &[u64], bytes: &[u8]) -> Self {
        self.data
            .resize(self.data.len().next_multiple_of(DEFAULT_ALIGNMENT as usize), 0);
        let offset = self.data.len() as u64;
        self.data.extend(bytes);
        self.raw_tensor(name, ty.code(), ne, offset)
    }

    /// Adds a tensor description alone: any type code, any offset in the data section.
    pub fn raw_tensor(mut self, name: &str, code: u32, ne: &[u64], offset: u64) -> Self {
        self.n_tensors += 1;
        put_str(&mut self.tensors, name);
        self.tensors.extend((ne.len() as u32).to_le_bytes());
        ne.iter().for_each(|extent| self.tensors.extend(extent.to_le_bytes()));
        self.tensors.extend(code.to_le_bytes());
        self.tensors.extend(offset.to_le_bytes());
        self
    }

    /// The file. It ends with the last tensor's last byte.
    pub fn finish(self) -> Vec<u8> {
        let mut file = Vec::new();
        file.extend(MAGIC);
        file.extend(3u32.to_le_bytes());
        file.extend(self.n_tensors.to_le_bytes());
        file.extend(self.n_pairs.to_le_bytes());
        file.extend(self.pairs);
        file.extend(self.tensors);
        if !self.data.is_empty() {
            file.resize(file.len().next_multiple_of(DEFAULT_ALIGNMENT as usize), 0);
            file.extend(self.data);
        }
        file
    }
}

fn put_str(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}
