//! The emulator process: started with one socket, watched, and ended when its connection goes.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hexloom::transport::TransportError;

use crate::EmuOptions;

/// The image expects its socket as this descriptor.
const GUEST_SOCKET: i32 = 3;
/// Lines of the image's log that are kept for the message when it dies.
const LAST_WORDS: usize = 4;

/// A running emulator.
pub(crate) struct Process {
    child: Child,
    words: Arc<Mutex<VecDeque<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts the emulator with `socket` as the image's descriptor 3.
    pub(crate) fn start(options: &EmuOptions, socket: &OwnedFd) -> Result<Self, TransportError> {
        check_executable(&options.image)?;
        let fd = socket.as_raw_fd();
        let mut command = Command::new(&options.qemu);
        command
            .arg(&options.image)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // SAFETY: between fork and exec only `dup2` and `fcntl` are called, which are async-signal-safe; `fd` is open.
        unsafe { command.pre_exec(move || inherit_as(fd, GUEST_SOCKET)) };
        let mut child = command.spawn().map_err(|error| TransportError::Call {
            call: "starting the emulator",
            reason: format!(
                "{} {}: {error}; `cargo xtask firmware` installs the one and builds the other",
                options.qemu.display(),
                options.image.display()
            ),
            code: error.raw_os_error().unwrap_or(0),
        })?;
        let words = Arc::new(Mutex::new(VecDeque::new()));
        let stderr = child.stderr.take();
        let reader = stderr.map(|stderr| {
            let words = Arc::clone(&words);
            std::thread::spawn(move || relay(stderr, &words))
        });
        Ok(Self { child, words, reader })
    }

    /// How the process ended, with its last words; waits a moment for it to do so.
    pub(crate) fn epitaph(&mut self) -> String {
        let end = Instant::now() + Duration::from_secs(1);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status.to_string(),
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
                Ok(None) => break "it closed its socket and still runs".to_owned(),
                Err(error) => break error.to_string(),
            }
        };
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.is_empty() {
            true => format!("the emulated DSP ended: {status}"),
            false => format!(
                "the emulated DSP ended: {status}; its last words: {}",
                words.join(" | ")
            ),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Either call fails only when the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// The emulator ends without a word when it may not execute the image.
fn check_executable(image: &Path) -> Result<(), TransportError> {
    let mode = std::fs::metadata(image).map(|metadata| metadata.permissions().mode());
    let reason = match mode {
        Ok(mode) if mode & 0o111 != 0 => return Ok(()),
        Ok(mode) => format!("mode {mode:o} does not let it be executed"),
        Err(error) => error.to_string(),
    };
    Err(TransportError::Call {
        call: "starting the emulator",
        reason: format!(
            "image {}: {reason}; `cargo xtask firmware` makes it anew",
            image.display()
        ),
        code: 0,
    })
}

fn relay(stderr: impl Read, words: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        log::info!("dsp: {line}");
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() == LAST_WORDS {
            words.pop_front();
        }
        words.push_back(line);
    }
}

/// Makes `fd` the descriptor `to` of the program to be executed.
fn inherit_as(fd: i32, to: i32) -> std::io::Result<()> {
    use rustix::fd::{BorrowedFd, FromRawFd};
    use rustix::io::{FdFlags, dup2, fcntl_setfd};
    // SAFETY: the descriptor is open in the parent, which keeps it until the child has started.
    let from = unsafe { BorrowedFd::borrow_raw(fd) };
    if fd == to {
        return Ok(fcntl_setfd(from, FdFlags::empty())?);
    }
    // SAFETY: in the child every other descriptor is closed at exec, so taking over `to` harms nobody; it is forgotten
    // below and so never closed here.
    let mut target = unsafe { OwnedFd::from_raw_fd(to) };
    let result = dup2(from, &mut target);
    std::mem::forget(target);
    Ok(result?)
}
