//! ggml's operator test: which cases there are, which are run, and what came of them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sha2::{Digest as _, Sha256};

use super::Loaded;
use crate::process;
use crate::steps::Outcome;

/// The device that the back end lists first.
const DEVICE: &str = "HEX0";
/// The one whose results the test takes as right.
const CPU: &str = "CPU";
/// Chooses the cases of the list; another seed, another list.
const SEED: &str = "hexloom 1";
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
const ALL_LIMIT: Duration = Duration::from_secs(3 * 3600);

/// What is on a list; larger cases are left to `--all`.
pub(super) struct Size {
    /// Cases of one op with one set of types.
    per_group: usize,
    /// Elements of a tensor.
    max_elems: u64,
    /// Products of a matrix multiplication.
    max_products: u64,
}

/// One line of the test's own report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    op: String,
    params: String,
    supported: bool,
    error: String,
}

/// Results by op.
#[derive(Default)]
pub(super) struct Table {
    rows: BTreeMap<String, Row>,
}

#[derive(Default)]
struct Row {
    cases: usize,
    supported: usize,
    passed: usize,
    /// Run by nobody: the test's own CPU back end has nothing to compare them with.
    unjudged: usize,
    failed: Vec<String>,
}

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
        passed: table.rows.values().map(|row| row.passed).sum(),
        failed: table.failed(),
        failures: table.rows.values().flat_map(|row| row.failed.clone()).collect(),
        ..Outcome::default()
    })
}

/// Runs every claimed case, or those of the ops named.
pub(super) fn run_all(loaded: &Loaded<'_>, ops: Option<&str>) -> Result<Table> {
    let mut all = probe(loaded)?;
    if let Some(ops) = ops {
        all.retain(|case| ops.split(',').any(|op| op == case.op));
    }
    let mut table = Table::default();
    table.count(&all);
    let claimed: Vec<&Case> = all.iter().filter(|case| case.supported).collect();
    run_cases(loaded, &claimed, Instant::now() + ALL_LIMIT, &mut table)?;
    Ok(table)
}

/// Every case there is, with what the back end claims.
fn probe(loaded: &Loaded<'_>) -> Result<Vec<Case>> {
    let mut command = loaded.with(loaded.peer.operator_test());
    command.args(["support", "-b", DEVICE, "--output", "csv"]);
    let text = process::output(&mut command)?;
    Ok(text.lines().filter_map(read).collect())
}

/// A few claimed cases of every op and set of types, the same ones at every run.
fn choose<'a>(all: &'a [Case], size: &Size) -> Vec<&'a Case> {
    let small = all.iter().filter(|case| case.supported && is_small(&case.params, size));
    let mut keyed: Vec<(Vec<u8>, &Case)> = small
        .map(|case| (Sha256::digest(format!("{SEED} {}", case.name())).to_vec(), case))
        .collect();
    keyed.sort();
    let mut taken: BTreeMap<(&str, Vec<&str>), usize> = BTreeMap::new();
    let mut list: Vec<&Case> = Vec::new();
    for (_, case) in keyed {
        let n = taken.entry((&case.op, types(&case.params))).or_default();
        if *n < size.per_group {
            *n += 1;
            list.push(case);
        }
    }
    list.sort();
    list
}

/// The values of parameters that name types.
fn types(params: &str) -> Vec<&str> {
    let named = params.split(',').filter(|param| param.starts_with("type"));
    named.collect()
}

