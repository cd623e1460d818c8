//! Signatures: in the library for the DSP, or beside it for one test device, held against the kind of process that sessions
//! ask for.

use std::fs;
use std::path::{Path, PathBuf};

use hexloom_fastrpc::{CoreFacts, PROCESS_VAR};

use super::Check;

pub(super) const NAME: &str = "signature";
/// Where a system tells the serial number of its chip, in decimal digits.
const SERIAL: &str = "sys/devices/soc0/serial_number";

/// Who answers for the library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Signed {
    /// The file was not looked at.
    Unknown,
    No,
    /// A signer has put its mark into the file.
    Library,
    /// This file makes the device take any library.
    Device(PathBuf),
    /// These are for other devices.
    OtherDevices(String),
}

/// Looks at a library's bytes, then for test signatures in the folders where the driver looks for both.
pub(super) fn look(library: &[u8], folders: &[&Path], root: &Path) -> Signed {
    if is_signed(library) {
        return Signed::Library;
    }
    let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let files = files.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = files.filter(|path| serial_of(path).is_some()).collect();
    files.sort();
    let serial = serial(root);
    // Where the system does not tell its number, any file may be the right one.
    let is_ours = |path: &&PathBuf| serial.is_none() || serial_of(path) == serial;
    match files.iter().find(is_ours) {
        Some(path) => Signed::Device(path.clone()),
        None if files.is_empty() => Signed::No,
        None => {
            let serial = serial.map_or_else(String::new, |serial| format!("{serial:#x}"));
            let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
            Signed::OtherDevices(format!("{}, and this device is {serial}", files.join(", ")))
        }
    }
}

/// Whether a session's process takes a library that is signed so.
pub(super) fn check(signed: &Signed, core: &CoreFacts) -> Check {
    let library = match signed {
        Signed::Unknown => "the library was not looked at".to_owned(),
        Signed::No => "the library is not signed".to_owned(),
        Signed::Library => "the library is signed".to_owned(),
        Signed::Device(path) => format!("any library is signed for this device by {}", path.display()),
        Signed::OtherDevices(files) => format!("the library is signed for other devices only, by {files}"),
    };
    let driver = match core.takes_unsigned {
        Some(true) => "the driver allows unsigned ones",
        Some(false) => "the driver allows no unsigned ones",
        None => "the driver does not say whether it allows unsigned ones",
    };
    let kind = if core.unsigned { "unsigned" } else { "signed" };
    let found = format!("{kind} process, {driver}; {library}");
    let sign = "sign the library with `cargo xtask sign`";
    match (core.unsigned, core.takes_unsigned, signed) {
        (true, Some(true), _) | (false, _, Signed::Library | Signed::Device(_)) => Check::ok(NAME, found),
        (true, Some(false), _) => Check::suspicion(
            NAME,
            found,
            format!("unset {PROCESS_VAR}, which asks for an unsigned process"),
        ),
        (true, None, Signed::Library | Signed::Device(_)) => Check::warning(
            NAME,
            found,
            format!("if the session does not open, set {PROCESS_VAR}=signed"),
        ),
        (true, None, _) => {
            let remedy = format!("if the session does not open, {sign} and set {PROCESS_VAR}=signed");
            Check::warning(NAME, found, remedy)
        }
        (false, _, Signed::Unknown) => Check::warning(NAME, found, format!("if the session does not open, {sign}")),
        (false, Some(true), _) => Check::suspicion(
            NAME,
            found,
            format!("{sign}, or unset {PROCESS_VAR} if it says `signed`"),
        ),
        (false, ..) => Check::suspicion(NAME, found, sign),
    }
}

/// The serial number in the name of a test signature.
fn serial_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_prefix("testsig-0x")?.strip_suffix(".so")?;
    u64::from_str_radix(digits, 16).ok()
}

/// The chip's own.
fn serial(root: &Path) -> Option<u64> {
    fs::read_to_string(root.join(SERIAL)).ok()?.trim().parse().ok()
}

