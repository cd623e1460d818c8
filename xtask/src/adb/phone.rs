//! A phone behind `adb`: reached once, then files and shell scripts.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::process;

/// A phone that answers.
pub(crate) struct Phone {
    adb: PathBuf,
    serial: Option<String>,
    /// The package's folder on it, without quotes or spaces.
    folder: String,
    /// What is put before programs of the package.
    settings: String,
    deadline: Instant,
}

/// The variable of hexloom's programs that names the kind of process on the DSP; one that is set here holds there.
pub(super) const PROCESS_VAR: &str = "HEXLOOM_PROCESS";

/// What a script on the phone did.
#[derive(Debug, PartialEq)]
pub(crate) struct Ran {
    pub(crate) success: bool,
    /// Lines of its two outputs.
    pub(crate) lines: Vec<String>,
}

impl Phone {
    /// Asks adb for the phone; an error says what stands in the way and what to do.
    pub(crate) fn reach(adb: PathBuf, serial: Option<String>, folder: &str, deadline: Instant) -> Result<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        if !folder.starts_with('/') || !folder.chars().all(is_plain) {
            bail!("--folder {folder:?}: give an absolute path of letters, digits, `/`, `.`, `_` and `-`");
        }
        let phone = Self {
            adb,
            serial,
            folder: folder.to_owned(),
            settings: String::new(),
            deadline,
        };
        let mut lines = Vec::new();
        let status = process::run_lines(phone.adb().arg("get-state"), deadline, |line| {
            lines.push(line.to_owned())
        })
        .with_context(|| {
            format!(
                "{} cannot be started: install Android's platform tools (Debian: apt-get install -y adb), or name \
                     the program in the variable ADB",
                phone.adb.display()
            )
        })?;
        let said = lines.join(" ");
        if status.success() && lines.last().is_some_and(|state| state == "device") {
            return Ok(phone);
        }
        bail!("the phone does not answer: adb says {said:?}; {}", remedy(&said))
    }

    /// Lets programs open processes of a kind on the DSP: `unsigned` or `signed`.
    pub(crate) fn with_process(mut self, kind: &str) -> Result<Self> {
        if !["unsigned", "signed"].contains(&kind) {
            bail!("{PROCESS_VAR} is {kind:?}; it can be `unsigned` or `signed`");
        }
        self.settings = format!("env {PROCESS_VAR}={kind} ");
        Ok(self)
    }

    /// A program of the package with its arguments, as words for a script.
    pub(crate) fn program(&self, words: &str) -> String {
        format!("{}bin/hexloom-env.sh {words}", self.settings)
    }

    pub(crate) fn folder(&self) -> &str {
        &self.folder
    }

    /// Runs a script in the package's folder and gives every line that it prints.
    pub(crate) fn run(&self, script: &str) -> Result<Ran> {
        self.run_lines(script, |_| {})
    }

    /// The same, and hands each line over when it comes.
    pub(crate) fn run_lines(&self, script: &str, mut on_line: impl FnMut(&str)) -> Result<Ran> {
        let script = format!("cd {} && {script}", self.folder);
        let mut lines = Vec::new();
        let status = process::run_lines(self.adb().args(["shell", &script]), self.deadline, |line| {
            on_line(line);
            lines.push(line.to_owned());
        })?;
        Ok(Ran {
            success: status.success(),
            lines,
        })
    }

    /// The same, and an error unless it succeeds; the error carries what it printed.
    pub(crate) fn must(&self, script: &str) -> Result<Vec<String>> {
        let ran = self.run(script)?;
        if !ran.success {
            bail!("on the phone, `{script}` failed:\n{}", ran.lines.join("\n"));
        }
        Ok(ran.lines)
    }

    /// Makes a folder on the phone, the package's own included.
    pub(crate) fn make_folder(&self, relative: &str) -> Result<()> {
        let made = process::output(
            self.adb()
                .args(["shell", &format!("mkdir -p {}/{relative}", self.folder)]),
        );
        made.map(drop)
    }

    /// Copies a file to a place below the package's folder.
    pub(crate) fn push(&self, from: &Path, relative: &str) -> Result<()> {
        let mut adb = self.adb();
        adb.arg("push").arg(from).arg(format!("{}/{relative}", self.folder));
        let mut lines = Vec::new();
        let status = process::run_lines(&mut adb, self.deadline, |line| lines.push(line.to_owned()))?;
        if !status.success() {
            bail!("cannot push {}: {}", from.display(), lines.join(" "));
        }
        Ok(())
    }

    /// Becomes a shell on the phone.
    pub(crate) fn shell_session(&self) -> Result<ExitCode> {
        let script = format!("cd {} && exec {}", self.folder, self.program("sh"));
        Err(self.adb().args(["shell", "-t", &script]).exec()).context("cannot start adb")
    }

    fn adb(&self) -> Command {
        let mut adb = Command::new(&self.adb);
        if let Some(serial) = &self.serial {
            adb.args(["-s", serial]);
        }
        adb
    }
}

/// What to do about what adb says.
fn remedy(said: &str) -> &'static str {
    let known = [
        (
            "no devices",
            "connect it by cable and switch on USB debugging in its developer options",
        ),
        ("more than one", "name one by --serial; `adb devices` lists them"),
        ("unauthorized", "unlock it and accept this computer's key"),
        (
            "offline",
            "take the cable out and put it in again, or run `adb kill-server`",
        ),
        (
            "no permissions",
            "install the rules for Android's devices (Debian: android-sdk-platform-tools-common) and log in again",
        ),
    ];
    let found = known.into_iter().find(|(words, _)| said.contains(words));
    found.map_or("`adb devices` shows what it sees", |(_, remedy)| remedy)
}
