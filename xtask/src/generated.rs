//! `generated`: parts of committed files that are written by code, and the check that they are.
//!
//! A part stands between `<!-- generated: NAME -->` and `<!-- /generated -->`.

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::steps::{Context, DEADLINE_S, Outcome, STEPS};
use crate::workspace::Workspace;

struct Part {
    file: &'static str,
    name: &'static str,
    text: fn() -> String,
}

const PARTS: &[Part] = &[Part {
    file: "docs/testing.md",
    name: "budgets",
    text: budgets,
}];

pub(crate) fn check(context: &Context) -> Result<Outcome> {
    let mut findings = Vec::new();
    for part in PARTS {
        let (old, new) = render(&context.workspace, part)?;
        if old != new {
            findings.push(format!(
                "{}: the part `{}` is out of date; run `cargo xtask generated --write`",
                part.file, part.name
            ));
        }
    }
    Ok(Outcome::from_findings(findings))
}

pub(crate) fn write() -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    for part in PARTS {
        let (old, new) = render(&workspace, part)?;
        if old != new {
            fs::write(workspace.root.join(part.file), new)?;
            println!("{}: wrote `{}`", part.file, part.name);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The file as it is and as it should be.
fn render(workspace: &Workspace, part: &Part) -> Result<(String, String)> {
    let path = workspace.root.join(part.file);
    let old = fs::read_to_string(&path).with_context(|| format!("cannot read {}", part.file))?;
    let new = replace(&old, part.name, &(part.text)())
        .with_context(|| format!("{} has no part `{}`", part.file, part.name))?;
    Ok((old, new))
}

fn replace(file: &str, name: &str, text: &str) -> Option<String> {
    let open = format!("<!-- generated: {name} -->\n");
    let (before, rest) = file.split_once(&open)?;
    let end = rest.find("<!-- /generated -->")?;
    Some(format!("{before}{open}{text}{}", &rest[end..]))
}

fn budgets() -> String {
    let mut text = String::from("| step | budget | what |\n| --- | ---: | --- |\n");
    for step in STEPS {
        let _ = writeln!(text, "| {} | {} s | {} |", step.word, step.budget_s, step.what);
    }
    let sum: u64 = STEPS.iter().map(|step| step.budget_s).sum();
    let _ = writeln!(text, "| all | {sum} s | ended at {DEADLINE_S} s, whatever is left |");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_part_changes() {
        let file = "a\n<!-- generated: x -->\nold\n<!-- /generated -->\nb <!-- /generated -->";
        let new = replace(file, "x", "new\n").unwrap();
        assert_eq!(new, file.replace("old", "new"));
        assert_eq!(replace(file, "y", ""), None);
        assert_eq!(replace("<!-- generated: x -->\nold", "x", ""), None);
    }
}
