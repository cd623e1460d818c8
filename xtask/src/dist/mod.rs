//! `cargo xtask dist`: a package for one kind of machine, as a folder and as one file.
//!
//! Programs and the plug-in are built for the target ([`build`]), device libraries of every architecture are taken from
//! `cargo xtask firmware` or, with `--libraries`, from elsewhere; all are held against the rules of a build ([`Rules`]). The
//! manifest names all of it ([`package`]). A package without a library for some architecture is not made.

pub(crate) mod archive;
pub(crate) mod build;
pub(crate) mod package;
pub(crate) mod target;

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::firmware::{self, Rules};
use crate::steps::DEADLINE_S;
use crate::workspace::Workspace;
use build::{Built, Product};
use package::{DEVICE_FOLDER, Package};
use target::Target;

/// Files of the repository with their places in a package, and whether they are programs.
const SOURCES: [(&str, &str, bool); 4] = [
    ("LICENSE-APACHE", "LICENSE-APACHE", false),
    ("LICENSE-MIT", "LICENSE-MIT", false),
    ("docs/device.md", "device.md", false),
    ("toolchains/adb/hexloom-env.sh", "bin/hexloom-env.sh", true),
];

/// What to make.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the package shall run.
    #[arg(long)]
    target: Target,
    /// Take the device libraries from this folder, for instance signed ones, in place of building them.
    #[arg(long, value_name = "FOLDER")]
    libraries: Option<PathBuf>,
    /// Folder for the package; without it, `dist/` in the cache folder.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Makes a package and prints what is in it.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let started = Instant::now();
    let deadline = started + Duration::from_secs(DEADLINE_S);
    let out = args.out.clone().unwrap_or_else(|| workspace.cache.join("dist"));
    let (package, _) = make(&workspace, args.target, args.libraries.as_deref(), &out, deadline)?;
    let archive = archive::write(&package)?;
    let manifest = &package.manifest;
    for file in &manifest.files {
        println!("{:>12}  {}", file.bytes, file.path);
    }
    if let Some(version) = &manifest.glibc {
        println!("needs the GNU C library {version} or newer");
    }
    println!(
        "{}: {:.1} MB, made in {} s",
        archive.display(),
        fs::metadata(&archive)?.len() as f64 / 1e6,
        started.elapsed().as_secs()
    );
    Ok(ExitCode::SUCCESS)
}

