//! Tools that this machine may lack: found, else installed where that may be done, else named with the one command that
//! installs them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::process;

/// A tool with the Debian packages that bring it.
pub(crate) struct Wanted {
    /// What it is, as the object of "install".
    pub(crate) what: &'static str,
    pub(crate) packages: &'static [&'static str],
    /// The command where there are no Debian packages.
    pub(crate) elsewhere: Option<&'static str>,
}

impl Wanted {
    /// The tool by `find`, installed first if need be and allowed; an error names what is missing and one command.
    pub(crate) fn ensure(&self, find: impl Fn() -> Option<PathBuf>, deadline: Instant) -> Result<PathBuf> {
        self.ensure_by(find, |wanted| may_install().then(|| wanted.install(deadline)))
    }

    /// The tool by `find`, after `install` if need be; `install` gives nothing where it may not.
    fn ensure_by(
        &self,
        find: impl Fn() -> Option<PathBuf>,
        install: impl Fn(&Self) -> Option<Result<()>>,
    ) -> Result<PathBuf> {
        if let Some(found) = find() {
            return Ok(found);
        }
        match install(self) {
            Some(done) => done?,
            None => bail!("{}", self.missing()),
        }
        find().with_context(|| format!("`{}` did not bring {}", self.line(), self.what))
    }

    fn line(&self) -> String {
        format!("apt-get install -y --no-install-recommends {}", self.packages.join(" "))
    }

    fn missing(&self) -> String {
        let elsewhere = self.elsewhere.map(|line| format!(" (without apt-get: {line})"));
        let elsewhere = elsewhere.unwrap_or_default();
        format!("{} is missing; install it with: {}{elsewhere}", self.what, self.line())
    }

    fn install(&self, deadline: Instant) -> Result<()> {
        eprintln!("installing {}", self.packages.join(" "));
        let mut apt = Command::new("apt-get");
        // Another apt-get that is at work is waited for, with an end.
        apt.args(["-q", "-o", "DPkg::Lock::Timeout=300"])
            .args(["install", "-y", "--no-install-recommends"])
            .args(self.packages)
            .env("DEBIAN_FRONTEND", "noninteractive");
        // The lists of a bare machine are empty; where they are good, reading them again is a waste.
        if process::run(&mut apt, deadline).is_err() {
            process::run(Command::new("apt-get").args(["-q", "update"]), deadline)?;
            process::run(&mut apt, deadline).with_context(|| self.missing())?;
        }
        Ok(())
    }
}

fn may_install() -> bool {
    rustix::process::geteuid().is_root() && on_path("apt-get").is_some()
}

/// The first file of that name in a folder of `PATH`.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&path).map(|folder| folder.join(program));
    all.find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOL: Wanted = Wanted {
        what: "the Hexagon emulator",
        packages: &["qemu-user"],
        elsewhere: None,
    };

    #[test]
    fn a_missing_tool_gives_its_one_command() {
        let error = TOOL.ensure_by(|| None, |_| None).unwrap_err();
        let wanted =
            "the Hexagon emulator is missing; install it with: apt-get install -y --no-install-recommends qemu-user";
        assert_eq!(error.to_string(), wanted);
        let found = TOOL
            .ensure_by(|| on_path("sh"), |_| panic!("nothing is missing"))
            .unwrap();
        assert!(found.ends_with("sh"));
    }

    #[test]
    fn what_was_installed_is_looked_for_again() {
        let installed = std::cell::Cell::new(false);
        let find = || installed.get().then(|| PathBuf::from("tool"));
        let install = |_: &Wanted| {
            installed.set(true);
            Some(Ok(()))
        };
        assert_eq!(TOOL.ensure_by(find, install).unwrap(), PathBuf::from("tool"));
        let error = TOOL.ensure_by(|| None, |_| Some(Ok(()))).unwrap_err().to_string();
        assert!(error.contains("qemu-user` did not bring"), "{error}");
    }
}
