//! The device library: linked from the static library, and held against the lists of `toolchains/link/`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::elf::Image;
use super::image::{Built, ImageFacts};
use super::loader;
use super::tools::Tools;
use crate::process;

/// What the link goes by, one file each of `toolchains/link/`.
pub(crate) struct Lists {
    /// What the library gives to others.
    pub(super) exports: BTreeSet<String>,
    /// What it asks the loader for, with the architectures where it does so; none means all.
    pub(super) undefined: BTreeMap<String, BTreeSet<String>>,
    /// What it asks for and does without, likewise.
    pub(super) optional: BTreeMap<String, BTreeSet<String>>,
    /// What the loader is known to have.
    pub(super) provided: BTreeSet<String>,
    /// Where each section goes.
    pub(super) script: PathBuf,
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
            exports: list("exports.txt")?.into_keys().collect(),
            undefined: list("undefined.txt")?,
            optional: list("optional.txt")?,
            provided: list("provided.txt")?.into_keys().collect(),
            script: folder.join("library.x"),
        })
    }

    /// Holds a library against the lists and the loader's rules; an error lists everything that is wrong.
    pub(crate) fn check(&self, file: &[u8], facts: &ImageFacts) -> Result<()> {
        let image = Image::parse(file).with_context(|| facts.image.clone())?;
        let mut faults = loader::faults(&image, facts.arch(), &facts.image)?;
        faults.extend(self.name_faults(facts.arch(), &image.exports()?, &image.undefined()?));
        faults.extend(self.optional_faults(facts.arch(), &image.optional()?));
        if faults.is_empty() {
            return Ok(());
        }
        bail!("{}:\n  {}", facts.image, faults.join("\n  "))
    }

    fn name_faults(&self, arch: &str, exports: &BTreeSet<String>, undefined: &BTreeSet<String>) -> Vec<String> {
        let listed = listed(&self.undefined, arch);
        let mut faults = Vec::new();
        for name in exports.difference(&self.exports) {
            faults.push(format!(
                "it exports `{name}`, which toolchains/link/exports.txt does not name"
            ));
        }
        for name in self.exports.difference(exports) {
            faults.push(format!("it does not export `{name}` of toolchains/link/exports.txt"));
        }
        for name in undefined.difference(&listed) {
            faults.push(format!(
                "it needs `{name}`, which toolchains/link/undefined.txt does not name for {arch}"
            ));
        }
        for name in listed.difference(undefined) {
            faults.push(format!(
                "it does not need `{name}` that toolchains/link/undefined.txt names for {arch}"
            ));
        }
        for name in undefined.difference(&self.provided) {
            faults.push(format!(
                "it needs `{name}`, which is not in toolchains/link/provided.txt: the loader may lack it"
            ));
        }
        faults
    }

    fn optional_faults(&self, arch: &str, optional: &BTreeSet<String>) -> Vec<String> {
        let listed = listed(&self.optional, arch);
        let unlisted = optional
            .difference(&listed)
            .map(|name| format!("it looks for `{name}`, which toolchains/link/optional.txt does not name for {arch}"));
        let unused = listed
            .difference(optional)
            .map(|name| format!("it does not look for `{name}` that toolchains/link/optional.txt names for {arch}"));
        unlisted.chain(unused).collect()
    }
}

/// Names of a list that are for an architecture.
fn listed(list: &BTreeMap<String, BTreeSet<String>>, arch: &str) -> BTreeSet<String> {
    let here = |archs: &BTreeSet<String>| archs.is_empty() || archs.contains(arch);
    let names = list.iter().filter(|(_, archs)| here(archs));
    names.map(|(name, _)| name.clone()).collect()
}

