//! Programs built on ggml, to measure and to test against: Debian's own packages, unpacked into the cache folder.
//!
//! Nothing is installed and no package of this machine changes: apt works on lists, a status file
//! and an archive folder of its own, and the programs run through their own loader and libraries.
//! The suite moves on: what is pinned here is taken while it is there and checked, and a newer version serves
//! when it is gone. What was unpacked is recorded with its checksums in `packages.txt`, and kept until the folder is
//! deleted or another package is asked for.

mod apt;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::workspace::Workspace;

const SUITE: &str = "sid";
const TRIPLE: &str = "x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const RECORD: &str = "packages.txt";
const LIMIT: Duration = Duration::from_secs(300);

/// A package whose version decides what is measured.
struct Pin {
    package: &'static str,
    version: &'static str,
    sha256: &'static str,
}

const LIBGGML: Pin = Pin {
    package: "libggml0",
    version: "0.27.0-1",
    sha256: "f621153d6615a8dd1ac4b14e110cbafca34cc66f551367c5f6326f71fb141b0d",
};

/// Packages that are set up together.
struct Set {
    /// Where, in the cache folder.
    folder: &'static str,
    what: &'static str,
    pins: &'static [Pin],
    /// Packages that others ask for and these programs never load, with all that they would bring.
    unneeded: &'static [&'static str],
}

const GGML: Set = Set {
    folder: "peer",
    what: "ggml, llama.cpp and their tests from Debian's packages (once, about 40 MB)",
    pins: GGML_PINS,
    unneeded: &[],
};

/// whisper-cli reads sound through ffmpeg's libraries, which are most of it; espeak-ng makes something to hear.
const SPEECH: Set = Set {
    folder: "peer-speech",
    what: "whisper.cpp and espeak-ng from Debian's packages (once, about 90 MB)",
    pins: SPEECH_PINS,
    unneeded: &["libsdl2-2.0-0", "libgl1-mesa-dri"],
};

const SPEECH_PINS: &[Pin] = &[
    LIBGGML,
    Pin {
        package: "libwhisper1",
        version: "1.9.5+dfsg-1",
        sha256: "9d44352baa73b79d34d0fe56ad21ab7c4cc45b60b11cf7e37067965ce5e02ea7",
    },
    Pin {
        package: "whisper.cpp-tools",
        version: "1.9.5+dfsg-1",
        sha256: "6213928ef1469e9efe92c8c7d14f9e879a52cfb397bc7bb9ba5f7c5074ffa7bf",
    },
    Pin {
        package: "espeak-ng",
        version: "1.52.0+dfsg-5+b2",
        sha256: "239bbca92e516eca423e95648340a303b8ec64d37d28d1aeb936ac7b990b08f0",
    },
];

const GGML_PINS: &[Pin] = &[
    LIBGGML,
    Pin {
        package: "libggml-dev",
        version: "0.27.0-1",
        sha256: "66c4fd0a94885fc829c1ecc9f51536f5c5c928b32ebcb30d2d79038a7714f0a5",
    },
    Pin {
        package: "llama.cpp-tools",
        version: "1:0.7.0+dfsg-2",
        sha256: "3007c170f116891974bd37d5ba802f094c7d020412f2100cc71582fc8530895c",
    },
    Pin {
        package: "llama.cpp-tests",
        version: "1:0.7.0+dfsg-2",
        sha256: "c512d0401e66aab3bf94296f24816e5ac8cdaee88d06f7493212ff307b33d9fc",
    },
];

/// The unpacked programs.
pub(crate) struct Peer {
    root: PathBuf,
    /// Package file names with version, as recorded.
    pub(crate) version: String,
    /// Whether every pinned package is the pinned one.
    pub(crate) pinned: bool,
}

impl Peer {
    /// A program of the packages, run by their own loader.
    pub(crate) fn program(&self, name: &str) -> Command {
        self.run(&Path::new("usr/bin").join(name))
    }

    /// ggml's operator test.
    pub(crate) fn operator_test(&self) -> Command {
        self.run(&Path::new("usr/libexec").join(TRIPLE).join("ggml/test-backend-ops"))
    }

    /// Where the packages' libraries and what belongs to them are.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.root.join("usr/lib").join(TRIPLE)
    }

    /// A program of the packages or, with its whole path, any other, run by the packages' loader.
    pub(crate) fn run(&self, path: &Path) -> Command {
        let libraries = self.libraries();
        let mut search = libraries.clone().into_os_string();
        for part in ["llama", "pulseaudio"] {
            search.push(":");
            search.push(libraries.join(part));
        }
        let mut command = Command::new(libraries.join(LOADER));
        command
            .arg("--library-path")
            .arg(search)
            .arg(self.root.join(path))
            // ggml looks for its CPU back ends in the current folder, too.
            .current_dir(libraries.join("ggml/backends0"));
        command
    }
}

