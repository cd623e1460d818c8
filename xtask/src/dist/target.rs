//! The machines that packages are made for, and what a build for each needs on this one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::wanted::{Wanted, on_path};
use crate::{firmware, process};

/// Where a package runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Target {
    /// Phones: built with the NDK that ANDROID_NDK_HOME names
    Android,
    /// Laptops and boards with Linux on Snapdragon
    LinuxArm64,
    /// PCs: the simulator and the emulator only
    #[value(name = "linux-x86_64")]
    LinuxX86_64,
}

/// The folder of Debian's cross compiler that emulators take libraries from.
pub(crate) const ARM64_SYSROOT: &str = "/usr/aarch64-linux-gnu";

/// Android's first version with everything that is called: `memfd_create` came with it.
const ANDROID_API: u32 = 30;

const ARM64_COMPILER: Wanted = Wanted {
    what: "a C compiler and library for 64-bit ARM",
    packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
    elsewhere: None,
};
const ARM64_EMULATOR: Wanted = Wanted {
    what: "the emulator for 64-bit ARM programs",
    packages: &["qemu-user"],
    elsewhere: None,
};

/// What a build is made with.
#[derive(Debug, PartialEq)]
pub(crate) struct Tools {
    /// The Rust compiler; `None` is the workspace's own.
    pub(crate) rustc: Option<PathBuf>,
    /// The linker, by the manners of a C compiler; `None` is the system's own.
    pub(crate) linker: Option<PathBuf>,
}

impl Target {
    /// As it is called in the names of packages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Android => "android",
            Self::LinuxArm64 => "linux-arm64",
            Self::LinuxX86_64 => "linux-x86_64",
        }
    }

    /// Rust's name of it.
    pub(crate) fn triple(self) -> &'static str {
        match self {
            Self::Android => "aarch64-linux-android",
            Self::LinuxArm64 => "aarch64-unknown-linux-gnu",
            Self::LinuxX86_64 => "x86_64-unknown-linux-gnu",
        }
    }

    /// The machine in the headers of its programs.
    pub(crate) fn machine(self) -> u16 {
        match self {
            Self::Android | Self::LinuxArm64 => object::elf::EM_AARCH64,
            Self::LinuxX86_64 => object::elf::EM_X86_64,
        }
    }

    /// What is built beside what all packages have, as words for cargo: the log decoder of the emulator where that is what a
    /// package is for.
    pub(super) fn features(self) -> &'static [&'static str] {
        match self {
            Self::Android | Self::LinuxArm64 => &[],
            Self::LinuxX86_64 => &["--features", "log-texts"],
        }
    }

    /// Finds or installs what the build needs, and says what it chose.
    pub(crate) fn tools(self, deadline: Instant) -> Result<Tools> {
        let is_native = self.name() == format!("linux-{}", native_arch());
        let linker = match self {
            Self::Android => Some(ndk_linker(
                std::env::var_os("ANDROID_NDK_HOME").map(PathBuf::from).as_deref(),
            )?),
            _ if is_native => None,
            Self::LinuxArm64 => Some(ARM64_COMPILER.ensure(find_arm64_compiler, deadline)?),
            Self::LinuxX86_64 => bail!("linux-x86_64 packages are built on x86-64 machines only"),
        };
        let rustc = match has_library(Path::new("rustc"), self.triple()) {
            true => None,
            false => Some(firmware::compiler(deadline)?),
        };
        for (name, tool) in [("compiler", &rustc), ("linker", &linker)] {
            let shown = tool.as_ref().map(|path| path.display().to_string());
            eprintln!("{name} {}", shown.as_deref().unwrap_or("of the workspace"));
        }
        Ok(Tools { rustc, linker })
    }

    /// What runs its programs here: `None` for this machine itself.
    pub(crate) fn emulator(self, deadline: Instant) -> Result<Option<PathBuf>> {
        match self {
            _ if self.name() == format!("linux-{}", native_arch()) => Ok(None),
            Self::LinuxArm64 => ARM64_EMULATOR.ensure(|| on_path("qemu-aarch64"), deadline).map(Some),
            _ => bail!("programs of the target {} cannot run here", self.name()),
        }
    }
}

fn native_arch() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        other => other,
    }
}

fn find_arm64_compiler() -> Option<PathBuf> {
    let has_library = Path::new(ARM64_SYSROOT).join("lib/libc.so.6").exists();
    on_path("aarch64-linux-gnu-gcc").filter(|_| has_library)
}

/// Whether a compiler comes with the standard library for a target, so that it need not be built.
fn has_library(rustc: &Path, triple: &str) -> bool {
    let mut command = Command::new(rustc);
    let folder = process::output(command.args(["--print", "target-libdir", "--target", triple]));
    let entries = folder.ok().and_then(|folder| std::fs::read_dir(folder.trim()).ok());
    let is_std = |name: &str| name.starts_with("libstd-") && name.ends_with(".rlib");
    entries
        .is_some_and(|mut all| all.any(|entry| entry.is_ok_and(|entry| is_std(&entry.file_name().to_string_lossy()))))
}

/// The NDK's compiler for the oldest Android that is served.
fn ndk_linker(ndk: Option<&Path>) -> Result<PathBuf> {
    let ndk = ndk.context(
        "the target android needs Android's NDK: install it (Android Studio, SDK Manager, SDK Tools, \"NDK\"; \
         r26 or later), then set ANDROID_NDK_HOME to its folder, the one that holds `toolchains/`",
    )?;
    let host = ndk
        .join("toolchains/llvm/prebuilt")
        .join(format!("linux-{}", std::env::consts::ARCH));
    let linker = host.join(format!("bin/aarch64-linux-android{ANDROID_API}-clang"));
    if !linker.is_file() {
        bail!(
            "ANDROID_NDK_HOME is {}, and there is no {}: give the folder of an NDK r26 or later for this machine",
            ndk.display(),
            linker.display()
        );
    }
    Ok(linker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_ndk_the_message_says_what_to_do() {
        let error = ndk_linker(None).unwrap_err().to_string();
        assert!(
            error.contains("ANDROID_NDK_HOME") && error.contains("SDK Manager"),
            "{error}"
        );
        let empty = std::env::temp_dir();
        let error = ndk_linker(Some(&empty)).unwrap_err().to_string();
        assert!(
            error.contains("android30-clang") && error.contains(&*empty.to_string_lossy()),
            "{error}"
        );
    }

    #[test]
    fn an_ndk_is_found_by_its_compiler() {
        let ndk = std::env::temp_dir().join(format!("hexloom-ndk-{}", std::process::id()));
        let bin = ndk.join(format!("toolchains/llvm/prebuilt/linux-{}/bin", std::env::consts::ARCH));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("aarch64-linux-android30-clang"), "").unwrap();
        assert!(ndk_linker(Some(&ndk)).unwrap().starts_with(&bin));
        std::fs::remove_dir_all(ndk).unwrap();
    }

    #[test]
    fn the_library_of_this_machine_is_there_and_that_of_no_machine_is_not() {
        assert!(has_library(
            Path::new("rustc"),
            &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
        ));
        assert!(!has_library(Path::new("rustc"), "no-such-target"));
        assert!(!has_library(
            Path::new("hexloom-no-such-compiler"),
            "aarch64-linux-android"
        ));
    }
}