/// Links the static library twice: with symbols, and without.
pub(crate) fn link(tools: &Tools, lists: &Lists, built: &Built, soname: &str, deadline: Instant) -> Result<Linked> {
    let versions = built.file.with_extension("map");
    fs::write(&versions, version_script(lists))?;
    let one = |extra: &[&str]| {
        let output = built.file.with_extension("so");
        let mut linker = Command::new(&tools.linker);
        // This linker is one program with several manners, chosen by its name or by this option.
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
            // Small pages, the old hash table and no lazy binding, as the DSP's loader expects.
            .args([
                "--hash-style=sysv",
                "-z",
                "norelro",
                "-z",
                "now",
                "-z",
                "max-page-size=4096",
            ])
            .args(extra)
            .arg("-T")
            .arg(&lists.script)
            .arg("-T")
            .arg(&built.log_table)
            .arg("--version-script")
            .arg(&versions)
            .args(lists.exports.iter().flat_map(|name| ["-u", name]))
            .arg(&built.file)
            .arg("-o")
            .arg(&output);
        process::run(&mut linker, deadline)?;
        let mut file = fs::read(&output).with_context(|| format!("cannot read {}", output.display()))?;
        loader::stamp(&mut file)?;
        Ok::<_, anyhow::Error>(file)
    };
    Ok(Linked {
        with_symbols: one(&[])?,
        stripped: one(&["--strip-all"])?,
    })
}

/// What keeps every other name out of the table of exports.
pub(crate) fn version_script(lists: &Lists) -> String {
    let exports: Vec<&str> = lists.exports.iter().map(String::as_str).collect();
    format!("{{ global: {}; local: *; }};\n", exports.join("; "))
}

/// The names of a list with the words behind each: one name a line, empty lines and those that begin with `#` aside.
fn names(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut names = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace().map(str::to_owned);
        if let Some(name) = words.next() {
            names.insert(name, words.collect());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn lists_have_comments_and_words() {
        let wanted = [("a".to_owned(), set(&[])), ("b".to_owned(), set(&["v73", "v75"]))];
        assert_eq!(names("# why\n\n a \nb v73  v75\n"), BTreeMap::from(wanted));
    }

    #[test]
    fn names_that_differ_from_the_lists_are_found() {
        let mut lists = Lists {
            exports: set(&["open", "close"]),
            undefined: names("sleep\nmap v68 v73\nmap2 v75\n"),
            optional: names("far v75\n"),
            provided: set(&["sleep", "map", "map2"]),
            script: PathBuf::new(),
        };
        assert!(
            lists
                .name_faults("v73", &set(&["open", "close"]), &set(&["sleep", "map"]))
                .is_empty()
        );
        let faults = lists.name_faults("v75", &set(&["open", "memcpy"]), &set(&["sleep", "map"]));
        let wanted = [
            "exports `memcpy`",
            "not export `close`",
            "needs `map`",
            "not need `map2`",
        ];
        assert_eq!(faults.len(), wanted.len(), "{faults:?}");
        for (fault, words) in faults.iter().zip(wanted) {
            assert!(fault.contains(words), "{fault}");
        }
        assert!(lists.optional_faults("v75", &set(&["far"])).is_empty());
        assert!(lists.optional_faults("v73", &set(&[])).is_empty());
        let faults = lists.optional_faults("v75", &set(&["near"]));
        assert!(
            faults.len() == 2 && faults[0].contains("looks for `near`"),
            "{faults:?}"
        );
        assert!(faults[1].contains("not look for `far`"), "{faults:?}");
        lists.provided.remove("sleep");
        let faults = lists.name_faults("v73", &set(&["open", "close"]), &set(&["sleep", "map"]));
        assert!(faults.len() == 1 && faults[0].contains("provided.txt"), "{faults:?}");
    }

    #[test]
    fn the_lists_of_the_repository_are_read() {
        let lists = Lists::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../toolchains/link")).unwrap();
        assert!(lists.exports.contains("hexloom_skel_handle_invoke"));
        assert!(lists.provided.contains("HAP_debug_v2"));
        assert!(lists.undefined.keys().all(|name| lists.provided.contains(name)));
        assert!(lists.optional.keys().all(|name| !lists.undefined.contains_key(name)));
    }
}
