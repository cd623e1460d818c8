//! Running other programs: with their output read line by line, to the end, or left alone. None waits for ever.
//!
//! A program gets a process group of its own, so that what it started ends with it: on the deadline, on Ctrl-C and on
//! SIGTERM.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

const POLL: Duration = Duration::from_millis(50);
/// Longest time of a program that only tells something: one that takes longer waits for somebody.
const ANSWER: Duration = Duration::from_secs(300);
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
    output(command.arg("--version")).is_ok()
}

/// Standard output of a program that must succeed, and soon; its error carries standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    output_before(command, Instant::now() + ANSWER)
}

fn output_before(command: &mut Command, deadline: Instant) -> Result<String> {
    let shown = show(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::spawn(command, &shown)?;
    // Both are read at once: a program that has filled one pipe waits.
    let [out, err] = [
        group
            .child
            .stdout
            .take()
            .map(|out| Box::new(out) as Box<dyn Read + Send>),
        group.child.stderr.take().map(|err| Box::new(err) as _),
    ]
    .map(read_all);
    let status = group.wait(&shown, deadline)?;
    if !status.success() {
        let said = err.recv_timeout(GRACE).unwrap_or_default();
        bail!(
            "`{shown}` failed ({status}):\n{}",
            String::from_utf8_lossy(&said).trim_end()
        );
    }
    let out = out.recv_timeout(GRACE);
    let out =
        out.with_context(|| format!("`{shown}` has ended, and something that it has started keeps its output"))?;
    String::from_utf8(out).with_context(|| format!("`{shown}` printed no UTF-8"))
}

/// Everything that comes, once it has come.
fn read_all(output: Option<Box<dyn Read + Send>>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, all) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error counts; the program's status says whether that is all.
        let _ = output.map(|mut output| output.read_to_end(&mut bytes));
        // Whoever waited may have given up.
        let _ = sender.send(bytes);
    });
    all
}

/// Runs a program whose output goes where ours goes; it must succeed before the deadline.
pub(crate) fn run(command: &mut Command, deadline: Instant) -> Result<()> {
    let shown = show(command);
    let status = Group::spawn(command, &shown)?.wait(&shown, deadline)?;
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

    /// Waits for the program; at the deadline the group ends.
    fn wait(&mut self, shown: &str, deadline: Instant) -> Result<ExitStatus> {
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                self.end();
                bail!("`{shown}` was ended: the deadline has passed");
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(POLL);
        }
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
        // What it has started has its output open still.
        let error = output_before(&mut shell("sleep 1000 & wait"), Instant::now()).unwrap_err();
        assert!(error.to_string().contains("deadline"), "{error}");
    }

    #[test]
    fn a_program_may_say_much_on_both_outputs() {
        let script = "i=0; while [ $i -lt 20000 ]; do echo out$i; echo err$i >&2; i=$((i+1)); done";
        let text = output(&mut shell(script)).unwrap();
        assert!(text.len() > 100_000 && text.ends_with("out19999\n"));
    }

    #[test]
    fn failures_name_the_program_and_what_it_said() {
        let error = output(&mut shell("echo no luck >&2; exit 1")).unwrap_err();
        assert!(error.to_string().contains("no luck"), "{error}");
        let error = output(&mut Command::new("hexloom-no-such-program")).unwrap_err();
        assert!(error.to_string().contains("hexloom-no-such-program"));
    }
}
