//! What the image logs arrives with its level and its numbers. Alone in its file: the logger is the process's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hexloom::abi::{BatchReply, StartRequest};
use hexloom::transport::{BlockRef, MapKind, SessionAt, Transport as _};
use hexloom_emu::{EmuOptions, EmuTransport};
use log::{Level, Log, Metadata, Record};

struct Kept(Mutex<Vec<(Level, String)>>);

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

impl Log for Kept {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &Record<'_>) {
        let line = (record.level(), record.args().to_string());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
    fn flush(&self) {}
}

/// Waits for a line that contains all of `parts`.
fn wait_for(level: Level, parts: &[&str]) {
    let end = Instant::now() + Duration::from_secs(20);
    let is_there = |(found, line): &(Level, String)| *found == level && parts.iter().all(|part| line.contains(part));
    while !KEPT.0.lock().unwrap().iter().any(is_there) {
        assert!(
            Instant::now() < end,
            "no {level} {parts:?} in {:?}",
            KEPT.0.lock().unwrap()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn events_of_the_image_become_log_lines() {
    let options = match EmuOptions::find() {
        Ok(options) => options,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    log::set_logger(&KEPT).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let transport = EmuTransport::new(options);
    let memory = transport.alloc(8192).unwrap();
    let connection = Arc::clone(&transport.open(SessionAt::default()).unwrap());
    connection.map(&memory, MapKind::Pinned).unwrap();
    let start = StartRequest {
        n_threads: 2,
        pinned_fd: memory.fd(),
        pinned_bytes: memory.bytes(),
        block_bytes_max: 4096,
        scratch_bytes_max: 1 << 20,
        window_bytes: 1 << 30,
        ..StartRequest::new(1)
    };
    connection.start(&start).unwrap();
    wait_for(
        Level::Info,
        &["session: 2 threads, 1048576 bytes of scratch, a window of 1073741824 bytes"],
    );

    let block = BlockRef {
        fd: memory.fd(),
        offset: 0,
        bytes: 4096,
    };
    let second = Duration::from_secs(20);
    connection.write(&[0xee; 24], block, second).unwrap();
    let mut reply = [0; size_of::<BatchReply>()];
    connection.read(&mut reply, second).unwrap();
    // Bytes 8 to 16 of any message are taken for its sequence number.
    let refused = format!("batch {} refused: ", 0xeeee_eeee_eeee_eeee_u64);
    wait_for(Level::Warn, &["dsp: ", &refused]);
    connection.stop().unwrap();
}
