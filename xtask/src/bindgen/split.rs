//! What the generator writes, taken apart: layouts apart from declarations, and functions turned into types of functions,
//! because the library that has them is opened at run time.

use std::collections::{BTreeMap, BTreeSet};

/// The declarations of one size of pointer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parts {
    /// Constants, types, and for each call its type under its own name.
    pub(super) declarations: String,
    /// Assertions of sizes and offsets.
    pub(super) layouts: String,
}

/// Takes a generated file apart.
pub(super) fn parts(text: &str) -> Parts {
    let mut parts = Parts::default();
    for item in items(text) {
        if is_layout(item) {
            parts.layouts += item;
        } else if let Some(call) = call_type(item) {
            parts.declarations += &call;
        } else {
            parts.declarations += item;
        }
    }
    parts
}

impl Parts {
    /// The names that are declared.
    pub(super) fn names(&self) -> BTreeSet<String> {
        items(&self.declarations).filter_map(name).map(str::to_owned).collect()
    }

    /// Leaves what has one of these names with all that it refers to, and layouts of those.
    pub(super) fn keep(&mut self, names: &BTreeSet<String>) {
        let names = self.closed(names);
        self.retain(|name| names.contains(name));
    }

    /// Adds what `other` declares and this does not, and gives the names. What `other` refers to must be in one of the two.
    pub(super) fn fill(&mut self, other: &Self) -> BTreeSet<String> {
        let missing: BTreeSet<String> = other.names().difference(&self.names()).cloned().collect();
        let mut added = Self {
            declarations: other.declarations.clone(),
            layouts: other.layouts.clone(),
        };
        added.retain(|name| missing.contains(name));
        self.declarations += &added.declarations;
        self.layouts += &added.layouts;
        missing
    }

    fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        let declared = |item: &&str| name(item).is_some_and(&is_kept);
        self.declarations = items(&self.declarations).filter(declared).collect();
        let laid_out = |item: &&str| laid_out(item).is_some_and(&is_kept);
        self.layouts = items(&self.layouts).filter(laid_out).collect();
    }

    /// The names that are declared here, with those that their declarations refer to, and so on.
    fn closed(&self, names: &BTreeSet<String>) -> BTreeSet<String> {
        let mut refers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for item in items(&self.declarations) {
            if let Some(name) = name(item) {
                refers.entry(name).or_default().extend(words(item));
            }
        }
        let mut closed = BTreeSet::new();
        let mut next: Vec<&str> = names.iter().map(String::as_str).collect();
        while let Some(name) = next.pop() {
            if let Some(words) = refers.get(name).filter(|_| !closed.contains(name)) {
                closed.insert(name.to_owned());
                next.extend(words);
            }
        }
        closed
    }

    /// What differs from `other` in meaning: values, layouts, types of calls. Comments and argument names do not.
    pub(super) fn faults(&self, other: &Self) -> Vec<String> {
        let mut faults = Vec::new();
        let (ours, theirs) = (self.meanings(), other.meanings());
        for (name, meaning) in &ours {
            match theirs.get(name) {
                None => faults.push(format!("`{name}` is not there")),
                Some(other) if other != meaning => faults.push(format!("`{name}` is {other}, ours is {meaning}")),
                Some(_) => {}
            }
        }
        faults
    }

    fn meanings(&self) -> BTreeMap<String, String> {
        let aliases: BTreeMap<&str, &str> = items(&self.declarations).filter_map(alias).collect();
        let mut meanings = BTreeMap::new();
        for item in items(&self.declarations) {
            let code: Vec<&str> = item
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect();
            let code = code.join(" ");
            let shape = || call_shape(&code).map(|shape| plain(&shape, &aliases));
            if let (Some(name), Some(value)) = (name(item), constant(&code).or_else(shape)) {
                meanings.insert(name.to_owned(), value);
            }
        }
        for item in items(&self.layouts) {
            if let Some(name) = laid_out(item) {
                let words: Vec<&str> = item.split_whitespace().collect();
                meanings.insert(format!("layout of {name}"), words.join(" "));
            }
        }
        meanings
    }
}

/// Top-level items with the comments and attributes in front of them.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut len = 0;
        for line in rest.split_inclusive('\n') {
            len += line.len();
            let line = line.trim_end();
            let is_inside = line.starts_with(' ') || line.is_empty();
            let begins = ["//", "#["].iter().any(|start| line.starts_with(start));
            if !is_inside && !begins && (line.ends_with(';') || line.ends_with('}')) {
                break;
            }
        }
        let (item, behind) = rest.split_at(len);
        rest = behind;
        (!item.is_empty()).then_some(item)
    })
}

