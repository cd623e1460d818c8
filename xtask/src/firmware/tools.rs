//! The Hexagon tools, and libclang: where each is looked for, and what brings it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use crate::process;
use crate::wanted::{Wanted, on_path};
use crate::workspace::Workspace;

/// Where Debian's compiler with the library's source is; it lies beside rustup's, which the workspace keeps using.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
/// The part of the library's source that old compilers lack: the HVX intrinsics.
const INTRINSICS: &str = "lib/rustlib/src/rust/library/stdarch/crates/core_arch/src/hexagon/v128.rs";

/// The newest processor that images are built for.
const NEWEST_CPU: &str = "hexagonv81";

/// What images are built and run with.
pub(crate) struct Tools {
    /// A compiler that knows Hexagon and comes with its library's source.
    pub(crate) rustc: PathBuf,
    /// An LLVM linker that knows Hexagon.
    pub(crate) linker: PathBuf,
    /// An LLVM disassembler that knows Hexagon.
    pub(crate) disassembler: PathBuf,
}

/// A compiler that comes with its library's source; it knows Hexagon.
pub(crate) fn compiler(deadline: Instant) -> Result<PathBuf> {
    COMPILER.ensure(find_rustc, deadline)
}

/// The library that reads C for `cargo xtask bindgen`.
pub(crate) struct Libclang(PathBuf);

impl Tools {
    /// Finds or installs everything and says what it chose. An error names what is missing and one command.
    pub(crate) fn ensure(workspace: &Workspace, deadline: Instant) -> Result<Self> {
        let rustc = compiler(deadline)?;
        let linker = LINKER.ensure(|| find_linker(workspace), deadline)?;
        let qemu = EMULATOR.ensure(|| on_path("qemu-hexagon"), deadline)?;
        let disassembler = DISASSEMBLER.ensure(find_disassembler, deadline)?;
        let version = process::output(Command::new(&rustc).arg("--version"))?;
        eprintln!("compiler {} ({})", rustc.display(), version.trim());
        eprintln!("linker   {}", linker.display());
        eprintln!("emulator {}", qemu.display());
        eprintln!("disassembler {}", disassembler.display());
        Ok(Self {
            rustc,
            linker,
            disassembler,
        })
    }
}

impl Libclang {
    /// Finds or installs it and says what it chose.
    pub(crate) fn ensure(deadline: Instant) -> Result<Self> {
        let path = LIBCLANG.ensure(find_libclang, deadline)?;
        eprintln!("libclang {}", path.display());
        Ok(Self(path))
    }

    /// Where the generator shall look.
    pub(crate) fn folder(&self) -> &Path {
        self.0.parent().unwrap_or(Path::new("/"))
    }
}

const COMPILER: Wanted = Wanted {
    what: "a Rust compiler for Hexagon with its library's source",
    packages: &["rustc-web", "rust-web-src"],
    elsewhere: Some("rustup toolchain install nightly --component rust-src"),
};
const LINKER: Wanted = Wanted {
    what: "a linker for Hexagon",
    packages: &["lld-22"],
    elsewhere: None,
};
const EMULATOR: Wanted = Wanted {
    what: "the Hexagon emulator",
    packages: &["qemu-user"],
    elsewhere: None,
};
const DISASSEMBLER: Wanted = Wanted {
    what: "a disassembler for Hexagon",
    packages: &["llvm-22"],
    elsewhere: None,
};
const LIBCLANG: Wanted = Wanted {
    what: "libclang, which reads the headers of host/hexagon-sys",
    packages: &["libclang1-22"],
    elsewhere: None,
};

fn find_rustc() -> Option<PathBuf> {
    let nightly = || {
        let mut which = Command::new("rustup");
        let path = process::output(which.args(["which", "rustc", "--toolchain", "nightly"])).ok()?;
        Some(PathBuf::from(path.trim()))
    };
    let has_source = |rustc: &PathBuf| sysroot(rustc).is_some_and(|root| root.join(INTRINSICS).exists());
    Some(PathBuf::from(DEBIAN_RUSTC))
        .filter(has_source)
        .or_else(|| nightly().filter(has_source))
}

fn sysroot(rustc: &Path) -> Option<PathBuf> {
    let path = process::output(Command::new(rustc).args(["--print", "sysroot"])).ok()?;
    Some(PathBuf::from(path.trim()))
}

/// `rust-lld` of the toolchain that builds the workspace, as this is surely there under rustup; Debian's otherwise.
pub(super) fn find_linker(workspace: &Workspace) -> Option<PathBuf> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir"]).current_dir(&workspace.root);
    let bundled = process::output(&mut rustc).ok().and_then(|libdir| {
        let linker = Path::new(libdir.trim()).with_file_name("bin").join("rust-lld");
        linker.exists().then_some(linker)
    });
    bundled.or_else(|| on_path("ld.lld-22"))
}

/// Debian's, which has its version in its name, or any that knows every architecture: LLVM has had Hexagon for long, and
/// its newest architectures for a short time.
fn find_disassembler() -> Option<PathBuf> {
    on_path("llvm-objdump-22").or_else(|| on_path("llvm-objdump").filter(|path| knows(path, NEWEST_CPU)))
}

/// Whether a disassembler lists a processor among those that it knows, which it does beside some file that it is given.
fn knows(disassembler: &Path, cpu: &str) -> bool {
    let mut command = Command::new(disassembler);
    command.args(["--triple=hexagon", "--mcpu=help", "-d", "/bin/true"]);
    let listed = command.output().map(|output| [output.stdout, output.stderr].concat());
    listed.is_ok_and(|listed| String::from_utf8_lossy(&listed).contains(cpu))
}

/// The newest version in the system's folders, or in the one that `LIBCLANG_PATH` names.
fn find_libclang() -> Option<PathBuf> {
    let named = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let system = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ];
    let mut folders = named.into_iter().chain(system.map(PathBuf::from));
    folders.find_map(|folder| {
        let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        let is_libclang = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name == "libclang.so"
                || (name.starts_with("libclang-") && !name.starts_with("libclang-cpp") && name.contains(".so."))
        };
        entries.filter(is_libclang).max()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disassembler_must_know_the_newest_architecture() {
        assert!(!knows(Path::new("/no/llvm-objdump"), NEWEST_CPU));
        // Something that answers as old versions do.
        let old = Path::new("/bin/echo");
        assert!(!knows(old, NEWEST_CPU) && knows(old, "--mcpu=help"));
    }

    #[test]
    fn the_newest_architecture_is_that_of_an_image() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../toolchains");
        let images = super::super::image::ImageFacts::all(&folder).unwrap();
        let newest = images.iter().map(|image| image.arch().to_owned()).max();
        assert_eq!(
            newest.as_deref().map(|arch| format!("hexagon{arch}")).as_deref(),
            Some(NEWEST_CPU)
        );
    }
}
