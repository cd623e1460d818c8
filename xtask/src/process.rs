//! Running other programs: with a deadline, with their output read line by line, or to the end.
//!
//! A program with a deadline gets a process group of its own, so that what it started ends with
//! it: on the deadline, on Ctrl-C and on SIGTERM.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

const POLL: Duration = Duration::from_millis(50);
/// Time between asking a group to end and ending it; nextest takes 10 s to end its tests.
const GRACE: Duration = Duration::from_secs(15);

/// The groups that Ctrl-C and SIGTERM have to reach, as they are not the terminal's foreground group.
static LIVE: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// cargo, without the variables that `cargo run` set for this program: with them, build scripts
/// that watch the environment would run again.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name.as_ref());
        }
    }
    command
}

/// Whether `program` starts with `--version` and says that all is well.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Standard output of a program that must succeed; its error carries standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}):\n{}", output.status, said.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` printed no UTF-8"))
}

/// Runs a program whose output goes where ours goes; it must succeed before the deadline.
pub(crate) fn run(command: &mut Command, deadline: Instant) -> Result<()> {
    let shown = show(command);
    let mut group = Group::spawn(command, &shown)?;
    let status = loop {
        if let Some(status) = group.child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            group.end();
            bail!("`{shown}` was ended: the deadline has passed");
        }
        std::thread::sleep(POLL);
    };
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a program and hands over each line of its two outputs, in order of arrival.
pub(crate) fn run_lines(command: &mut Command, deadline: Instant, mut on_line: impl FnMut(&str)) -> Result<ExitStatus> {
    let shown = show(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::spawn(command, &shown)?;
    let (sender, lines) = mpsc::channel();
    let outputs: [Option<Box<dyn Read + Send>>; 2] = [
        group.child.stdout.take().map(|out| Box::new(out) as _),
        group.child.stderr.take().map(|err| Box::new(err) as _),
    ];
    for output in outputs.into_iter().flatten() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n') {
                let Ok(line) = line else { break };
                let line = String::from_utf8_lossy(&line).into_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    drop(sender);
    loop {
        match lines.recv_timeout(POLL) {
            Ok(line) => on_line(line.trim_end_matches('\r')),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= deadline {
            group.end();
            bail!("`{shown}` was ended: the deadline has passed");
        }
    }
    Ok(group.child.wait()?)
}

/// A program as one would type it.
fn show(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let mut shown = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    for arg in command.get_args() {
        shown.push(' ');
        shown.push_str(&arg.to_string_lossy());
    }
    shown
}

struct Group {
    child: Child,
    pid: Pid,
}

impl Group {
    fn spawn(command: &mut Command, shown: &str) -> Result<Self> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // Without a handler Ctrl-C still ends us; only the group would run on.
            let _ = ctrlc::set_handler(|| {
                let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
                for &pid in live.iter() {
                    let _ = kill_process_group(pid, Signal::TERM);
                }
                std::process::exit(130);
            });
        });
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start `{shown}`"))?;
        let pid = Pid::from_child(&child);
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
        Ok(Self { child, pid })
    }

    /// Asks the whole group to end, and ends it if it does not. A group that is gone is fine.
    fn end(&mut self) {
        let _ = kill_process_group(self.pid, Signal::TERM);
        let last = Instant::now() + GRACE;
        while Instant::now() < last && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(POLL);
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        LIVE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|&pid| pid != self.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_of_both_outputs_arrive() {
        let mut lines = Vec::new();
        let far = Instant::now() + Duration::from_secs(60);
        let status = run_lines(&mut shell("echo a; echo b >&2; exit 3"), far, |line| {
            lines.push(line.to_owned());
        })
        .unwrap();
        lines.sort();
        assert_eq!(lines, ["a", "b"]);
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn a_deadline_ends_the_program() {
        let error = run(&mut shell("sleep 1000"), Instant::now()).unwrap_err();
        assert!(error.to_string().contains("deadline"), "{error}");
    }

    #[test]
    fn failures_name_the_program_and_what_it_said() {
        let error = output(&mut shell("echo no luck >&2; exit 1")).unwrap_err();
        assert!(error.to_string().contains("no luck"), "{error}");
        let error = output(&mut Command::new("hexloom-no-such-program")).unwrap_err();
        assert!(error.to_string().contains("hexloom-no-such-program"));
    }
}
