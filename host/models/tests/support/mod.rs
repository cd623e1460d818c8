//! What several test files need: the real model if it is there, and files that vanish with the test.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use hexloom_models::gguf::{TensorType, Writer};

/// The real model's path, or `None` with a loud reason: `HEXLOOM_MODEL`, otherwise the repository's cache folder.
pub(crate) fn model(test: &str) -> Option<PathBuf> {
    const FETCH: &str = "set HEXLOOM_MODEL, or run `cargo xtask demo` once";
    match std::env::var_os("HEXLOOM_MODEL") {
        Some(path) => there(test, path.into(), FETCH),
        None => cached_model(test, "SmolLM2-135M-Instruct.Q4_1.gguf", FETCH),
    }
}

/// A model of the cache folder, or `None` with a loud reason.
pub(crate) fn cached_model(test: &str, file: &str, fetch: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("HEXLOOM_CACHE").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache").into());
    there(test, cache.join("models").join(file), fetch)
}

fn there(test: &str, path: PathBuf, fetch: &str) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path);
    }
    eprintln!("SKIPPED {test}: no model at {} ({fetch})", path.display());
    None
}

/// A file in the build folder, removed when dropped.
pub(crate) struct TempFile(PathBuf);

impl TempFile {
    /// A new file with `bytes` in it.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("models-{}-{count}.gguf", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, bytes).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A small file with a value of most kinds and a tensor of every type.
pub(crate) fn small_file() -> Writer {
    let mut file = tokenizer_file("gpt-2")
        .str("general.architecture", "llama")
        .u32("llama.block_count", 2)
        .f32("llama.rope.freq_base", 10000.0)
        .raw_value("wide", 10, &(1u64 << 40).to_le_bytes())
        .raw_value("negative", 5, &(-1i32).to_le_bytes());
    for (i, ty) in TensorType::ALL.into_iter().enumerate() {
        let bytes = vec![i as u8; 2 * 3 * ty.block_bytes() as usize];
        file = file.tensor(&format!("tensor.{ty}"), ty, &[2 * ty.block_elems(), 3], &bytes);
    }
    file
}

/// A tokenizer of 12 tokens: two control tokens, a few letters, and merges that make "ab", "abc" and " a".
pub(crate) fn tokenizer_file(pre: &str) -> Writer {
    let tokens = ["<s>", "</s>", "a", "b", "c", "Ġ", "ab", "abc", "Ġa", "<tool>", "Ã", "©"];
    Writer::new()
        .str("tokenizer.ggml.model", "gpt2")
        .str("tokenizer.ggml.pre", pre)
        .strs("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &[3, 3, 1, 1, 1, 1, 1, 1, 1, 4, 1, 1])
        .strs("tokenizer.ggml.merges", &["a b", "ab c", "Ġ a"])
        .u32("tokenizer.ggml.bos_token_id", 0)
        .u32("tokenizer.ggml.eos_token_id", 1)
        .bool("tokenizer.ggml.add_bos_token", true)
}
