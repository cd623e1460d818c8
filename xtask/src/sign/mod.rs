//! `cargo xtask sign`: signatures for the device libraries of a package, by the SDK's signer or an owner's.
//!
//! Three ways, each checked when it is done: a signature for one test device, after which that device loads every library;
//! the test key in each library; a production key in each library, by a program of whoever holds it. None is needed for
//! unsigned processes, which is what hexloom opens, and every run says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::dist::archive;
use crate::dist::package::{DEVICE_FOLDER, Package, Signer};
use crate::firmware::elf::{Image, Segment};
use crate::process;
use crate::sdk::Sdk;

/// Longest time for one call of a signer.
const LIMIT: Duration = Duration::from_secs(120);

/// What unsigned libraries may do.
const UNSIGNED: &str = "\
Without any signature: the libraries load into an unsigned process on the compute DSP, which is what hexloom asks for \
where the driver allows it. It has HVX, the matrix unit, VTCM and packet queues. A signature is needed only for a signed \
process: on another DSP, on a device whose maker has closed unsigned processes, or for more rights. `hexloom doctor` on the \
device tells which it is, and HEXLOOM_PROCESS=signed asks for a signed process.";

/// What to sign, and how.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The package's folder, by `cargo xtask dist`.
    package: PathBuf,
    #[command(flatten)]
    way: Way,
}

/// How.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Way {
    /// Make a test signature for the device with this serial number, as `/sys/devices/soc0/serial_number` gives it
    /// (decimal) or with 0x in front.
    #[arg(long, value_name = "NUMBER", value_parser = serial)]
    device: Option<u64>,
    /// Sign each library with the SDK's test key: for every test device, and for no other.
    #[arg(long)]
    test_key: bool,
    /// Sign each library by `PROGRAM IN OUT`, which holds a key that production devices know.
    #[arg(long, value_name = "PROGRAM")]
    production: Option<PathBuf>,
}

/// Signs, and packs the package again.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    eprintln!("{UNSIGNED}\n");
    let mut package = Package::open(&args.package)?;
    match &args.way {
        Way {
            device: Some(serial), ..
        } => sign_device(&mut package, &Sdk::find()?.signer()?, *serial)?,
        Way {
            production: Some(program),
            ..
        } => {
            let signer = |from: &Path, to: &Path| {
                let mut command = Command::new(program);
                command.args([from, to]);
                Ok(command)
            };
            sign_libraries(&mut package, Signer::Production, signer)?;
        }
        _ => {
            let script = Sdk::find()?.signer()?;
            sign_libraries(&mut package, Signer::Test, |from, to| sdk_signs(&script, from, to))?;
        }
    }
    for library in &package.manifest.device_libraries {
        println!("{}: signer {:?}", library.path, library.signer);
    }
    for serial in &package.manifest.test_signatures {
        println!("test signature for the device {serial}");
    }
    println!("{}", archive::write(&package)?.display());
    Ok(ExitCode::SUCCESS)
}

/// Puts the test signature of one device beside the libraries.
fn sign_device(package: &mut Package, script: &Path, serial: u64) -> Result<()> {
    let folder = package.folder.join(DEVICE_FOLDER);
    let work = Work::new()?;
    let mut command = python(script);
    command.args(["-t", &format!("{serial:#x}"), "-o"]).arg(&work.0);
    process::run(&mut command, Instant::now() + LIMIT).with_context(|| failed(script))?;
    let name = format!("testsig-{serial:#x}.so");
    // Versions differ in the case of digits; the device looks for small letters.
    let found = fs::read_dir(&work.0)?.flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|found| found.eq_ignore_ascii_case(name.as_str()))
    };
    let made = found.into_iter().find(is_it);
    let made = made.with_context(|| format!("{} ended well and made no {name}", script.display()))?;
    let bytes = fs::read(&made)?;
    let image = Image::parse(&bytes).with_context(|| format!("{name}, made by {}", script.display()))?;
    if !image.is_signed() {
        bail!("{name}, made by {}, holds no signature", script.display());
    }
    fs::write(folder.join(&name), bytes)?;
    package.refresh()
}

