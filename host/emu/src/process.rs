//! The emulator process: started with one socket, watched, and ended when its connection goes.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hexloom::transport::{Death, DeathCause, TransportError};
use rustix::process::Signal;

use crate::EmuOptions;
#[cfg(feature = "log-texts")]
use crate::frames::{LogStream, LogTable};

/// The image expects its socket as this descriptor.
const GUEST_SOCKET: i32 = 3;
/// Lines of the image's log that are kept for the message when it dies.
const LAST_WORDS: usize = 4;

/// A running emulator.
pub(crate) struct Process {
    child: Child,
    words: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
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
            .stdout(Stdio::piped())
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
        let mut readers = Vec::new();
        if let Some(stderr) = child.stderr.take() {
            let words = Arc::clone(&words);
            readers.push(std::thread::spawn(move || relay(stderr, &words)));
        }
        if let Some(stdout) = child.stdout.take() {
            let image = options.image.clone();
            readers.push(std::thread::spawn(move || relay_frames(stdout, &image)));
        }
        Ok(Self { child, words, readers })
    }

    /// How the process ended, with its last words; waits a moment for it to do so.
    pub(crate) fn epitaph(&mut self) -> Death {
        let end = Instant::now() + Duration::from_secs(1);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
                Ok(None) => break Err("it closed its socket and still runs".to_owned()),
                Err(error) => break Err(error.to_string()),
            }
        };
        // What it has written is complete once its outputs are closed.
        while status.is_ok() && Instant::now() < end && !self.readers.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let words = words.iter().map(String::as_str).collect::<Vec<_>>().join(" | ");
        let (cause, how) = match status {
            Ok(status) => (cause_of(status, &words), status.to_string()),
            Err(how) => (DeathCause::Unknown, how),
        };
        let what = match words.is_empty() {
            true => format!("the emulated DSP ended: {how}"),
            false => format!("the emulated DSP ended: {how}; its last words: {words}"),
        };
        Death { cause, what }
    }
}

/// The emulator ends by the signal that its guest would have got, or with the guest's exit code. Version 7.2 does not
/// survive an instruction that it cannot decode: it fails over itself, and says where.
fn cause_of(status: ExitStatus, words: &str) -> DeathCause {
    const DECODER_GAVE_UP: &str = "decode_packet: assertion failed";
    const ILLEGAL_INSTRUCTION: i32 = Signal::ILL.as_raw();
    const BAD_ADDRESSES: [i32; 2] = [Signal::SEGV.as_raw(), Signal::BUS.as_raw()];
    match (status.signal(), status.code()) {
        (Some(ILLEGAL_INSTRUCTION), _) => DeathCause::IllegalInstruction,
        (Some(_), _) if words.contains(DECODER_GAVE_UP) => DeathCause::IllegalInstruction,
        (Some(signal), _) if BAD_ADDRESSES.contains(&signal) => DeathCause::BadAddress,
        (Some(signal), _) => DeathCause::Signal(signal),
        (None, Some(code)) => DeathCause::Exit(code),
        (None, None) => DeathCause::Unknown,
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Either call fails only when the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
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

/// Reads log frames to their end, even when they cannot be decoded: an image whose output is full would wait for ever.
fn relay_frames(mut stdout: impl Read, image: &Path) {
    let (mut log, mut bytes) = (frame_log(image), [0; 1024]);
    while let Ok(len @ 1..) = stdout.read(&mut bytes) {
        log(&bytes[..len]);
    }
}

/// Writes the frames in pieces of an image's output as lines of the log.
#[cfg(feature = "log-texts")]
fn frame_log(image: &Path) -> impl FnMut(&[u8]) + use<> {
    let table = std::fs::read(image).map_err(|error| error.to_string());
    let table = table.and_then(|image| LogTable::read(&image).map_err(|error| error.to_string()));
    if let Err(why) = &table {
        log::warn!("{}: {why}", image.display());
    }
    let mut stream = LogStream::default();
    move |bytes| {
        let Ok(table) = &table else { return };
        stream.push(table, bytes, |line| match line {
            Ok(line) => log::log!(line.level, "dsp: {}", line.text),
            Err(bad) => log::warn!("dsp: {bad}"),
        });
    }
}

/// Says once that there are frames: this program has no decoder.
#[cfg(not(feature = "log-texts"))]
fn frame_log(_image: &Path) -> impl FnMut(&[u8]) + use<> {
    let once = std::sync::Once::new();
    move |_| once.call_once(|| log::warn!("dsp: it logs; to read it, use a program built with the feature log-texts"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_apart() {
        let check = |raw, words, cause| assert_eq!(cause_of(ExitStatus::from_raw(raw), words), cause, "{raw} {words}");
        check(0, "", DeathCause::Exit(0));
        check(101 << 8, "panicked", DeathCause::Exit(101));
        check(4, "", DeathCause::IllegalInstruction);
        check(
            11,
            "ERROR:decode.c:904:decode_packet: assertion failed: (n > 0)",
            DeathCause::IllegalInstruction,
        );
        check(11, "", DeathCause::BadAddress);
        check(9, "", DeathCause::Signal(9));
    }
}
