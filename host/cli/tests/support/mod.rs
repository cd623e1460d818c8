//! Runs the program, and holds it to its rules: what goes where, and one sentence for a mistake.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

#[path = "../../../models/tests/support/tiny.rs"]
pub(crate) mod tiny;

/// The program with standard input closed.
pub(crate) fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hexloom"));
    command.args(args).stdin(Stdio::null());
    command
}

pub(crate) fn output(args: &[&str]) -> Output {
    program(args).output().unwrap()
}

/// Runs the program, which must succeed, and gives its standard output.
#[track_caller]
pub(crate) fn text(args: &[&str]) -> String {
    let output = output(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// As [`text`], for one JSON value.
#[track_caller]
pub(crate) fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(args)).unwrap()
}

/// Runs the program, which must end with code 2, nothing on standard output, and one line that has `parts` in it.
#[track_caller]
pub(crate) fn refused(args: &[&str], parts: &[&str]) {
    let output = output(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    assert!(
        stderr.starts_with("hexloom: ") && stderr.ends_with('\n'),
        "{args:?}: {stderr}"
    );
    for part in parts {
        assert!(stderr.contains(part), "{args:?}: {part:?} is not in {stderr:?}");
    }
}

/// A file in the build folder, removed when dropped.
pub(crate) struct TempFile(PathBuf);

impl TempFile {
    /// A new file with `bytes` in it.
    pub(crate) fn new(bytes: impl AsRef<[u8]>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cli-{}-{count}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    /// The small model.
    pub(crate) fn model() -> Self {
        Self::new(tiny::Tiny::new().file())
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The real model's path, or `None` with a loud reason: `HEXLOOM_MODEL`, otherwise in the cache folder.
pub(crate) fn real_model(test: &str) -> Option<String> {
    const NAME: &str = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
    let cache = std::env::var_os("HEXLOOM_CACHE").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache").into());
    let path = std::env::var_os("HEXLOOM_MODEL").map_or_else(|| cache.join(NAME), PathBuf::from);
    if path.is_file() {
        return path.to_str().map(str::to_owned);
    }
    eprintln!(
        "SKIPPED: {test}: no model at {} (set HEXLOOM_MODEL, or run `cargo xtask demo` once)",
        path.display()
    );
    None
}
