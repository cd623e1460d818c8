//! Habits of source files, each a rule with a name.
//!
//! The words that the rules look for are put together from pieces, so that this file keeps them.

/// Files that may be long, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

const MAX_LINES: usize = 600;

/// Left-over work: it is done, or an issue.
const LEFT_OVER: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// File and module names that say nothing.
const EMPTY_NAMES: &[&str] = &["arena", "manager", "utils", "common", "misc"];

/// Folders that exist on one machine only.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("C:\\Us", "ers\\"),
];

/// Package registries: each client knows its own.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("index.crates", ".io"),
    concat!("deb.debian", ".org"),
    concat!("registry.npmjs", ".org"),
];

const MERGE_MARKERS: &[&str] = &[concat!("<<<<", "<<< "), concat!(">>>>", ">>> ")];

/// A rule gives line numbers (from 1) with what is wrong there.
type Rule = fn(path: &str, text: &str) -> Vec<(usize, String)>;

const RULES: &[(&str, Rule)] = &[
    ("opening", opening),
    ("length", length),
    ("left-over", |_, text| find(text, LEFT_OVER, is_word_start)),
    ("names", names),
    ("machine-path", |_, text| find(text, MACHINE_PATHS, is_path_start)),
    ("registry", registry),
    ("merge", |_, text| find(text, MERGE_MARKERS, |before| before.is_empty())),
];

/// One sentence for each broken rule in the file at `path` (relative to the root).
pub(crate) fn check(path: &str, bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        if path.ends_with(".rs") {
            return vec![format!("{path}: is not UTF-8")];
        }
        return Vec::new();
    };
    RULES
        .iter()
        .flat_map(|(name, rule)| {
            rule(path, text)
                .into_iter()
                .map(move |(line, what)| format!("{path}:{line}: {what} [{name}]"))
        })
        .collect()
}

/// Exceptions that excuse nothing any more.
pub(crate) fn stale_exceptions(paths: &[String]) -> Vec<String> {
    LONG_FILES
        .iter()
        .filter(|(long, _)| !paths.iter().any(|path| path == long))
        .map(|(long, _)| format!("xtask/src/tidy/source.rs: LONG_FILES names {long}, which is gone"))
        .collect()
}

fn opening(path: &str, text: &str) -> Vec<(usize, String)> {
    if path.ends_with(".rs") && !text.starts_with("//!") {
        return vec![(1, "begins without `//!` and a line on what the file is for".into())];
    }
    Vec::new()
}

fn length(path: &str, text: &str) -> Vec<(usize, String)> {
    let n_lines = text.lines().count();
    let excused = LONG_FILES.iter().any(|(long, _)| *long == path);
    match (path.ends_with(".rs"), n_lines > MAX_LINES) {
        (true, true) if !excused => vec![(
            MAX_LINES,
            format!("{n_lines} lines; split it, or list it in LONG_FILES with the reason"),
        )],
        (true, false) if excused => vec![(1, "needs no place in LONG_FILES any more".into())],
        _ => Vec::new(),
    }
}

fn names(path: &str, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for part in path.split('/') {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        if EMPTY_NAMES.contains(&stem) {
            found.push((1, format!("`{part}` says nothing; name it after what it holds")));
        }
    }
    if !path.ends_with(".rs") {
        return found;
    }
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .collect();
        let is_item = line.trim_start().starts_with("mod ") || line.trim_start().starts_with("pub");
        for pair in words.windows(2) {
            if is_item && pair[0] == "mod" && EMPTY_NAMES.contains(&pair[1]) {
                found.push((index + 1, format!("module `{}` says nothing", pair[1])));
            }
        }
    }
    found
}

fn registry(path: &str, text: &str) -> Vec<(usize, String)> {
    // cargo itself writes its registry into the lock file.
    if path.ends_with("Cargo.lock") {
        return Vec::new();
    }
    find(text, REGISTRY_HOSTS, |_| true)
}

/// Lines that hold one of `words` where what stands before it satisfies `starts`.
fn find(text: &str, words: &[&str], starts: fn(&str) -> bool) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in words {
            if line.match_indices(word).any(|(at, _)| starts(&line[..at])) {
                found.push((index + 1, format!("holds `{}`", word.trim_end())));
            }
        }
    }
    found
}

fn is_word_start(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn is_path_start(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric() || "_-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the rules that `text` at `path` breaks.
    fn broken(path: &str, text: &str) -> Vec<String> {
        check(path, text.as_bytes())
            .iter()
            .map(|finding| finding.rsplit_once('[').unwrap().1.trim_end_matches(']').into())
            .collect()
    }

    #[test]
    fn a_good_file_breaks_nothing() {
        let text = "//! What and why.\n\nmod batch;\nlet x = a << 7; // host/work/x, ./home/y\n";
        assert!(broken("host/src/lib.rs", text).is_empty());
        assert!(broken("docs/a.md", "a\n=======\nmod common;\n").is_empty());
    }

    #[test]
    fn each_bad_sample_breaks_its_rule() {
        for (path, text, rule) in [
            ("a.rs", "use x;\n".to_owned(), "opening"),
            ("a.rs", format!("//! x\n{}", "\n".repeat(600)), "length"),
            ("a.rs", format!("//! x\n// {}: later\n", LEFT_OVER[0]), "left-over"),
            ("a.md", format!("{} this\n", LEFT_OVER[1]), "left-over"),
            ("a.rs", format!("//! x\nfn f() {{ {}() }}\n", LEFT_OVER[2]), "left-over"),
            ("a.rs", format!("//! x\nfn f() {{ {}() }}\n", LEFT_OVER[3]), "left-over"),
            ("src/utils.rs", "//! x\n".to_owned(), "names"),
            ("tests/common/mod.rs", "//! x\n".to_owned(), "names"),
            ("a.rs", "//! x\npub(crate) mod misc;\n".to_owned(), "names"),
            ("a.toml", format!("path = \"{}x\"\n", MACHINE_PATHS[0]), "machine-path"),
            ("a.md", format!("see {}me/x\n", MACHINE_PATHS[1]), "machine-path"),
            ("a.sh", format!("curl {}\n", REGISTRY_HOSTS[0]), "registry"),
            ("a.md", format!("{}HEAD\n", MERGE_MARKERS[0]), "merge"),
        ] {
            assert_eq!(broken(path, &text), [rule], "{path}: {text}");
        }
    }

    #[test]
    fn findings_name_the_line() {
        let text = format!("a\nb {}\n", LEFT_OVER[1]);
        assert!(check("a.md", text.as_bytes())[0].starts_with("a.md:2: "));
        assert!(check("a.rs", &[0xff])[0].contains("UTF-8"));
        assert!(check("a.bin", &[0xff]).is_empty());
    }
}
