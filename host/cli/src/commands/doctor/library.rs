//! The library for the DSP: which file is asked for, and where the driver looks for it.

use std::fs;
use std::path::{Path, PathBuf};

use hexloom_fastrpc::{CoreFacts, FastRpcTransport};

use super::Check;
use super::signature::{self, Signed};

const FILE: &str = "DSP library";
/// Folders that drivers read libraries for the DSP from.
const PATH_VARS: [&str; 2] = ["DSP_LIBRARY_PATH", "ADSP_LIBRARY_PATH"];

/// Where the file is, and whether it can be taken. System files are those below `root`.
pub(super) fn check(
    arch: u32,
    core: &CoreFacts,
    variables: impl Fn(&str) -> Option<String>,
    root: &Path,
) -> Vec<Check> {
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
        return vec![
            Check::warning(FILE, found, remedy),
            signature::check(&Signed::Unknown, core),
        ];
    }
    let folders = lists
        .iter()
        .flat_map(|(_, list)| list.split(';'))
        .filter(|folder| !folder.is_empty());
    let folders: Vec<&Path> = folders.map(Path::new).collect();
    let tried: Vec<PathBuf> = folders.iter().map(|folder| folder.join(&file)).collect();
    let Some(path) = tried.iter().find(|path| path.is_file()) else {
        let names: Vec<&str> = lists.iter().map(|(name, _)| *name).collect();
        let tried: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
        let found = format!("tried {}", tried.join(", "));
        let remedy = format!("put {file} in a folder that {} names", names.join(" or "));
        return vec![
            Check::failed(FILE, found, remedy),
            Check::skipped(signature::NAME, "there is no library"),
        ];
    };
    match fs::read(path) {
        Ok(bytes) if bytes.starts_with(b"\x7fELF") => {
            let found = format!("{}, {} bytes", path.display(), bytes.len());
            let signed = signature::look(&bytes, &folders, root);
            vec![Check::ok(FILE, found), signature::check(&signed, core)]
        }
        Ok(_) => {
            let found = format!("{} is no library", path.display());
            let remedy = "build it with `cargo xtask firmware`, or take it from a package again";
            vec![
                Check::failed(FILE, found, remedy),
                Check::skipped(signature::NAME, "there is no library"),
            ]
        }
        Err(error) => {
            let remedy = format!("chmod a+r {}", path.display());
            let found = format!("{}: {error}", path.display());
            vec![
                Check::failed(FILE, found, remedy),
                Check::skipped(signature::NAME, "the library cannot be read"),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::signature::tests::{core, elf};
    use super::*;

    fn states(takes_unsigned: Option<bool>, variable: Option<&str>) -> (Vec<State>, String) {
        let found = |name: &str| variable.filter(|_| name == PATH_VARS[0]).map(str::to_owned);
        let unsigned = takes_unsigned != Some(false);
        let checks = check(73, &core(unsigned, takes_unsigned), found, Path::new("/nowhere"));
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
