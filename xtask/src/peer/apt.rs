//! apt in a folder of its own, and the mirror that this machine's Debian sources name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// apt-get on lists, status and archives inside `folder`, blind to the machine's own.
pub(super) fn apt_get(folder: &Path) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["--quiet=2", "-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=true"]);
    for (option, value) in [
        ("Dir::Etc::SourceParts", "/dev/null"),
        ("Dir::Cache::pkgcache", ""),
        ("Dir::Cache::srcpkgcache", ""),
        ("APT::Update::Post-Invoke-Success", ""),
    ] {
        command.arg("-o").arg(format!("{option}={value}"));
    }
    for (option, part) in [
        ("Dir::Etc::SourceList", "sources.list"),
        ("Dir::State::Lists", "lists"),
        ("Dir::State::status", "status"),
        ("Dir::Cache::archives", "archives"),
    ] {
        let value = folder.join(part);
        command.arg("-o").arg(format!("{option}={}", value.display()));
    }
    command
}

/// A status file in which `packages` are installed, in versions that satisfy everybody.
pub(super) fn installed(packages: &[&str]) -> String {
    let stanza = |package: &&str| {
        format!("Package: {package}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 99:99\n\n")
    };
    packages.iter().map(stanza).collect()
}

pub(super) fn machine_mirror() -> Option<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.sort();
    files.iter().find_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        match file.extension()?.to_str()? {
            "sources" => mirror_of_stanzas(&text),
            "list" => mirror_of_lines(&text),
            _ => None,
        }
    })
}

/// Debian's main archive ends in `/debian`; its security archive and other people's do not.
fn is_debian(uri: &str) -> bool {
    uri.trim_end_matches('/').ends_with("/debian")
}

fn mirror_of_lines(text: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix("deb "))
        .flat_map(str::split_whitespace)
        .find(|word| is_debian(word))
        .map(str::to_owned)
}

fn mirror_of_stanzas(text: &str) -> Option<String> {
    text.split("\n\n")
        .filter(|stanza| {
            let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name));
            field("Types:").is_some_and(|types| types.split_whitespace().any(|kind| kind == "deb"))
                && field("Enabled:").is_none_or(|enabled| enabled.trim() != "no")
        })
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("URIs:"))
        .flat_map(str::split_whitespace)
        .find(|uri| is_debian(uri))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_of_the_main_archive_is_found() {
        let stanzas = "Types: deb\nURIs: http://a.example/debian-security\nSuites: x\n
Types: deb\n# URIs: http://b.example/debian\nURIs: http://c.example/debian/\nSuites: x";
        let found = mirror_of_stanzas(stanzas);
        assert_eq!(found.as_deref(), Some("http://c.example/debian/"));
        let off = "Types: deb\nEnabled: no\nURIs: http://c.example/debian";
        assert_eq!(mirror_of_stanzas(off), None);

        let lines = "# deb http://a.example/debian x main
deb-src http://b.example/debian x main
deb [signed-by=/k.gpg] http://c.example/ubuntu x main
deb [arch=amd64] http://d.example/debian x main";
        let found = mirror_of_lines(lines);
        assert_eq!(found.as_deref(), Some("http://d.example/debian"));
    }
}
