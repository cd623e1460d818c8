//! Reads the dependency table of `docs/architecture.md`.
//!
//! It stands between `<!-- dependency-table -->` and `<!-- /dependency-table -->`, one row a
//! crate. Package names are those in backticks (`*-sys` stands for any such name); other words are
//! for people, with two exceptions: names after "in tests and examples" are allowed there only,
//! and "anything else" under *never* closes the row to other people's crates as well.

use anyhow::{Context as _, Result, bail, ensure};

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) package: String,
    pub(crate) may_use: Vec<String>,
    pub(crate) may_use_in_tests: Vec<String>,
    pub(crate) never: Vec<String>,
    /// Other people's crates need to be listed too.
    pub(crate) closed: bool,
}

pub(crate) fn parse(document: &str) -> Result<Vec<Row>> {
    let (_, rest) = document
        .split_once("<!-- dependency-table -->")
        .context("has no line `<!-- dependency-table -->`")?;
    let (table, _) = rest
        .split_once("<!-- /dependency-table -->")
        .context("has no line `<!-- /dependency-table -->`")?;
    let mut lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
    let header = lines.next().context("has an empty dependency table")?;
    ensure!(
        cells(header) == ["crate", "may use", "never"],
        "the dependency table begins with `{header}` instead of `| crate | may use | never |`"
    );
    let mut rows: Vec<Row> = Vec::new();
    for line in lines.skip(1) {
        let row = row(line)?;
        if rows.iter().any(|other| other.package == row.package) {
            bail!("the dependency table has two rows for `{}`", row.package);
        }
        rows.push(row);
    }
    Ok(rows)
}

fn row(line: &str) -> Result<Row> {
    let cells = cells(line);
    let [package, may_use, never] = cells[..] else {
        bail!("the row `{line}` has {} cells instead of 3", cells.len());
    };
    let [package] = &names(package)[..] else {
        bail!("the row `{line}` does not begin with one package name in backticks");
    };
    let (always, in_tests) = may_use.split_once("in tests and examples").unwrap_or((may_use, ""));
    Ok(Row {
        package: package.clone(),
        may_use: names(always),
        may_use_in_tests: names(in_tests),
        never: names(never),
        closed: never.contains("anything else"),
    })
}

fn cells(line: &str) -> Vec<&str> {
    let line = line.strip_prefix('|').unwrap_or(line);
    let line = line.strip_suffix('|').unwrap_or(line);
    line.split('|').map(str::trim).collect()
}

fn names(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(rows: &str) -> String {
        format!(
            "# x\n<!-- dependency-table -->\n| crate | may use | never |\n| --- | --- | --- |\n{rows}\n<!-- /dependency-table -->\n"
        )
    }

    #[test]
    fn rows_are_read() {
        let text =
            document("| `a` | nothing | anything else; std |\n| `b` | `a`, `c`; in tests and examples `d` | `*-sys` |");
        let rows = parse(&text).unwrap();
        let strings = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].package, "a");
        assert!(rows[0].closed && rows[0].may_use.is_empty());
        assert_eq!(rows[1].may_use, strings(&["a", "c"]));
        assert_eq!(rows[1].may_use_in_tests, strings(&["d"]));
        assert_eq!(rows[1].never, strings(&["*-sys"]));
        assert!(!rows[1].closed);
    }

    #[test]
    fn broken_tables_are_refused() {
        let refused = |text: &str, why: &str| {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused("# no table", "has no line");
        refused(&document("| `a` | `b` |"), "2 cells");
        refused(&document("| a | `b` | - |"), "backticks");
        refused(&document("| `a` | - | - |\n| `a` | - | - |"), "two rows");
        refused(&document("").replace("never", "not"), "begins with");
    }
}
