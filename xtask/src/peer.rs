//! llama.cpp to measure against: Debian's own packages, unpacked into the cache folder.
//!
//! Nothing is installed and no package of this machine changes: apt works on lists, a status file
//! and an archive folder of its own, and the programs run through their own loader and libraries.
//! The mirror is the one that this machine's Debian sources name. The suite moves on, so what was
//! unpacked is recorded with its checksums in `packages.txt`, and kept until the folder is deleted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::process;
use crate::workspace::Workspace;

const SUITE: &str = "sid";
const PACKAGE: &str = "llama.cpp-tools";
const TRIPLE: &str = "x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const RECORD: &str = "packages.txt";
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) struct Peer {
    root: PathBuf,
    /// Package file names with version, as recorded.
    pub(crate) version: String,
}

impl Peer {
    /// A program of the packages, run by their own loader.
    pub(crate) fn program(&self, name: &str) -> Command {
        let libraries = self.root.join("usr/lib").join(TRIPLE);
        let mut path = libraries.join("llama").into_os_string();
        path.push(":");
        path.push(&libraries);
        let mut command = Command::new(libraries.join(LOADER));
        command
            .arg("--library-path")
            .arg(path)
            .arg(self.root.join("usr/bin").join(name))
            // ggml looks for its CPU back ends in the current folder, too.
            .current_dir(libraries.join("ggml/backends0"));
        command
    }
}

/// The peer, set up if it is not there; `None` (and a loud line) where it cannot be had.
pub(crate) fn ensure(workspace: &Workspace) -> Result<Option<Peer>> {
    let folder = workspace.cache.join("peer");
    if let Some(peer) = recorded(&folder) {
        return Ok(Some(peer));
    }
    let skip = |why: &str| {
        eprintln!("SKIPPED: llama.cpp cannot be measured here: {why}");
        Ok(None)
    };
    if std::env::consts::ARCH != "x86_64" {
        return skip("its packages are set up for x86-64 only");
    }
    if !process::works(&mut Command::new("apt-get")) {
        return skip("apt-get was not found");
    }
    let Some(mirror) = machine_mirror() else {
        return skip("this machine's apt sources name no Debian mirror");
    };
    match set_up(&folder, &mirror) {
        Ok(()) => recorded(&folder).context("the packages hold no llama-bench").map(Some),
        Err(error) => skip(&format!("{error:#}")),
    }
}

fn recorded(folder: &Path) -> Option<Peer> {
    let record = fs::read_to_string(folder.join(RECORD)).ok()?;
    let root = folder.join("root");
    let version = record
        .lines()
        .filter_map(|line| line.split_whitespace().next_back())
        .filter(|file| file.starts_with(PACKAGE) || file.starts_with("libggml0"))
        .collect::<Vec<_>>()
        .join(", ");
    let bench = root.join("usr/bin/llama-bench");
    bench.exists().then_some(Peer { root, version })
}

fn set_up(folder: &Path, mirror: &str) -> Result<()> {
    eprintln!("setting up llama.cpp from Debian's packages (once, about 40 MB)");
    // What an earlier, broken set-up left is of no use.
    let _ = fs::remove_dir_all(folder);
    for part in ["lists/partial", "archives/partial", "root"] {
        fs::create_dir_all(folder.join(part))?;
    }
    fs::write(folder.join("status"), "")?;
    let source = format!("deb [signed-by={KEYRING}] {mirror} {SUITE} main\n");
    fs::write(folder.join("sources.list"), source)?;
    let deadline = Instant::now() + LIMIT;
    let apt = |words: &[&str]| process::run(apt_get(folder).args(words), deadline);
    apt(&["update"])?;
    apt(&[
        "install",
        "--no-install-recommends",
        "--yes",
        "--download-only",
        PACKAGE,
    ])?;

    let mut packages: Vec<PathBuf> = fs::read_dir(folder.join("archives"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "deb"))
        .collect();
    packages.sort();
    for package in &packages {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("-x").arg(package).arg(folder.join("root"));
        process::output(&mut dpkg)?;
    }
    let names = packages.iter().filter_map(|path| path.file_name());
    let mut sums = Command::new("sha256sum");
    sums.args(names).current_dir(folder.join("archives"));
    // Written last: it vouches for all the rest.
    fs::write(folder.join(RECORD), process::output(&mut sums)?)?;
    Ok(())
}

/// apt-get on lists, status and archives inside `folder`, blind to the machine's own.
fn apt_get(folder: &Path) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["--quiet=2", "-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=true"]);
    for (option, value) in [
        ("Dir::Etc::SourceParts", "/dev/null"),
        ("Dir::Cache::pkgcache", ""),
        ("Dir::Cache::srcpkgcache", ""),
        ("APT::Update::Post-Invoke-Success", ""),
    ] {
        command.arg("-o").arg(format!("{option}={value}"));
    }
    for (option, part) in [
        ("Dir::Etc::SourceList", "sources.list"),
        ("Dir::State::Lists", "lists"),
        ("Dir::State::status", "status"),
        ("Dir::Cache::archives", "archives"),
    ] {
        let value = folder.join(part);
        command.arg("-o").arg(format!("{option}={}", value.display()));
    }
    command
}

fn machine_mirror() -> Option<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.sort();
    files.iter().find_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        match file.extension()?.to_str()? {
            "sources" => mirror_of_stanzas(&text),
            "list" => mirror_of_lines(&text),
            _ => None,
        }
    })
}

/// Debian's main archive ends in `/debian`; its security archive and other people's do not.
fn is_debian(uri: &str) -> bool {
    uri.trim_end_matches('/').ends_with("/debian")
}

fn mirror_of_lines(text: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix("deb "))
        .flat_map(str::split_whitespace)
        .find(|word| is_debian(word))
        .map(str::to_owned)
}

fn mirror_of_stanzas(text: &str) -> Option<String> {
    text.split("\n\n")
        .filter(|stanza| {
            let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name));
            field("Types:").is_some_and(|types| types.split_whitespace().any(|kind| kind == "deb"))
                && field("Enabled:").is_none_or(|enabled| enabled.trim() != "no")
        })
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("URIs:"))
        .flat_map(str::split_whitespace)
        .find(|uri| is_debian(uri))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_of_the_main_archive_is_found() {
        let stanzas = "Types: deb\nURIs: http://a.example/debian-security\nSuites: x\n
Types: deb\n# URIs: http://b.example/debian\nURIs: http://c.example/debian/\nSuites: x";
        let found = mirror_of_stanzas(stanzas);
        assert_eq!(found.as_deref(), Some("http://c.example/debian/"));
        let off = "Types: deb\nEnabled: no\nURIs: http://c.example/debian";
        assert_eq!(mirror_of_stanzas(off), None);

        let lines = "# deb http://a.example/debian x main
deb-src http://b.example/debian x main
deb [signed-by=/k.gpg] http://c.example/ubuntu x main
deb [arch=amd64] http://d.example/debian x main";
        let found = mirror_of_lines(lines);
        assert_eq!(found.as_deref(), Some("http://d.example/debian"));
    }
}