/// ggml and llama.cpp, set up if they are not there, or why they cannot be had here.
pub(crate) fn ensure(workspace: &Workspace) -> Result<Result<Peer, String>> {
    ensure_set(workspace, &GGML)
}

/// whisper.cpp and espeak-ng, in the same way.
pub(crate) fn ensure_speech(workspace: &Workspace) -> Result<Result<Peer, String>> {
    ensure_set(workspace, &SPEECH)
}

fn ensure_set(workspace: &Workspace, set: &Set) -> Result<Result<Peer, String>> {
    let folder = workspace.cache.join(set.folder);
    if let Some(peer) = recorded(set, &folder) {
        return Ok(Ok(peer));
    }
    let first = set.pins[1].package;
    let absent = |why: &str| {
        Ok(Err(format!(
            "{first} and others built on ggml cannot be had here: {why}"
        )))
    };
    if std::env::consts::ARCH != "x86_64" {
        return absent("the packages are set up for x86-64 only");
    }
    if !process::works(&mut Command::new("apt-get")) {
        return absent("apt-get was not found");
    }
    let Some(mirror) = apt::machine_mirror() else {
        return absent("this machine's apt sources name no Debian mirror");
    };
    match set_up(set, &folder, &mirror) {
        Ok(()) => recorded(set, &folder).context("not every package was brought").map(Ok),
        Err(error) => absent(&format!("{error:#}")),
    }
}

/// What an earlier set-up left, if nothing is missing.
fn recorded(set: &Set, folder: &Path) -> Option<Peer> {
    let record = fs::read_to_string(folder.join(RECORD)).ok()?;
    let files: Vec<&str> = record
        .lines()
        .filter_map(|line| line.split_whitespace().next_back())
        .collect();
    let of = |pin: &Pin| {
        let begin = format!("{}_", pin.package);
        files.iter().copied().find(|file| file.starts_with(&begin))
    };
    let named: Vec<&str> = set.pins.iter().map(of).collect::<Option<_>>()?;
    Some(Peer {
        root: folder.join("root"),
        version: named.join(", "),
        pinned: set.pins.iter().all(|pin| record.contains(pin.sha256)),
    })
}

fn set_up(set: &Set, folder: &Path, mirror: &str) -> Result<()> {
    eprintln!("setting up {}", set.what);
    // What an earlier, broken or smaller set-up left is of no use.
    let _ = fs::remove_dir_all(folder);
    for part in ["lists/partial", "archives/partial", "root"] {
        fs::create_dir_all(folder.join(part))?;
    }
    fs::write(folder.join("status"), apt::installed(set.unneeded))?;
    let source = format!("deb [signed-by={KEYRING}] {mirror} {SUITE} main\n");
    fs::write(folder.join("sources.list"), source)?;
    let deadline = Instant::now() + LIMIT;
    let apt = |words: &[String]| process::run(apt::apt_get(folder).args(words), deadline);
    apt(&["update".to_owned()])?;
    let download = |package: fn(&Pin) -> String| {
        let options = ["install", "--no-install-recommends", "--yes", "--download-only"];
        let words = options
            .map(str::to_owned)
            .into_iter()
            .chain(set.pins.iter().map(package));
        apt(&words.collect::<Vec<_>>())
    };
    if download(|pin| format!("{}={}", pin.package, pin.version)).is_err() {
        eprintln!("the suite has moved on from the pinned versions; what it has now is taken");
        download(|pin| pin.package.to_owned())?;
    }
    let packages = unpack(folder)?;
    let names = packages.iter().filter_map(|path| path.file_name());
    let mut sums = Command::new("sha256sum");
    sums.args(names).current_dir(folder.join("archives"));
    let sums = process::output(&mut sums)?;
    for pin in set.pins {
        // apt writes the colon of an epoch as %3a.
        let file = format!("{}_{}_", pin.package, pin.version.replace(':', "%3a"));
        let wrong = |line: &&str| line.contains(&file) && !line.starts_with(pin.sha256);
        if let Some(line) = sums.lines().find(wrong) {
            bail!("{file} is not the pinned package: {line}");
        }
    }
    // Written last: it vouches for all the rest.
    fs::write(folder.join(RECORD), sums)?;
    Ok(())
}

/// Unpacks every package that was brought, and gives their paths.
fn unpack(folder: &Path) -> Result<Vec<PathBuf>> {
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
    Ok(packages)
}
