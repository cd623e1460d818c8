//! The example programs that a newcomer reads first: each is run to the end.

use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::process;
use crate::steps::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{model, workspace};

pub(crate) struct Example {
    package: &'static str,
    name: &'static str,
    run: Run,
}

/// How an example is run here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    /// To its end, without arguments.
    Plain,
    /// To its end, with the path of the test model.
    WithModel,
    /// Not here: it measures, repeats what the tests do or serves another command, and is built by clippy only.
    OnRequest,
}

/// Every example of the workspace. One that is not listed here, or is listed and gone, fails the step.
pub(crate) const EXAMPLES: &[Example] = &[
    Example {
        package: "hexloom",
        name: "first_batch",
        run: Run::Plain,
    },
    Example {
        package: "hexloom-models",
        name: "generate",
        run: Run::WithModel,
    },
    Example {
        package: "hexloom-conformance",
        name: "conformance",
        run: Run::OnRequest,
    },
    Example {
        package: "hexloom-dsp",
        name: "mapping_cost",
        run: Run::OnRequest,
    },
    Example {
        package: "hexloom-dsp",
        name: "matmul_speed",
        run: Run::OnRequest,
    },
    Example {
        package: "hexloom-emu",
        name: "device_log",
        run: Run::OnRequest,
    },
    Example {
        package: "hexloom",
        name: "residency",
        run: Run::OnRequest,
    },
    Example {
        package: "hexloom",
        name: "window_histories",
        run: Run::OnRequest,
    },
];

pub(crate) fn run_all(context: &Context) -> Result<Outcome> {
    let there = targets(&context.workspace.packages("")?);
    let mut outcome = Outcome::default();
    build(context)?;
    for unlisted in unlisted(&there) {
        outcome.failed += 1;
        outcome.failures.push(unlisted);
    }
    for example in EXAMPLES {
        let Example { package, name, .. } = example;
        if !there.contains(&((*package).into(), (*name).into())) {
            outcome.failed += 1;
            outcome.failures.push(format!("{package} has no example {name}"));
            continue;
        }
        if example.run == Run::OnRequest {
            continue;
        }
        match run_one(&context.workspace, example, context) {
            Ok(()) => outcome.passed += 1,
            Err(error) => {
                outcome.failed += 1;
                outcome.failures.push(format!("{package}, {name}: {error:#}"));
            }
        }
    }
    Ok(outcome)
}

/// Builds all examples as the tests were built, so that nothing is compiled twice.
fn build(context: &Context) -> Result<()> {
    let mut command = process::cargo();
    command
        .args(["build", "--workspace", "--profile", "test", "--examples"])
        .current_dir(&context.workspace.root);
    process::run(&mut command, context.deadline).context("the examples do not build")
}

fn run_one(workspace: &Workspace, example: &Example, context: &Context) -> Result<()> {
    let mut command = Command::new(workspace.target().join("debug/examples").join(example.name));
    command
        .env(workspace::CACHE_VAR, &workspace.cache)
        .current_dir(&workspace.root);
    if example.run == Run::WithModel {
        command.arg(model::ensure(workspace)?);
    }
    process::run(&mut command, context.deadline).context("the example did not end well")
}

/// `(package, example)` for each example target in what `cargo metadata` printed.
fn targets(packages: &[Value]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for package in packages {
        for target in package["targets"].as_array().into_iter().flatten() {
            let kinds = target["kind"].as_array().into_iter().flatten();
            if kinds.into_iter().any(|kind| kind == "example")
                && let (Some(package), Some(name)) = (package["name"].as_str(), target["name"].as_str())
            {
                found.push((package.to_owned(), name.to_owned()));
            }
        }
    }
    found
}

fn unlisted(there: &[(String, String)]) -> Vec<String> {
    there
        .iter()
        .filter(|(package, name)| {
            !EXAMPLES
                .iter()
                .any(|example| example.package == package && example.name == name)
        })
        .map(|(package, name)| {
            format!("{package} has an example {name} that is not in EXAMPLES (xtask/src/examples.rs)")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_examples_are_found() {
        let packages = serde_json::json!([
            {"name": "hexloom", "targets": [
                {"name": "hexloom", "kind": ["lib"]},
                {"name": "first_batch", "kind": ["example"]},
                {"name": "new_one", "kind": ["example"]},
            ]},
        ]);
        let there = targets(packages.as_array().unwrap());
        let names: Vec<&str> = there.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["first_batch", "new_one"]);
        let failures = unlisted(&there);
        assert_eq!(failures.len(), 1);
        assert!(failures[0].contains("new_one"), "{failures:?}");
    }
}