/// Builds everything and lays the package's folder out in `out`, anew; gives the driver library's stand-in besides.
pub(crate) fn make(
    workspace: &Workspace,
    target: Target,
    libraries: Option<&Path>,
    out: &Path,
    deadline: Instant,
) -> Result<(Package, PathBuf)> {
    // Both have crates that one core compiles for minutes, so they are built side by side.
    let (built, libraries) = thread::scope(|scope| {
        let libraries = scope.spawn(|| match libraries {
            Some(folder) => Ok(folder.to_owned()),
            None => firmware::make_libraries(workspace, deadline),
        });
        let built = build::build(workspace, target, deadline);
        (built, libraries.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    let Built { products, driver } = built?;
    let libraries = libraries?;
    let rules = Rules::read(workspace)?;
    let version = env!("CARGO_PKG_VERSION");
    let folder = out.join(format!("hexloom-{version}-{}", target.name()));
    lay_out(workspace, target, &products, (&libraries, &rules), &folder)?;
    let package = Package::seal(&folder, target, version, abi_version(workspace)?)?;
    Ok((package, driver))
}

fn lay_out(
    workspace: &Workspace,
    target: Target,
    products: &[Product],
    (libraries, rules): (&Path, &Rules),
    folder: &Path,
) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot replace {}", folder.display()))?;
    }
    for product in products {
        let bytes = fs::read(&product.built).with_context(|| format!("cannot read {}", product.built.display()))?;
        check_machine(&bytes, target.machine()).with_context(|| product.built.display().to_string())?;
        put(&bytes, &folder.join(product.place), product.place.starts_with("bin/"))?;
    }
    put_libraries(libraries, rules, &folder.join(DEVICE_FOLDER))?;
    for (from, place, executable) in SOURCES {
        let from = workspace.root.join(from);
        let bytes = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        put(&bytes, &folder.join(place), executable)?;
    }
    Ok(())
}

/// Takes every device library from a folder, if each is what it is called.
fn put_libraries(from: &Path, rules: &Rules, to: &Path) -> Result<()> {
    for name in rules.names() {
        let path = from.join(name);
        let bytes = fs::read(&path).with_context(|| {
            format!(
                "the package needs {name}, and {} cannot be read; `cargo xtask firmware` makes it",
                path.display()
            )
        })?;
        rules.check(&bytes, name).with_context(|| path.display().to_string())?;
        put(&bytes, &to.join(name), false)?;
    }
    Ok(())
}

fn put(bytes: &[u8], path: &Path, executable: bool) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(path.parent().context("a place in the package has no folder")?)?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    let mode = if executable { 0o755 } else { 0o644 };
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// Whether a program is a 64-bit one for that machine.
fn check_machine(file: &[u8], machine: u16) -> Result<()> {
    let found = file.get(18..20).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    if !file.starts_with(b"\x7fELF\x02\x01") || found != Some(machine) {
        bail!("this is no 64-bit program for ELF machine {machine}: its header has {found:?}");
    }
    Ok(())
}

/// The version of the wire, from the crate that both sides share.
fn abi_version(workspace: &Workspace) -> Result<u32> {
    let path = workspace.root.join("shared-abi/src/limits.rs");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("pub const VERSION: u16 = "));
    let number = line.and_then(|rest| rest.trim_end_matches(';').parse().ok());
    number.with_context(|| format!("{} has no line `pub const VERSION: u16 = N;`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firmware::elf::{SIGNER_HASHES, sample};
    use crate::firmware::{loader, tests};

    /// A file in a folder of libraries that is another library, or none, is not packed.
    #[test]
    fn libraries_of_others_are_held_against_the_rules() {
        let folder = std::env::temp_dir().join(format!("hexloom-libraries-{}", std::process::id()));
        let to = folder.join("dsp");
        fs::create_dir_all(&folder).unwrap();
        let rules = tests::rules();
        let take = |file: Option<&[u8]>| {
            if let Some(file) = file {
                fs::write(folder.join("lib.so"), file).unwrap();
            }
            put_libraries(&folder, &rules, &to).map_err(|error| format!("{error:#}"))
        };
        assert!(take(None).unwrap_err().contains("the package needs lib.so"));
        let mut file = sample::library();
        assert!(take(Some(&file)).unwrap_err().contains("no SYMBOLIC"));
        loader::stamp(&mut file).unwrap();
        let mut other = file.clone();
        loader::stamp_arch(&mut other, "v75").unwrap();
        let error = take(Some(&other)).unwrap_err();
        assert!(
            error.contains("lib.so") && error.contains("not those of v73"),
            "{error}"
        );
        assert!(!to.exists());
        take(Some(&file)).unwrap();
        sample::put(&mut file, sample::SEGMENTS + 64 + 24, SIGNER_HASHES);
        take(Some(&file)).unwrap();
        assert_eq!(fs::read(to.join("lib.so")).unwrap(), file);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_wire_has_a_version() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let workspace = Workspace {
            cache: root.join("no"),
            root,
        };
        assert!(abi_version(&workspace).unwrap() >= 1);
    }

    #[test]
    fn programs_for_other_machines_are_refused() {
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\xb7\0".to_vec();
        check_machine(&file, object::elf::EM_AARCH64).unwrap();
        let error = check_machine(&file, object::elf::EM_X86_64).unwrap_err().to_string();
        assert!(error.contains("machine 62") && error.contains("183"), "{error}");
        file.truncate(19);
        check_machine(&file, object::elf::EM_AARCH64).unwrap_err();
    }
}
