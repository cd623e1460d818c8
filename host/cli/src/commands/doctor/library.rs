//! The library for the DSP: which file is asked for, where the driver looks for it, and whether it is signed.

use std::fs;
use std::path::{Path, PathBuf};

use hexloom_fastrpc::{CoreFacts, FastRpcTransport};

use super::Check;

const FILE: &str = "DSP library";
const SIGNATURE: &str = "signature";
/// Folders that drivers read libraries for the DSP from.
const PATH_VARS: [&str; 2] = ["DSP_LIBRARY_PATH", "ADSP_LIBRARY_PATH"];

/// Where the file is, and whether it can be taken.
pub(super) fn check(arch: u32, core: &CoreFacts, variables: impl Fn(&str) -> Option<String>) -> Vec<Check> {
    let file = FastRpcTransport::library_for(arch);
    let lists: Vec<(&str, String)> = PATH_VARS
        .into_iter()
        .filter_map(|name| variables(name).filter(|list| !list.is_empty()).map(|list| (name, list)))
        .collect();
    if lists.is_empty() {
        let found = format!(
            "{file}, in the device's own folders: neither of {} is set",
            PATH_VARS.join(", ")
        );
        let remedy = format!(
            "if the session does not open, put {file} in a folder and name it in {}",
            PATH_VARS[0]
        );
        return vec![Check::warning(FILE, found, remedy), signature(None, core)];
    }
    let folders = lists
        .iter()
        .flat_map(|(_, list)| list.split(';'))
        .filter(|folder| !folder.is_empty());
    let tried: Vec<PathBuf> = folders.map(|folder| Path::new(folder).join(&file)).collect();
    let Some(path) = tried.iter().find(|path| path.is_file()) else {
        let names: Vec<&str> = lists.iter().map(|(name, _)| *name).collect();
        let tried: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
        let found = format!("tried {}", tried.join(", "));
        let remedy = format!("put {file} in a folder that {} names", names.join(" or "));
        return vec![
            Check::failed(FILE, found, remedy),
            Check::skipped(SIGNATURE, "there is no library"),
        ];
    };
    match fs::read(path) {
        Ok(bytes) if bytes.starts_with(b"\x7fELF") => {
            let found = format!("{}, {} bytes", path.display(), bytes.len());
            vec![Check::ok(FILE, found), signature(Some(is_signed(&bytes)), core)]
        }
        Ok(_) => {
            let found = format!("{} is no library", path.display());
            let remedy = "build it with `cargo xtask firmware`, or take it from a package again";
            vec![
                Check::failed(FILE, found, remedy),
                Check::skipped(SIGNATURE, "there is no library"),
            ]
        }
        Err(error) => {
            let remedy = format!("chmod a+r {}", path.display());
            let found = format!("{}: {error}", path.display());
            vec![
                Check::failed(FILE, found, remedy),
                Check::skipped(SIGNATURE, "the library cannot be read"),
            ]
        }
    }
}

fn signature(signed: Option<bool>, core: &CoreFacts) -> Check {
    let signed_word = match signed {
        Some(true) => "the library is signed",
        Some(false) => "the library is not signed",
        None => "the library was not looked at",
    };
    match (signed, core.takes_unsigned) {
        (_, Some(true)) => Check::ok(SIGNATURE, format!("{signed_word}; unsigned processes are allowed")),
        (Some(true), _) => Check::ok(SIGNATURE, signed_word),
        (_, None) => {
            let remedy = "if the session does not open, sign the library with `cargo xtask sign`";
            Check::warning(
                SIGNATURE,
                format!("{signed_word}; the driver does not say what it allows"),
                remedy,
            )
        }
        (_, Some(false)) => {
            let found = format!("{signed_word}; unsigned processes are not allowed");
            Check::failed(SIGNATURE, found, "sign the library with `cargo xtask sign`")
        }
    }
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
mod tests {
    use super::super::State;
    use super::*;

    fn core(takes_unsigned: Option<bool>) -> CoreFacts {
        CoreFacts {
            number: 0,
            name: "cdsp".to_owned(),
            domain: 3,
            arch: Some(73),
            takes_unsigned,
        }
    }

    /// An ELF file of 32 bits with one program header.
    fn elf(kind: u32, flags: u32) -> Vec<u8> {
        let mut elf = b"\x7fELF".to_vec();
        elf.resize(0x34 + 32, 0);
        elf[0x1c] = 0x34;
        elf[0x2a] = 32;
        elf[0x2c] = 1;
        elf[0x34..0x38].copy_from_slice(&kind.to_le_bytes());
        elf[0x4c..0x50].copy_from_slice(&flags.to_le_bytes());
        elf
    }

    fn states(takes_unsigned: Option<bool>, variable: Option<&str>) -> (Vec<State>, String) {
        let found = |name: &str| variable.filter(|_| name == PATH_VARS[0]).map(str::to_owned);
        let checks = check(73, &core(takes_unsigned), found);
        for check in &checks {
            assert_eq!(
                check.remedy.is_some(),
                matches!(check.state, State::Failed | State::Warning),
                "{check:?}"
            );
        }
        (
            checks.iter().map(|check| check.state).collect(),
            checks[0].found.clone(),
        )
    }

    #[test]
    fn the_file_is_found_where_the_variables_say() {
        use State::{Failed, Ok, Skipped, Warning};
        let folder = std::env::temp_dir().join(format!("hexloom-library-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let list = format!("/nowhere;;{}", folder.display());
        let file = folder.join("libhexloom-v73.so");
        let (found, tried) = states(Some(true), Some(&list));
        assert_eq!(found, [Failed, Skipped]);
        assert!(tried.contains("/nowhere/libhexloom-v73.so") && tried.contains(&file.display().to_string()));
        fs::write(&file, "no library").expect("a file");
        assert_eq!(states(Some(true), Some(&list)).0, [Failed, Skipped]);
        for (bytes, takes_unsigned, signature) in [
            (elf(1, 5), Some(true), Ok),
            (elf(1, 5), Some(false), Failed),
            (elf(1, 5), None, Warning),
            (elf(0, 0x0220_0000), Some(false), Ok),
            (b"\x7fELF".to_vec(), Some(false), Failed),
        ] {
            fs::write(&file, bytes).expect("a file");
            assert_eq!(states(takes_unsigned, Some(&list)).0, [Ok, signature]);
        }
        assert_eq!(states(Some(true), None).0, [Warning, Ok]);
        fs::remove_dir_all(folder).expect("it is there");
    }
}
