//! Where the driver library is: named by the program or the environment, else where each system keeps it.
//!
//! What depends on the system is a pure function of the system's name and of what the system says, so that every look-up is
//! tested on every machine.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that names the driver library.
pub const LIBRARY_VAR: &str = "HEXLOOM_CDSPRPC";

/// Systems that have DSPs beside them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// Any Linux but Android.
    Linux,
    /// Android.
    Android,
    /// Windows.
    Windows,
}

/// What a system says of itself, as far as the look-up asks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SystemFacts {
    /// The image of the service of the DSP's driver, Windows only.
    pub driver_image: Option<String>,
    /// The system's folder, Windows only.
    pub system_root: Option<String>,
    /// The program's pointers have 64 bits.
    pub is_64_bit: bool,
}

/// The service whose folder in the driver store has the library, on Windows.
const SERVICE: &str = r"HKLM\SYSTEM\CurrentControlSet\Services\qcnspmcdm";

impl System {
    /// The one that this program is built for.
    pub const fn this() -> Self {
        if cfg!(target_os = "android") {
            Self::Android
        } else if cfg!(windows) {
            Self::Windows
        } else {
            Self::Linux
        }
    }
}

/// The files to try, in this order: `named`, else what the environment names, else [`candidates`].
pub fn files(named: Option<&Path>) -> Vec<PathBuf> {
    let variable = env::var_os(LIBRARY_VAR).filter(|path| !path.is_empty());
    match named.map(Path::to_owned).or_else(|| variable.map(PathBuf::from)) {
        Some(named) => vec![named],
        None => candidates(System::this(), &facts()),
    }
}

/// The files to try on a system. A bare name is looked for by the system's loader; the vendor's own folder comes after it,
/// as programs of Android are not given it.
pub fn candidates(system: System, facts: &SystemFacts) -> Vec<PathBuf> {
    let lib = if facts.is_64_bit { "lib64" } else { "lib" };
    let names = match system {
        System::Linux => vec!["libcdsprpc.so".to_owned(), "libcdsprpc.so.1".to_owned()],
        System::Android => vec![
            "libcdsprpc.so".to_owned(),
            format!("/vendor/{lib}/libcdsprpc.so"),
            format!("/system/vendor/{lib}/libcdsprpc.so"),
        ],
        System::Windows => {
            let image = facts.driver_image.as_deref();
            let store = image.and_then(|image| store_folder(image, facts.system_root.as_deref()));
            let stored = store.map(|folder| format!(r"{folder}\libcdsprpc.dll"));
            stored.into_iter().chain(["libcdsprpc.dll".to_owned()]).collect()
        }
    };
    names.into_iter().map(PathBuf::from).collect()
}