/// Has every library signed into another file, checks that, and puts it in the library's place.
fn sign_libraries(
    package: &mut Package,
    signer: Signer,
    command: impl Fn(&Path, &Path) -> Result<Command>,
) -> Result<()> {
    let work = Work::new()?;
    let mut signed = Vec::new();
    for library in &package.manifest.device_libraries {
        let from = package.folder.join(&library.path);
        let name = from.file_name().context("a library has no name")?.to_owned();
        let to = work.0.join(&name);
        let mut command = command(&from, &to)?;
        let program = command.get_program().to_owned();
        process::run(&mut command, Instant::now() + LIMIT).with_context(|| failed(Path::new(&program)))?;
        let bytes =
            fs::read(&to).with_context(|| format!("{}: the signer ended well and made nothing", to.display()))?;
        check(&fs::read(&from)?, &bytes).with_context(|| format!("what the signer made of {}", library.path))?;
        signed.push((from, bytes));
    }
    // All or none: a package of both kinds would be hard to tell.
    for (path, bytes) in signed {
        fs::write(path, bytes)?;
    }
    for library in &mut package.manifest.device_libraries {
        library.signer = signer;
    }
    package.refresh()
}

/// A segment and its bytes.
type Content = (Segment, Vec<u8>);

/// Whether `signed` is `unsigned` with a signature: for the same architecture, with the same in every loaded segment, and so
/// with everything that the loader's rules are about.
fn check(unsigned: &[u8], signed: &[u8]) -> Result<()> {
    let [before, after] = [Image::parse(unsigned)?, Image::parse(signed)?];
    if !after.is_signed() {
        bail!("it has no table of hashes: it is not signed");
    }
    if before.flags() != after.flags() || before.is_shared() != after.is_shared() {
        bail!(
            "it is for architecture {:x}, the library was for {:x}",
            after.flags(),
            before.flags()
        );
    }
    let contents = |file: &[u8], image: &Image<'_>| -> Option<Vec<Content>> {
        let loaded = image
            .segments()
            .into_iter()
            .filter(|segment| segment.kind == object::elf::PT_LOAD);
        let content = |segment: Segment| {
            let end = segment.offset.checked_add(segment.file_bytes)?;
            let bytes = file.get(segment.offset as usize..end as usize)?.to_vec();
            // The place in the file may change, and with it the headers at the file's beginning.
            Some((Segment { offset: 0, ..segment }, bytes))
        };
        loaded.map(content).collect()
    };
    let [old, new] = [contents(unsigned, &before), contents(signed, &after)];
    let (Some(old), Some(new)) = (old, new) else {
        bail!("its segments leave the file")
    };
    let headers = 52 + 32 * (before.segments().len().max(after.segments().len()));
    let same = |((a, x), (b, y)): (&Content, &Content)| {
        let from = if a.address == 0 { headers.min(x.len()) } else { 0 };
        a == b && x.get(from..) == y.get(from..)
    };
    if old.len() != new.len() || !old.iter().zip(&new).all(same) {
        bail!("its code or data differ from those of the library that was given");
    }
    Ok(())
}

/// The SDK's signer on one library. It writes a file of the same name into a folder.
fn sdk_signs(script: &Path, from: &Path, to: &Path) -> Result<Command> {
    let mut command = python(script);
    let folder = to.parent().context("the signed library has no folder")?;
    command.arg("-i").arg(from).arg("-o").arg(folder);
    Ok(command)
}

/// The signer asks whether one agrees to its terms before it works.
fn python(script: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "yes | python3 \"$@\"", "sh"]).arg(script);
    command
}

fn failed(program: &Path) -> String {
    format!(
        "{} failed: see above; the SDK's signer needs Python before 3.12 and, for some versions, the SDK's environment",
        program.display()
    )
}

fn serial(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "give a number, decimal or with 0x in front".to_owned())
}

/// A folder for what signers write; gone with the value.
struct Work(PathBuf);

impl Work {
    fn new() -> Result<Self> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hexloom-sign-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // It holds nothing that is needed again.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests;
