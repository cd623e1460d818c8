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

    /// Leaves what has one of these names, and layouts of those.
    pub(super) fn keep(&mut self, names: &BTreeSet<String>) {
        let declared = |item: &&str| name(item).is_none_or(|name| names.contains(name));
        self.declarations = items(&self.declarations).filter(declared).collect();
        let laid_out = |item: &&str| laid_out(item).is_some_and(|name| names.contains(name));
        self.layouts = items(&self.layouts).filter(laid_out).collect();
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
        let mut meanings = BTreeMap::new();
        for item in items(&self.declarations) {
            let code: Vec<&str> = item
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect();
            let code = code.join(" ");
            if let (Some(name), Some(value)) = (name(item), constant(&code).or_else(|| call_shape(&code))) {
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

fn name(item: &str) -> Option<&str> {
    let line = item
        .lines()
        .find(|line| line.starts_with("pub ") || line.starts_with("impl "))?;
    if let Some(rest) = line.strip_prefix("impl Default for ") {
        return rest.split(' ').next();
    }
    let mut words = line.split([' ', ':', '<', '(', ';']).skip(1);
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
    }
}