fn is_small(params: &str, size: &Size) -> bool {
    let numbers = |text: &str| -> Vec<u64> { text.split(',').filter_map(|n| n.trim().parse().ok()).collect() };
    let product = |numbers: Vec<u64>| numbers.into_iter().fold(1u64, u64::saturating_mul);
    let lists = params.split('[').skip(1).filter_map(|rest| rest.split(']').next());
    let largest = lists.map(|list| product(numbers(list))).max().unwrap_or(0);
    let scalar = |name: &str| {
        let value = params
            .split(',')
            .find_map(|param| param.strip_prefix(name)?.parse::<u64>().ok());
        value.unwrap_or(1)
    };
    let products = ["m=", "n=", "k=", "r=", "nh=", "kv=", "nb="].map(scalar);
    largest <= size.max_elems && product(products.to_vec()) <= size.max_products
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

/// Reads a line of the report; `None` for others.
fn read(line: &str) -> Option<Case> {
    read_of(DEVICE, line)
}

/// A line on one device. What a failed case says stands in front of its line.
fn read_of(of: &str, line: &str) -> Option<Case> {
    let start = line.find(&format!("\"{of}\",\""))?;
    let line = line[start..].strip_prefix('"')?.strip_suffix('"')?;
    let fields: Vec<&str> = line.split("\",\"").collect();
    let [device, op, params, _mode, supported, error, ..] = fields[..] else {
        return None;
    };
    (device == of).then(|| Case {
        op: op.to_owned(),
        params: params.to_owned(),
        supported: supported == "1",
        error: error.to_owned(),
    })
}

impl Case {
    /// As the test takes it on its command line.
    fn name(&self) -> String {
        format!("{}({})", self.op, self.params)
    }
}

impl Table {
    fn count(&mut self, cases: &[Case]) {
        for case in cases {
            let row = self.rows.entry(case.op.clone()).or_default();
            row.cases += 1;
            row.supported += usize::from(case.supported);
        }
    }

    fn add(&mut self, cases: &[Case]) {
        for case in cases {
            let row = self.rows.entry(case.op.clone()).or_default();
            if !case.supported {
                // Of a case of several ops only the last one is probed; it turns out when it is run.
                row.supported = row.supported.saturating_sub(1);
            } else if case.error.is_empty() {
                row.passed += 1;
            } else {
                self.fail(case, &case.error);
            }
        }
    }

    fn leave(&mut self, cases: &[Case]) {
        for case in cases {
            self.rows.entry(case.op.clone()).or_default().unjudged += 1;
        }
    }

    fn fail(&mut self, case: &Case, why: &str) {
        let row = self.rows.entry(case.op.clone()).or_default();
        row.failed.push(format!("{}: {why}", case.name()));
    }

    /// Cases that failed.
    pub(super) fn failed(&self) -> usize {
        self.rows.values().map(|row| row.failed.len()).sum()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24} {:>6} {:>9} {:>6} {:>8} {:>6}",
            "op", "cases", "supported", "passed", "unjudged", "failed"
        )?;
        let mut sums = [0; 5];
        for (op, row) in &self.rows {
            let numbers = [row.cases, row.supported, row.passed, row.unjudged, row.failed.len()];
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum += number;
            }
            let [cases, supported, passed, unjudged, failed] = numbers;
            writeln!(
                f,
                "{op:<24} {cases:>6} {supported:>9} {passed:>6} {unjudged:>8} {failed:>6}"
            )?;
        }
        let [cases, supported, passed, unjudged, failed] = sums;
        write!(
            f,
            "{:<24} {cases:>6} {supported:>9} {passed:>6} {unjudged:>8} {failed:>6}",
            "all"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#""HEX0","CPY","type_src=f32,type_dst=f16,ne=[10,2,3,4]","test","1","","hexloom""#;

    #[test]
    fn lines_of_the_report() {
        let case = read(LINE).unwrap();
        assert_eq!(case.name(), "CPY(type_src=f32,type_dst=f16,ne=[10,2,3,4])");
        assert_eq!(types(&case.params), ["type_src=f32", "type_dst=f16"]);
        assert_eq!(read("\"CPU\",\"CPY\",\"a\",\"test\",\"1\",\"\""), None);
        assert_eq!(read("loading"), None);
        // A failed case: the message comes first, without an end of line.
        let failed = read(&format!("[CPY] ERR = 0.1 > 0.01 {LINE}")).unwrap();
        assert_eq!(failed.op, "CPY");
    }

    #[test]
    fn what_is_too_large_for_the_list() {
        assert!(is_small("type=f32,ne=[10,5,4,3],nr=[1,1,1,1]", &SIMULATED));
        assert!(!is_small("type=f32,ne=[8388608,1,1,1]", &SIMULATED));
        assert!(is_small("m=16,n=8,k=256,bs=[1,1]", &SIMULATED));
        assert!(!is_small("m=4096,n=512,k=14336,bs=[1,1]", &SIMULATED));
    }

    #[test]
    fn the_list_has_every_op_and_type_and_is_fixed() {
        let mut all = Vec::new();
        for (op, dtype) in [("ADD", "f32"), ("ADD", "f16"), ("MUL", "f32")] {
            for n in 1..20 {
                all.push(Case {
                    op: op.to_owned(),
                    params: format!("type={dtype},ne=[{n}]"),
                    supported: true,
                    error: String::new(),
                });
            }
        }
        let list = choose(&all, &SIMULATED);
        assert_eq!(list.len(), 3 * SIMULATED.per_group);
        let mut turned = all.clone();
        turned.reverse();
        assert_eq!(choose(&turned, &SIMULATED), list);
    }

    #[test]
    fn failures_are_counted() {
        let mut table = Table::default();
        let mut case = read(LINE).unwrap();
        table.add(&[case.clone()]);
        case.error = "ERR = 1".to_owned();
        table.add(&[case.clone()]);
        table.leave(&[case]);
        assert_eq!(table.failed(), 1);
        assert!(table.to_string().lines().last().unwrap().ends_with("1        1      1"));
    }
}