/// Whether an ELF file has the segment that signatures lie in: one without a type, with the mark of hashes.
fn is_signed(elf: &[u8]) -> bool {
    const MARK: u32 = 0x0200_0000;
    const MASK: u32 = 0x0700_0000;
    let half = |at: usize| Some(u16::from_le_bytes(*elf.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_le_bytes(*elf.get(at..)?.first_chunk()?));
    // The program headers of a 32-bit file: where, how large each, how many.
    let (Some(start), Some(size), Some(n)) = (word(0x1c), half(0x2a), half(0x2c)) else {
        return false;
    };
    (0..usize::from(n)).any(|idx| {
        let at = (start as usize).saturating_add(idx * usize::from(size));
        word(at) == Some(0) && word(at.saturating_add(24)).is_some_and(|flags| flags & MASK == MARK)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::State;
    use super::*;

    pub(in super::super) fn core(unsigned: bool, takes_unsigned: Option<bool>) -> CoreFacts {
        CoreFacts {
            number: 0,
            name: "cdsp".to_owned(),
            domain: 3,
            arch: Some(73),
            takes_unsigned,
            unsigned,
        }
    }

    /// An ELF file of 32 bits with one program header.
    pub(in super::super) fn elf(kind: u32, flags: u32) -> Vec<u8> {
        let mut elf = b"\x7fELF".to_vec();
        elf.resize(0x34 + 32, 0);
        elf[0x1c] = 0x34;
        elf[0x2a] = 32;
        elf[0x2c] = 1;
        elf[0x34..0x38].copy_from_slice(&kind.to_le_bytes());
        elf[0x4c..0x50].copy_from_slice(&flags.to_le_bytes());
        elf
    }

    #[test]
    fn a_mark_or_the_signature_of_this_device() {
        let root = std::env::temp_dir().join(format!("hexloom-signature-{}", std::process::id()));
        let folder = root.join("dsp");
        fs::create_dir_all(&folder).expect("a folder");
        let plain = elf(1, 5);
        let folders = [Path::new("/nowhere"), &folder];
        let found = |library: &[u8]| look(library, &folders, &root);
        assert_eq!(found(&plain), Signed::No);
        assert_eq!(found(&elf(0, 0x0220_0000)), Signed::Library);
        assert_eq!(found(b"\x7fELF"), Signed::No);
        fs::write(folder.join("testsig-0x12ab.so"), "").expect("a file");
        fs::write(folder.join("testsig-notes.so"), "").expect("a file");
        // The system does not tell its number.
        assert_eq!(found(&plain), Signed::Device(folder.join("testsig-0x12ab.so")));
        fs::create_dir_all(root.join("sys/devices/soc0")).expect("a folder");
        fs::write(root.join(SERIAL), "305419896\n").expect("a file");
        assert!(
            matches!(found(&plain), Signed::OtherDevices(files) if files.contains("0x12ab") && files.contains("0x12345678"))
        );
        fs::write(folder.join("testsig-0x12345678.so"), "").expect("a file");
        assert_eq!(found(&plain), Signed::Device(folder.join("testsig-0x12345678.so")));
        fs::remove_dir_all(root).expect("it is there");
    }

    #[test]
    fn a_signature_is_needed_by_signed_processes_only() {
        use State::{Failed, Ok, Warning};
        let device = || Signed::Device("testsig-0x1.so".into());
        for (unsigned, takes_unsigned, signed, state, remedy) in [
            (true, Some(true), Signed::No, Ok, ""),
            (true, Some(false), Signed::Library, Failed, "unset HEXLOOM_PROCESS"),
            (true, None, Signed::No, Warning, "sign the library"),
            (true, None, device(), Warning, "HEXLOOM_PROCESS=signed"),
            (false, Some(false), Signed::No, Failed, "sign the library"),
            (
                false,
                Some(false),
                Signed::OtherDevices(String::new()),
                Failed,
                "sign the library",
            ),
            (false, Some(false), Signed::Library, Ok, ""),
            (false, Some(false), device(), Ok, ""),
            (false, Some(false), Signed::Unknown, Warning, "if the session"),
            (false, Some(true), Signed::No, Failed, "or unset HEXLOOM_PROCESS"),
            (false, None, device(), Ok, ""),
        ] {
            let check = check(&signed, &core(unsigned, takes_unsigned));
            let kind = if unsigned {
                "unsigned process, "
            } else {
                "signed process, "
            };
            assert!(
                check.state == state && check.found.starts_with(kind),
                "{signed:?}: {check:?}"
            );
            assert_eq!(check.remedy.is_some(), state != Ok, "{check:?}");
            assert!(check.remedy.unwrap_or_default().contains(remedy), "{signed:?}");
        }
    }
}
