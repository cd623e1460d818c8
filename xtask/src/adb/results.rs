//! `adb test` and `adb bench`: programs of the package, run on the phone, with what they print as JSON kept on the PC.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::Run;
use super::phone::Phone;
use crate::workspace::Workspace;

/// Where a program's JSON lies on the phone until it is fetched, in the package's folder.
const RESULT: &str = "result.json";

/// Texts with the scores of exact arithmetic, and how much of them a test takes.
const TEXTS: &str = "host/cli/tests/data/smollm2-exact.json";
const TEXTS_ARGS: &str = "--entries 2 --steps 8";

/// The case list, then the model where there is one. Success is a case list without a failure.
pub(super) fn test(
    phone: &Phone,
    run: &Run,
    families: &[String],
    workspace: &Workspace,
    kept: &Path,
) -> Result<ExitCode> {
    let cases = json_of(
        phone,
        &format!("bin/hexloom-conformance {} --json {}", run.device, families.join(" ")),
    )?;
    println!("{}", counts(&cases));
    let mut all = json!({"device": run.device, "cases": cases});
    let model = format!("models/{}", run.model);
    if phone.run(&format!("test -f {model}"))?.success {
        phone.push(&workspace.root.join(TEXTS), "models/texts.json")?;
        let score = format!(
            "bin/hexloom score {model} --tokens models/texts.json {TEXTS_ARGS} --compare --json --device {}",
            run.device
        );
        let scores = json_of(phone, &score)?;
        println!("{}: {scores}", run.model);
        all["scores"] = scores;
    } else {
        println!("no {model} on the phone: `cargo xtask adb push PACKAGE --model FILE` brings one");
    }
    keep(kept, "test.json", &all)?;
    let failures = all["cases"]["failures"].as_array().map_or(1, Vec::len);
    for failure in all["cases"]["failures"].as_array().into_iter().flatten() {
        println!("failed: {failure}");
    }
    Ok(ExitCode::from(u8::from(failures > 0)))
}

/// `hexloom bench` of the model.
pub(super) fn bench(phone: &Phone, run: &Run, kept: &Path) -> Result<ExitCode> {
    let bench = format!("bin/hexloom bench models/{} --json --device {}", run.model, run.device);
    let measured = json_of(phone, &bench)?;
    println!("{}", serde_json::to_string_pretty(&measured)?);
    keep(kept, "bench.json", &measured)?;
    Ok(ExitCode::SUCCESS)
}

/// What a program of the package prints as JSON, by way of a file on the phone: what it tells people meanwhile comes at any
/// time, and is shown. A program that fails after its JSON has said there what is wrong.
fn json_of(phone: &Phone, program: &str) -> Result<Value> {
    println!("on the phone: {program}");
    let ran = phone.run_lines(&format!("{} >{RESULT}", phone.program(program)), |line| {
        println!("  {line}");
    })?;
    let text = phone.run(&format!("cat {RESULT}; rm -f {RESULT}"))?.lines.join("\n");
    serde_json::from_str(&text).with_context(|| {
        let way = if ran.success { "succeeded and" } else { "failed and" };
        format!("`{program}` {way} printed no JSON:\n{}\n{text}", ran.lines.join("\n"))
    })
}

/// The case list's counts, a line for each runner.
fn counts(cases: &Value) -> String {
    let runners = cases["runners"].as_array().into_iter().flatten();
    let line = |runner: &Value| {
        let [name, ran, unsupported, gaps] = ["name", "ran", "unsupported", "gaps"].map(|key| runner[key].to_string());
        format!(
            "{}: {ran} ran, {unsupported} unsupported, {gaps} known gaps",
            name.trim_matches('"')
        )
    };
    runners.map(line).collect::<Vec<_>>().join("\n")
}

pub(super) fn keep(folder: &Path, name: &str, value: &Value) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(name);
    fs::write(&path, serde_json::to_string_pretty(value)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("kept in {}", path.display());
    Ok(())
}
