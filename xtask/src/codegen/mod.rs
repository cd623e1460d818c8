//! `cargo xtask codegen`: packets of the hot loops in every device library, from its disassembly, as a committed table.
//!
//! The table is docs/codegen.md. A row product that has more packets than the table says is a failure, as is one beyond its
//! limit. Loops depend on the compiler, so the table names it, and under another one only the limits count.

mod bound;
mod disasm;
mod spill;
mod table;

use std::fs;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::firmware::{self, Tools};
use crate::process;
use crate::steps::{Context, DEADLINE_S, Outcome};
use crate::workspace::Workspace;
use disasm::Function;
use table::Table;

const FILE: &str = "docs/codegen.md";
/// The first architecture that limits hold for: those before it have no instruction that makes floats of integers.
const LIMITS_FROM: u32 = 73;

/// What `cargo xtask codegen` is asked for.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write docs/codegen.md instead of checking it.
    #[arg(long)]
    write: bool,
}

/// Builds the device libraries if need be, prints the table, and checks or writes the file.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let context = Context {
        workspace: Workspace::find()?,
        deadline: Instant::now() + Duration::from_secs(DEADLINE_S),
    };
    let tools = Tools::ensure(&context.workspace, context.deadline)?;
    firmware::make_all(&context, &tools)?;
    let (table, mut findings) = look(&context.workspace, &tools)?;
    print!("{table}");
    if args.write {
        fs::write(context.workspace.root.join(FILE), table.to_string())?;
    } else {
        findings.extend(held_against_file(&context.workspace, &table)?);
    }
    for finding in &findings {
        eprintln!("error: {finding}");
    }
    Ok(if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The step after the firmware was built.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let tools = match Tools::ensure(&context.workspace, context.deadline) {
        Ok(tools) => tools,
        Err(missing) => return Ok(Outcome::skip(format!("no packets counted: {missing:#}"))),
    };
    let (table, mut findings) = look(&context.workspace, &tools)?;
    findings.extend(held_against_file(&context.workspace, &table)?);
    Ok(Outcome::from_findings(findings))
}

/// The table of what is built, with everything that is wrong whatever the file says.
fn look(workspace: &Workspace, tools: &Tools) -> Result<(Table, Vec<String>)> {
    let version = process::output(Command::new(&tools.rustc).arg("--version"))?;
    let mut table = Table::new(version.trim());
    let mut findings = Vec::new();
    for library in firmware::libraries(workspace)? {
        let functions = disasm::disassemble(
            &tools.disassembler,
            &library.with_symbols,
            &library.cpu,
            &library.features,
        )?;
        ensure!(
            !functions.is_empty(),
            "{}: no functions",
            library.with_symbols.display()
        );
        findings.extend(missing_or_slow(&library.arch, &functions, &mut table));
        let spills = spill::spills(&functions);
        table.enter_spills(&library.arch, spills.len());
        // From v79 on a register holds more of a qfloat than a store writes; before, a spill costs time only.
        if table::number(&library.arch) >= 79 {
            let line = |find: &String| format!("{}: a qfloat is stored: {find}", library.arch);
            findings.extend(spills.iter().map(line));
        }
    }
    Ok((table, findings))
}

/// Enters a library's loops into the table.
fn missing_or_slow(arch: &str, functions: &[Function], table: &mut Table) -> Vec<String> {
    let mut findings = Vec::new();
    for kernel in table::ROW_KERNELS {
        match kernel.measure(functions) {
            Some(found) => {
                if table::number(arch) >= LIMITS_FROM && kernel.limit_exceeded(&found) {
                    findings.push(format!(
                        "{arch}: {} takes {:.2} packets a tile and row, allowed {:.1}",
                        kernel.title,
                        found.per_tile_and_row(kernel.rows),
                        kernel.limit.unwrap_or_default()
                    ));
                }
                table.enter_rows(arch, kernel, found);
            }
            None => findings.push(format!("{arch}: no hardware loop for {}", kernel.title)),
        }
    }
    table.enter_others(arch, functions);
    findings
}

/// Differences from the committed table.
fn held_against_file(workspace: &Workspace, table: &Table) -> Result<Vec<String>> {
    let path = workspace.root.join(FILE);
    let file = fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
    Ok(table.differences(&file))
}
