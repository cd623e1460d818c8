//! Log lines go where ggml's own go: to the program's callback.

use std::ffi::CString;

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::ggml;

struct GgmlLog;

/// Sends this library's log to ggml. A second call changes nothing.
pub(crate) fn install() {
    if log::set_logger(&GgmlLog).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

impl Log for GgmlLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Info
    }

    fn log(&self, record: &Record<'_>) {
        let level = match record.level() {
            Level::Error => 4,
            Level::Warn => 3,
            _ => 2,
        };
        let line = format!("hexloom: {}\n", record.args());
        if let (true, Ok(line)) = (self.enabled(record.metadata()), CString::new(line)) {
            ggml::log(level, &line);
        }
    }

    fn flush(&self) {}
}
