//! The device library: linked from the static library, and held against the lists of `toolchains/link/`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::elf::Image;
use super::image::ImageFacts;
use super::tools::Tools;
use crate::process;

/// Names that matter to the link, one set a file of `toolchains/link/`.
pub(crate) struct Lists {
    /// What the library gives to others.
    exports: BTreeSet<String>,
    /// What it asks the loader for.
    undefined: BTreeSet<String>,
    /// What the loader is known to have.
    provided: BTreeSet<String>,
}

/// A linked library.
pub(crate) struct Linked {
    /// For disassembly and for decoding logs.
    pub(crate) with_symbols: Vec<u8>,
    /// For the device.
    pub(crate) stripped: Vec<u8>,
}

impl Lists {
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let list = |name: &str| {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok::<_, anyhow::Error>(names(&text))
        };
        Ok(Self {
            exports: list("exports.txt")?,
            undefined: list("undefined.txt")?,
            provided: list("provided.txt")?,
        })
    }

    /// Holds a library against the lists and the loader's rules; an error lists everything that is wrong.
    pub(crate) fn check(&self, file: &[u8], facts: &ImageFacts) -> Result<()> {
        let image = Image::parse(file).with_context(|| facts.image.clone())?;
        let mut faults = image.library_faults(&facts.image)?;
        let arch = format!("v{:x}", image.arch_flags());
        if arch != facts.arch() {
            faults.push(format!("its header says {arch}"));
        }
        faults.extend(self.name_faults(&image.exports()?, &image.undefined()?));
        if faults.is_empty() {
            return Ok(());
        }
        bail!("{}:\n  {}", facts.image, faults.join("\n  "))
    }

    fn name_faults(&self, exports: &BTreeSet<String>, undefined: &BTreeSet<String>) -> Vec<String> {
        let mut faults = Vec::new();
        for name in exports.difference(&self.exports) {
            faults.push(format!(
                "it exports `{name}`, which toolchains/link/exports.txt does not name"
            ));
        }
        for name in self.exports.difference(exports) {
            faults.push(format!("it does not export `{name}` of toolchains/link/exports.txt"));
        }
        for name in undefined.difference(&self.undefined) {
            faults.push(format!(
                "it needs `{name}`, which toolchains/link/undefined.txt does not name"
            ));
        }
        for name in self.undefined.difference(&self.provided) {
            faults.push(format!(
                "`{name}` of toolchains/link/undefined.txt is not in provided.txt: the DSP's loader may not have it"
            ));
        }
        faults
    }
}

/// Links `archive` twice: with symbols, and without.
pub(crate) fn link(tools: &Tools, lists: &Lists, archive: &Path, soname: &str, deadline: Instant) -> Result<Linked> {
    let versions = archive.with_extension("map");
    let exports: Vec<&str> = lists.exports.iter().map(String::as_str).collect();
    fs::write(&versions, format!("{{ global: {}; local: *; }};\n", exports.join("; ")))?;
    let one = |extra: &[&str]| {
        let output = archive.with_extension("so");
        let mut linker = Command::new(&tools.linker);
        // The linker is one program with several manners, chosen by its name or by this option.
        if tools.linker.ends_with("rust-lld") {
            linker.args(["-flavor", "gnu"]);
        }
        linker
            .args([
                "-m",
                "hexagonelf",
                "-shared",
                "-Bsymbolic",
                "--gc-sections",
                "-soname",
                soname,
            ])
            // Two segments on small pages and the old hash table, as libraries that the DSP's loader takes have them.
            .args([
                "--hash-style=sysv",
                "--no-rosegment",
                "-z",
                "norelro",
                "-z",
                "max-page-size=4096",
            ])
            .args(extra)
            .arg("--version-script")
            .arg(&versions)
            .args(exports.iter().flat_map(|name| ["-u", name]))
            .arg(archive)
            .arg("-o")
            .arg(&output);
        process::run(&mut linker, deadline)?;
        fs::read(&output).with_context(|| format!("cannot read {}", output.display()))
    };
    Ok(Linked {
        with_symbols: one(&[])?,
        stripped: one(&["--strip-all"])?,
    })
}

/// The names of a list: one a line, empty lines and those that begin with `#` aside.
fn names(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn lists_have_comments() {
        assert_eq!(names("# why\n\n a \nb\n"), set(&["a", "b"]));
    }

    #[test]
    fn names_that_differ_from_the_lists_are_found() {
        let lists = Lists {
            exports: set(&["open", "close"]),
            undefined: set(&["sleep", "magic"]),
            provided: set(&["sleep"]),
        };
        let faults = lists.name_faults(&set(&["open", "memcpy"]), &set(&["sleep", "sinf"]));
        let wanted = ["`memcpy`", "`close`", "`sinf`", "`magic`"];
        assert_eq!(faults.len(), wanted.len(), "{faults:?}");
        for (fault, name) in faults.iter().zip(wanted) {
            assert!(fault.contains(name), "{fault}");
        }
        let right = Lists {
            undefined: set(&["sleep"]),
            ..lists
        };
        assert!(right.name_faults(&set(&["open", "close"]), &set(&[])).is_empty());
    }

    #[test]
    fn the_lists_of_the_repository_are_read() {
        let lists = Lists::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../toolchains/link")).unwrap();
        assert!(lists.exports.contains("hexloom_open"));
        assert!(lists.provided.contains("HAP_debug_v2"));
        assert!(lists.undefined.is_subset(&lists.provided));
    }
}
