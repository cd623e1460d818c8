//! Compares the crates' declared dependencies with the table.

use std::collections::BTreeSet;

use serde_json::Value;

use super::table::Row;

/// One sentence for each dependency that the table does not allow, and for each row that names
/// no crate or crate that has no row. `packages` as `cargo metadata` prints them.
pub(crate) fn check(rows: &[Row], packages: &[Value]) -> Vec<String> {
    let ours: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut findings = Vec::new();
    for row in rows {
        if !ours.contains(row.package.as_str()) {
            findings.push(format!(
                "docs/architecture.md: the dependency table has a row for `{}`, which is no crate of the workspace",
                row.package
            ));
        }
    }
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(row) = rows.iter().find(|row| row.package == name) else {
            findings.push(format!(
                "docs/architecture.md: the dependency table has no row for `{name}`"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            let in_tests = dependency["kind"] == "dev";
            if let Some(why) = refusal(row, on, ours.contains(on), in_tests) {
                let where_ = if in_tests { " in its tests and examples" } else { "" };
                findings.push(format!("`{name}` uses `{on}`{where_}: {why} (docs/architecture.md)"));
            }
        }
    }
    findings
}

fn refusal(row: &Row, on: &str, is_ours: bool, in_tests: bool) -> Option<&'static str> {
    let has = |names: &[String]| names.iter().any(|name| matches(name, on));
    if has(&row.may_use) || (in_tests && has(&row.may_use_in_tests)) {
        return None;
    }
    if has(&row.never) {
        return Some("the dependency table says never");
    }
    if is_ours || (row.closed && !in_tests) {
        return Some("the dependency table does not allow it");
    }
    None
}

/// Whether `name` is `pattern`, in which one `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(package: &str, may_use: &[&str], in_tests: &[&str], never: &[&str]) -> Row {
        let strings = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect();
        Row {
            package: package.into(),
            may_use: strings(may_use),
            may_use_in_tests: strings(in_tests),
            never: strings(never),
            closed: never.contains(&"anything else"),
        }
    }

    fn check_one(row: Row, on: &str, kind: Value) -> Vec<String> {
        let rows = [row, self::row("dsp", &[], &[], &[]), self::row("abi", &[], &[], &[])];
        let packages = [
            json!({"name": "host", "dependencies": [{"name": on, "kind": kind}]}),
            json!({"name": "dsp", "dependencies": []}),
            json!({"name": "abi", "dependencies": []}),
        ];
        check(&rows, &packages)
    }

    #[test]
    fn allowed_edges_pass() {
        let host = || row("host", &["abi"], &["dsp"], &["*-sys"]);
        assert!(check_one(host(), "abi", Value::Null).is_empty());
        assert!(check_one(host(), "dsp", json!("dev")).is_empty());
        assert!(check_one(host(), "log", Value::Null).is_empty());
    }

    #[test]
    fn other_edges_are_found() {
        let host = || row("host", &["abi"], &["dsp"], &["*-sys"]);
        let found = check_one(host(), "dsp", Value::Null);
        assert!(found[0].contains("`host` uses `dsp`: "), "{found:?}");
        let found = check_one(host(), "vendor-sys", json!("build"));
        assert!(found[0].contains("never"), "{found:?}");
        let closed = || row("host", &["abi"], &[], &["anything else"]);
        assert_eq!(check_one(closed(), "log", Value::Null).len(), 1);
        assert!(check_one(closed(), "proptest", json!("dev")).is_empty());
    }

    #[test]
    fn rows_and_crates_must_match() {
        let found = check(&[row("gone", &[], &[], &[])], &[json!({"name": "new"})]);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("`gone`") && found[1].contains("`new`"));
    }

    #[test]
    fn stars_match() {
        assert!(matches("*-sys", "hexagon-sys"));
        assert!(matches("hexloom-*", "hexloom-sim"));
        assert!(!matches("*-sys", "sysinfo"));
        assert!(!matches("abi", "hexloom-abi"));
    }
}
