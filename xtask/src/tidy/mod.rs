//! `tidy`: what the compiler does not check but the project holds to.
//!
//! Crate dependencies follow the table of `docs/architecture.md` ([`table`], [`edges`]), the
//! firmware stays free of crates for other cores ([`firmware`]), and every source file keeps a few
//! habits ([`source`]). Each rule is a pure function, tested on a good and a bad sample.

mod edges;
mod firmware;
mod source;
mod table;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;
use crate::steps::{Context, Outcome};
use crate::workspace::Workspace;

pub(crate) fn check(context: &Context) -> Result<Outcome> {
    let workspace = &context.workspace;
    let mut findings = dependencies(workspace)?;
    findings.extend(firmware::check(&workspace.root)?);
    let paths = tracked(&workspace.root)?;
    findings.extend(source::stale_exceptions(&paths));
    for path in &paths {
        // A file that git still lists but that is gone is about to be committed as removed.
        let Ok(bytes) = fs::read(workspace.root.join(path)) else {
            continue;
        };
        findings.extend(source::check(path, &bytes));
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    eprintln!("{} files looked at", paths.len());
    Ok(Outcome::from_findings(findings))
}

fn dependencies(workspace: &Workspace) -> Result<Vec<String>> {
    let path = workspace.root.join("docs/architecture.md");
    let text = fs::read_to_string(&path).context("cannot read docs/architecture.md")?;
    let rows = table::parse(&text).context("docs/architecture.md")?;
    let mut packages = workspace.packages("")?;
    if workspace.root.join(firmware::FOLDER).exists() {
        packages.extend(workspace.packages(firmware::FOLDER)?);
    }
    Ok(edges::check(&rows, &packages))
}

/// Every file that is or would be committed, relative to the root.
fn tracked(root: &Path) -> Result<Vec<String>> {
    let listed = process::output(
        Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root),
    )
    .context("tidy looks at the files that git lists")?;
    Ok(listed
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect())
}