fn is_layout(item: &str) -> bool {
    item.contains("\nconst _: () = {") || item.starts_with("const _: () = {")
}

fn laid_out(item: &str) -> Option<&str> {
    let (_, rest) = item.split_once("\"Size of ")?;
    rest.split('"').next()
}

/// `extern "C" { pub fn name(…) -> T; }` as `pub type name = unsafe extern "C" fn(…) -> T;`.
fn call_type(item: &str) -> Option<String> {
    let (before, body) = item.split_once("unsafe extern \"C\" {\n")?;
    let body = body.strip_suffix("}\n")?;
    let mut text = before.to_owned();
    for line in body.lines() {
        let line = line.strip_prefix("    ").unwrap_or(line);
        text += &match line.strip_prefix("pub fn ").and_then(|rest| rest.split_once('(')) {
            Some((name, rest)) => format!("pub type {name} = unsafe extern \"C\" fn({rest}"),
            None => line.to_owned(),
        };
        text.push('\n');
    }
    Some(text)
}

/// The words of an item's code.
fn words(item: &str) -> impl Iterator<Item = &str> {
    let is_code = |line: &&str| {
        !["//", "/*", "*"]
            .iter()
            .any(|start| line.trim_start().starts_with(start))
    };
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    item.lines()
        .filter(is_code)
        .flat_map(move |line| line.split(move |c| !is_word(c)))
}

/// What an item declares or implements.
fn name(item: &str) -> Option<&str> {
    let is_head = |line: &&str| ["pub ", "impl ", "impl<"].iter().any(|start| line.starts_with(start));
    let line = item.lines().find(is_head)?;
    if let Some((_, new)) = line.strip_prefix("pub use ").and_then(|rest| rest.split_once(" as ")) {
        return Some(new.trim_end_matches(';'));
    }
    let line = match line.split_once(" for ") {
        Some((_, of)) if line.starts_with("impl") => of,
        _ => line.split_once(' ')?.1,
    };
    let mut words = line.split([' ', ':', '<', '(', ';']);
    words.find(|word| !["const", "type", "struct", "union"].contains(word))
}

fn constant(code: &str) -> Option<String> {
    let (_, rest) = code.split_once("pub const ")?;
    let (_, value) = rest.split_once(" = ")?;
    Some(value.trim_end_matches(';').to_owned())
}

/// Types of a call's arguments and of what it gives.
fn call_shape(code: &str) -> Option<String> {
    let (_, rest) = code.split_once("extern \"C\" fn(")?;
    let arguments = rest
        .split(',')
        .map(|argument| argument.rsplit(": ").next().unwrap_or(argument).trim());
    let words: Vec<&str> = arguments.filter(|argument| !argument.is_empty()).collect();
    Some(words.join(", ").replace(" ;", ";"))
}

/// `pub type NAME = OTHER;` where the other is a name, too.
fn alias(item: &str) -> Option<(&str, &str)> {
    let line = item.lines().find_map(|line| line.strip_prefix("pub type "))?;
    let (name, of) = line.strip_suffix(';')?.split_once(" = ")?;
    let of = of.strip_prefix("::core::ffi::").unwrap_or(of);
    of.chars()
        .all(|c| c.is_alphanumeric() || c == '_')
        .then_some((name, of))
}