/// The folder of a service's image, with the system's folder in place of its stand-in.
pub fn store_folder(image: &str, system_root: Option<&str>) -> Option<String> {
    const STAND_INS: [&str; 3] = [r"\SystemRoot\", r"%SystemRoot%\", r"System32\"];
    let image = image.trim().trim_matches('"');
    let image = image.strip_prefix(r"\??\").unwrap_or(image);
    let (folder, _) = image.rsplit_once('\\')?;
    let folder = STAND_INS.iter().find_map(|stand_in| {
        let rest = folder
            .get(..stand_in.len())?
            .eq_ignore_ascii_case(stand_in)
            .then(|| &folder[stand_in.len()..])?;
        let between = if *stand_in == STAND_INS[2] { r"System32\" } else { "" };
        Some(format!(r"{}\{between}{rest}", system_root?.trim_end_matches('\\')))
    });
    let is_absolute = |folder: &str| folder.as_bytes().get(1) == Some(&b':');
    let plain = image.rsplit_once('\\')?.0;
    folder.or_else(|| is_absolute(plain).then(|| plain.to_owned()))
}

/// The value that `reg query KEY /v ImagePath` prints.
pub fn image_path(printed: &str) -> Option<String> {
    let line = printed
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("ImagePath"))?;
    let value = line
        .split_once("REG_EXPAND_SZ")
        .or_else(|| line.split_once("REG_SZ"))?
        .1
        .trim();
    (!value.is_empty()).then(|| value.to_owned())
}

fn facts() -> SystemFacts {
    let mut facts = SystemFacts {
        is_64_bit: cfg!(target_pointer_width = "64"),
        ..SystemFacts::default()
    };
    if System::this() == System::Windows {
        let printed = Command::new("reg").args(["query", SERVICE, "/v", "ImagePath"]).output();
        facts.driver_image = printed
            .ok()
            .and_then(|printed| image_path(&String::from_utf8_lossy(&printed.stdout)));
        facts.system_root = env::var("windir").ok();
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(system: System, facts: &SystemFacts) -> Vec<String> {
        candidates(system, facts)
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn each_system_has_its_places() {
        let facts = SystemFacts {
            is_64_bit: true,
            ..SystemFacts::default()
        };
        assert_eq!(texts(System::Linux, &facts), ["libcdsprpc.so", "libcdsprpc.so.1"]);
        let android = texts(System::Android, &facts);
        assert_eq!(android[..2], ["libcdsprpc.so", "/vendor/lib64/libcdsprpc.so"]);
        assert_eq!(
            texts(System::Android, &SystemFacts::default())[1],
            "/vendor/lib/libcdsprpc.so"
        );
        assert_eq!(texts(System::Windows, &facts), ["libcdsprpc.dll"]);
    }

    #[test]
    fn windows_keeps_it_in_the_driver_store() {
        let stored = r"System32\DriverStore\FileRepository\qcnspmcdm8380.inf_arm64_1a2b\qcnspmcdm8380.sys";
        let folder = r"C:\Windows\System32\DriverStore\FileRepository\qcnspmcdm8380.inf_arm64_1a2b";
        for image in [
            format!(r"\SystemRoot\{stored}"),
            format!(r"%SystemRoot%\{stored}"),
            format!(r"\systemroot\{stored}"),
            stored.to_owned(),
            format!(r"C:\Windows\{stored}"),
            format!(r"\??\C:\Windows\{stored}"),
            format!("\"C:\\Windows\\{stored}\" "),
        ] {
            for root in [r"C:\Windows", r"C:\Windows\"] {
                assert_eq!(store_folder(&image, Some(root)).as_deref(), Some(folder), "{image}");
            }
            let facts = SystemFacts {
                driver_image: Some(image),
                system_root: Some(r"C:\Windows".to_owned()),
                is_64_bit: true,
            };
            let first = &texts(System::Windows, &facts)[0];
            assert_eq!(first, &format!(r"{folder}\libcdsprpc.dll"));
        }
        assert_eq!(store_folder(&format!(r"\SystemRoot\{stored}"), None), None);
        for nonsense in ["", "driver.sys", r"\Device\x.sys", r"é\x.sys"] {
            assert_eq!(store_folder(nonsense, Some(r"C:\Windows")), None, "{nonsense}");
        }
    }

    #[test]
    fn the_image_is_read_from_what_reg_prints() {
        let printed = "\r\nHKEY_LOCAL_MACHINE\\SYSTEM\\CurrentControlSet\\Services\\qcnspmcdm\r\n    \
            ImagePath    REG_EXPAND_SZ    \\SystemRoot\\System32\\drivers\\a b.sys\r\n\r\n";
        assert_eq!(
            image_path(printed).as_deref(),
            Some(r"\SystemRoot\System32\drivers\a b.sys")
        );
        assert_eq!(image_path("ERROR: The system was unable to find the key"), None);
        assert_eq!(image_path("    ImagePath    REG_SZ    "), None);
    }

    #[test]
    fn a_named_file_is_the_only_one() {
        assert_eq!(files(Some(Path::new("/x/lib.so"))), [PathBuf::from("/x/lib.so")]);
    }
}
