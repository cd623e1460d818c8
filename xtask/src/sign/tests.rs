//! Signing against stand-in signers: scripts that are called as the SDK's and an owner's are.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::dist::target::Target;
use crate::firmware::elf::{SIGNER_HASHES, sample};

/// What the SDK's signer is, by its arguments: `-t SERIAL -o FOLDER` makes a test signature, `-i FILE -o FOLDER` signs. It
/// marks a header of the file, as real signers add one; and it wants to be agreed with first. What it is told by its own
/// file's name, it does wrong.
const SDK_SIGNER: &str = r#"
import os, shutil, struct, sys
assert sys.stdin.readline().strip() == "y"
args = dict(zip(sys.argv[1::2], sys.argv[2::2]))
here = os.path.dirname(os.path.abspath(sys.argv[0]))
fault = os.path.basename(sys.argv[0])
data = bytearray(open(args["-i"] if "-i" in args else here + "/sample.so", "rb").read())
if fault != "unsigned.py":
    struct.pack_into("<I", data, FLAGS_AT, SIGNED)
if fault == "damaged.py":
    data[TEXT_AT] ^= 1
if fault == "arch.py":
    data[36] = 0x75
if fault == "refused.py":
    sys.exit("no licence")
name = "testsig-" + args["-t"].upper().replace("X", "x") + ".so" if "-t" in args else os.path.basename(args["-i"])
if fault != "nothing.py":
    open(os.path.join(args["-o"], name), "wb").write(data)
"#;

struct Bench {
    work: Work,
}

impl Bench {
    fn new() -> Self {
        let work = Work::new().unwrap();
        fs::create_dir_all(work.0.join("p/dsp")).unwrap();
        let mut other = sample::library();
        other[36] = 0x79;
        fs::write(work.0.join("p/dsp/libhexloom-v73.so"), sample::library()).unwrap();
        fs::write(work.0.join("p/dsp/libhexloom-v79.so"), other).unwrap();
        fs::write(work.0.join("sample.so"), sample::library()).unwrap();
        Self { work }
    }

    fn package(&self) -> Package {
        Package::seal(&self.work.0.join("p"), Target::Android, "1.0.0", 1).unwrap()
    }

    fn script(&self, name: &str) -> PathBuf {
        let flags_at = sample::SEGMENTS + 64 + 24;
        let text = SDK_SIGNER
            .replace("FLAGS_AT", &flags_at.to_string())
            .replace("SIGNED", &SIGNER_HASHES.to_string())
            .replace("TEXT_AT", "0x700");
        let path = self.work.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn sign(&self, package: &mut Package, script: &str) -> Result<()> {
        let script = self.script(script);
        sign_libraries(package, Signer::Test, |from, to| sdk_signs(&script, from, to))
    }
}

fn signers(package: &Package) -> Vec<Signer> {
    package
        .manifest
        .device_libraries
        .iter()
        .map(|library| library.signer)
        .collect()
}

#[test]
fn libraries_are_signed_with_the_test_key() {
    let bench = Bench::new();
    let mut package = bench.package();
    bench.sign(&mut package, "signer.py").unwrap();
    assert_eq!(signers(&package), [Signer::Test; 2]);
    let read = Package::open(&package.folder).unwrap();
    assert_eq!(read.manifest, package.manifest);
}

#[test]
fn what_a_signer_makes_is_checked_and_nothing_is_changed_by_half() {
    let bench = Bench::new();
    for (script, words) in [
        ("unsigned.py", "not signed"),
        ("damaged.py", "code or data differ"),
        ("arch.py", "architecture 75"),
        ("nothing.py", "made nothing"),
        ("refused.py", "Python before 3.12"),
    ] {
        let mut package = bench.package();
        let error = format!("{:#}", bench.sign(&mut package, script).unwrap_err());
        assert!(error.contains(words), "{error}");
        assert_eq!(signers(&package), [Signer::None; 2]);
        assert_eq!(
            fs::read(package.folder.join("dsp/libhexloom-v73.so")).unwrap(),
            sample::library()
        );
    }
}

#[test]
fn a_device_gets_its_test_signature() {
    let bench = Bench::new();
    let mut package = bench.package();
    sign_device(&mut package, &bench.script("signer.py"), 0x12ab).unwrap();
    assert_eq!(package.manifest.test_signatures, ["0x12ab"]);
    assert!(package.folder.join("dsp/testsig-0x12ab.so").exists());
    assert_eq!(signers(&package), [Signer::None; 2]);
    let error = sign_device(&mut package, &bench.script("nothing.py"), 7)
        .unwrap_err()
        .to_string();
    assert!(error.contains("made no testsig-0x7.so"), "{error}");
    let error = sign_device(&mut package, &bench.script("unsigned.py"), 7)
        .unwrap_err()
        .to_string();
    assert!(error.contains("no signature"), "{error}");
}

#[test]
fn an_owners_program_signs_for_production() {
    let bench = Bench::new();
    let mut package = bench.package();
    let script = bench.script("signer.py");
    let program = bench.work.0.join("owner");
    let text = format!(
        "#!/bin/sh\nyes | python3 {} -i \"$1\" -o \"$(dirname \"$2\")\"\n",
        script.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let signer = |from: &Path, to: &Path| {
        let mut command = Command::new(&program);
        command.args([from, to]);
        Ok(command)
    };
    sign_libraries(&mut package, Signer::Production, signer).unwrap();
    assert_eq!(signers(&package), [Signer::Production; 2]);
}

#[test]
fn serial_numbers_are_decimal_or_hexadecimal() {
    assert_eq!(serial("3735928559"), Ok(0xdead_beef));
    assert_eq!(serial("0xdeadbeef"), Ok(0xdead_beef));
    assert!(serial("deadbeef").is_err());
}
