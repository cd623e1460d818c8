//! ggml's operator test: which cases there are, which are run, and what came of them.

mod case;
mod journal;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sha2::{Digest as _, Sha256};

use super::Loaded;
use crate::process;
use crate::steps::Outcome;
use crate::workspace::Workspace;
use case::{Case, DEVICE, choose, read, read_of};
use journal::Journal;
use table::Group;

pub(super) use case::Size;
pub(super) use table::Table;

/// The one whose results the test takes as right.
const CPU: &str = "CPU";
/// The list that is run on the simulator.
pub(super) const SIMULATED: Size = Size {
    per_group: 2,
    max_elems: 1 << 20,
    max_products: 1 << 25,
};
/// The one for the emulator, which takes a thousand times as long.
pub(super) const EMULATED: Size = Size {
    per_group: 1,
    max_elems: 1 << 13,
    max_products: 1 << 18,
};
/// Bytes of case names that one call takes; the system's limit of one argument is 128 KiB.
const CALL_BYTES: usize = 60_000;
/// Time for every claimed case, for the most patient.
const ALL_LIMIT: Duration = Duration::from_secs(6 * 3600);
/// Where the library tells what its ops ran on.
const UNITS_VAR: &str = "HEXLOOM_UNITS";

/// Why the programs do not take the library, if they do not.
pub(super) fn refusal(loaded: &Loaded<'_>) -> Result<Option<String>> {
    let mut command = loaded.with(loaded.peer.operator_test());
    command.args(["support", "-b", DEVICE, "-o", "ADD", "--output", "csv"]);
    let mut said = Vec::new();
    let limit = Instant::now() + Duration::from_secs(60);
    process::run_lines(&mut command, limit, |line| said.push(line.to_owned()))?;
    if said.iter().filter_map(|line| read(line)).next().is_some() {
        return Ok(None);
    }
    let why = said
        .into_iter()
        .find(|line| line.contains("hexloom") || line.contains("API version"));
    Ok(Some(why.unwrap_or_else(|| {
        format!("the operator test knows no device {DEVICE}")
    })))
}

/// Runs a fixed list.
pub(super) fn run_list(loaded: &Loaded<'_>, size: &Size, deadline: Instant) -> Result<Outcome> {
    let all = probe(loaded)?;
    let list = choose(&all, size);
    let mut table = Table::default();
    table.count(&all);
    run_cases(loaded, &list, deadline, &mut table)?;
    println!("{table}");
    Ok(Outcome {
        passed: table.passed(),
        failed: table.failures().count(),
        failures: table.failures().cloned().collect(),
        ..Outcome::default()
    })
}

/// Runs every claimed case, or those of the ops named, op by op and type by type, and notes what each ran on. A run that
/// was ended goes on where it was.
pub(super) fn run_all(loaded: &Loaded<'_>, workspace: &Workspace, ops: Option<&str>) -> Result<Table> {
    let mut all = probe(loaded)?;
    if let Some(ops) = ops {
        all.retain(|case| ops.split(',').any(|op| op == case.op));
    }
    let mut table = Table::default();
    table.count(&all);
    let mut groups: BTreeMap<Group, Vec<&Case>> = BTreeMap::new();
    for case in all.iter().filter(|case| case.supported) {
        groups.entry((case.op.clone(), case.types())).or_default().push(case);
    }
    let folder = workspace.cache.join("peer-test");
    fs::create_dir_all(&folder)?;
    let units = folder.join("units.txt");
    let library = Sha256::digest(fs::read(&loaded.library)?);
    let library: String = library.iter().map(|byte| format!("{byte:02x}")).collect();
    let of = format!("{}, library {library}", loaded.peer.version);
    let mut journal = Journal::open(&folder.join("operators.jsonl"), &of)?;
    let deadline = Instant::now() + ALL_LIMIT;
    let loaded = loaded.with_var(UNITS_VAR, &units);
    for (idx, (group, cases)) in groups.iter().enumerate() {
        if let Some(row) = journal.done(group) {
            *table.group(group) = row.clone();
            continue;
        }
        eprintln!("{} of {}: {} {}", idx + 1, groups.len(), group.0, group.1);
        let _ = fs::remove_file(&units);
        run_cases(&loaded, cases, deadline, &mut table)?;
        let row = table.group(group);
        let noted = fs::read_to_string(&units).unwrap_or_default();
        row.units = noted
            .lines()
            .filter_map(|line| Some(line.split_once(' ')?.1.to_owned()))
            .collect();
        journal.add(group, row)?;
    }
    Ok(table)
}

/// Every case there is, with what the back end claims.
fn probe(loaded: &Loaded<'_>) -> Result<Vec<Case>> {
    let mut command = loaded.with(loaded.peer.operator_test());
    command.args(["support", "-b", DEVICE, "--output", "csv"]);
    let text = process::output(&mut command)?;
    Ok(text.lines().filter_map(read).collect())
}

fn run_cases(loaded: &Loaded<'_>, cases: &[&Case], deadline: Instant, table: &mut Table) -> Result<()> {
    let mut rest = cases;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |case: &&&Case| {
            bytes += case.name().len() + 1;
            bytes <= CALL_BYTES
        };
        let n = rest.iter().take_while(fits).count().max(1);
        let (now, later) = rest.split_at(n);
        rest = later;
        eprintln!(
            "cases {} to {} of {}",
            cases.len() - rest.len() - n + 1,
            cases.len() - rest.len(),
            cases.len()
        );
        let names: Vec<String> = now.iter().map(|case| case.name()).collect();
        let mut command = loaded.with(loaded.peer.operator_test());
        command.args(["test", "-b", DEVICE, "--output", "csv", "-o", &names.join(",")]);
        let mut said = Vec::new();
        let mut last = String::new();
        let mut unjudged = Vec::new();
        let status = process::run_lines(&mut command, deadline, |line| match (read(line), read_of(CPU, line)) {
            (Some(case), _) => said.push(case),
            (None, Some(case)) if !case.supported => unjudged.push(case),
            _ => last = line.to_owned(),
        })?;
        if said.is_empty() && unjudged.is_empty() {
            bail!("the operator test ran none of {n} cases ({status}); it said: {last}");
        }
        table.add(&said);
        table.leave(&unjudged);
        let is_in = |list: &[Case], case: &Case| list.iter().any(|ran| ran.name() == case.name());
        for missing in now.iter().filter(|case| !is_in(&said, case) && !is_in(&unjudged, case)) {
            table.fail(
                missing,
                &format!("was not reported; the test ended with {status}: {last}"),
            );
        }
    }
    Ok(())
}