/// A call's shape with other names of plain types taken away: headers differ in which they use.
fn plain(shape: &str, aliases: &BTreeMap<&str, &str>) -> String {
    let shape = shape.replace("::core::ffi::", "");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut plain = String::new();
    let mut rest = shape.as_str();
    while !rest.is_empty() {
        let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (mut word, behind) = rest.split_at(len);
        // As many steps as there are names: aliases that go round end.
        for _ in 0..aliases.len() {
            word = aliases.get(word).copied().unwrap_or(word);
        }
        plain += match word {
            "c_int" => "i32",
            "c_uint" => "u32",
            _ => word,
        };
        let gap = behind.find(is_word).unwrap_or(behind.len());
        plain += &behind[..gap];
        rest = &behind[gap..];
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATED: &str = "pub const A: u32 = 1;\n/// A call.\nunsafe extern \"C\" {\n    /// Does it.\n    \
        pub fn call(\n        first: u32,\n        data: *mut ::core::ffi::c_void,\n    ) -> ::core::ffi::c_int;\n}\n\
        /// A record.\n#[repr(C)]\n#[derive(Copy, Clone)]\npub struct record {\n    pub a: u32,\n}\n\
        #[allow(clippy::unnecessary_operation)]\nconst _: () = {\n    [\n        \"Size of record\",\n    ]\
        [::core::mem::size_of::<record>() - 4usize];\n};\nimpl Default for record {\n    fn default() -> Self {}\n}\n\
        pub type number = u32;\n";

    #[test]
    fn layouts_stand_apart_and_calls_become_types() {
        let parts = parts(GENERATED);
        assert!(
            parts.layouts.starts_with("#[allow") && parts.layouts.contains("4usize"),
            "{parts:?}"
        );
        assert!(!parts.declarations.contains("4usize"));
        let call = "/// Does it.\npub type call = unsafe extern \"C\" fn(\n    first: u32,\n";
        assert!(parts.declarations.contains(call), "{}", parts.declarations);
        assert!(parts.declarations.ends_with("pub type number = u32;\n"));
        let names: Vec<String> = parts.names().into_iter().collect();
        assert_eq!(names, ["A", "call", "number", "record"]);
    }

    #[test]
    fn only_what_is_asked_for_is_kept() {
        let mut kept = parts(GENERATED);
        kept.keep(&BTreeSet::from(["record".to_owned()]));
        assert!(kept.declarations.contains("pub struct record") && kept.declarations.contains("impl Default"));
        assert!(!kept.declarations.contains("call") && kept.layouts.contains("Size of record"));
        kept.keep(&BTreeSet::new());
        assert_eq!(kept, Parts::default());
    }

    /// Headers of others have types behind the ones that are asked for, other names for some, and lack some.
    #[test]
    fn what_is_kept_is_whole_with_what_it_refers_to() {
        let theirs = "pub const NSP: kind = 1;\npub type kind = ::core::ffi::c_uint;\n#[repr(C)]\npub struct domain {\n    \
                      pub kind: kind_t,\n}\npub use self::kind as kind_t;\npub use self::other as other_t;\n\
                      /// The list.\n#[repr(C)]\npub struct info {\n    /// Not unrelated.\n    pub domains: *mut domain,\n}\n\
                      impl Default for info {\n    fn default() -> Self {}\n}\npub struct unrelated {\n    pub a: u32,\n}\n\
                      impl<T> unrelated<T> {\n    pub fn a() {}\n}\n\
                      const _: () = {\n    [\"Size of domain\"][1];\n};\nconst _: () = {\n    [\"Size of unrelated\"][1];\n};\n";
        let ours = "pub const FASTRPC_NSP: u32 = 1;\n#[repr(C)]\npub struct info {\n    pub domains: *mut u8,\n}\n";
        let (mut theirs, ours) = (parts(theirs), parts(ours));
        theirs.keep(&ours.names());
        let names: Vec<String> = theirs.names().into_iter().collect();
        assert_eq!(names, ["domain", "info", "kind", "kind_t"]);
        assert!(theirs.layouts.contains("domain") && !theirs.layouts.contains("unrelated"));
        assert!(theirs.declarations.contains("impl Default for info"));
        assert_eq!(theirs.fill(&ours), BTreeSet::from(["FASTRPC_NSP".to_owned()]));
        assert!(theirs.declarations.contains("pub domains: *mut domain") && !theirs.declarations.contains("*mut u8"));
        assert!(theirs.declarations.ends_with("pub const FASTRPC_NSP: u32 = 1;\n"));
    }

    #[test]
    fn what_differs_in_meaning_is_found() {
        let ours = parts(GENERATED);
        let same = GENERATED
            .replace("Does it", "Does that")
            .replace("first: u32", "other: u32");
        assert_eq!(ours.faults(&parts(&same)), Vec::<String>::new());
        for (from, to, wanted) in [
            ("A: u32 = 1", "A: u32 = 2", "`A` is 2, ours is 1"),
            ("4usize", "8usize", "layout of record"),
            ("first: u32", "first: u64", "`call` is u64"),
            ("A: u32", "B: u32", "`A` is not there"),
        ] {
            let faults = ours.faults(&parts(&GENERATED.replace(from, to)));
            assert!(faults.len() == 1 && faults[0].contains(wanted), "{faults:?}");
        }
        // Another name of the same type is no difference.
        let named = GENERATED.replace("first: u32", "first: uint32") + "pub type uint32 = ::core::ffi::c_uint;\n";
        assert_eq!(ours.faults(&parts(&named)), Vec::<String>::new());
    }
}
