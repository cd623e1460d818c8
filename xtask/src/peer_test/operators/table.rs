//! What came of the operator test, by op and types: as a summary for a terminal and as the table of `docs/ops.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::case::Case;

/// An op and the types of its parameters.
pub(super) type Group = (String, String);

/// Results by op and types.
#[derive(Default)]
pub(crate) struct Table {
    rows: BTreeMap<Group, Row>,
}

/// Results of one op with one set of types.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) cases: usize,
    pub(super) supported: usize,
    pub(super) passed: usize,
    /// Run by nobody: the test's own CPU back end has nothing to compare them with.
    pub(super) unjudged: usize,
    pub(super) failed: Vec<String>,
    /// What its nodes ran on.
    pub(super) units: BTreeSet<String>,
}

impl Table {
    pub(super) fn count(&mut self, cases: &[Case]) {
        for case in cases {
            let row = self.row(case);
            row.cases += 1;
            row.supported += usize::from(case.supported);
        }
    }

    pub(super) fn add(&mut self, cases: &[Case]) {
        for case in cases {
            let row = self.row(case);
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

    pub(super) fn leave(&mut self, cases: &[Case]) {
        for case in cases {
            self.row(case).unjudged += 1;
        }
    }

    pub(super) fn fail(&mut self, case: &Case, why: &str) {
        self.row(case).failed.push(format!("{}: {why}", case.name()));
    }

    pub(super) fn group(&mut self, group: &Group) -> &mut Row {
        self.rows.entry(group.clone()).or_default()
    }

    fn row(&mut self, case: &Case) -> &mut Row {
        self.group(&(case.op.clone(), case.types()))
    }

    /// Cases that passed.
    pub(super) fn passed(&self) -> usize {
        self.rows.values().map(|row| row.passed).sum()
    }

    /// What failed.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &String> {
        self.rows.values().flat_map(|row| &row.failed)
    }

    /// The table of `docs/ops.md`; `of` says what was tested with what, and when.
    pub(crate) fn document(&self, of: &str) -> String {
        let sum = |number: fn(&Row) -> usize| self.rows.values().map(number).sum::<usize>();
        let on = |unit: &str| {
            let rows = self.rows.values().filter(|row| row.unit() == unit);
            rows.map(|row| row.supported).sum::<usize>()
        };
        let mut text = format!(
            "# Operators under ggml\n\n{of}\n\nOf {} cases {} are supported, {} of them on HVX or HMX; {} passed, {} failed. \
             {} could not be judged: ggml's CPU back end, whose results count as right, does not compute them.\n\n\
             \"HMX\" stands where a core's matrix unit serves, which needs more than four rows; without one it is HVX. \
             \"Gathered\" is HVX arithmetic on operands that scalar code reads or writes value by value. A case whose \
             nodes run on several has them all.\n\n\
             | op | types | cases | supported | passed | not judged | runs on |\n\
             | --- | --- | ---: | ---: | ---: | ---: | --- |\n",
            sum(|row| row.cases),
            sum(|row| row.supported),
            on("vector"),
            sum(|row| row.passed),
            self.failures().count(),
            sum(|row| row.unjudged),
        );
        for ((op, types), row) in &self.rows {
            let units: Vec<&str> = row.units.iter().map(String::as_str).collect();
            let Row {
                cases,
                supported,
                passed,
                unjudged,
                ..
            } = row;
            let _ = writeln!(
                text,
                "| {op} | {types} | {cases} | {supported} | {passed} | {unjudged} | {} |",
                units.join("; ")
            );
        }
        for failed in self.failures() {
            let _ = writeln!(text, "\nFailed: `{failed}`");
        }
        text
    }
}

impl Row {
    /// Whether all of it runs on the vector or matrix unit.
    fn unit(&self) -> &'static str {
        match self.units.iter().any(|unit| unit.starts_with("scalar")) {
            _ if self.units.is_empty() => "",
            true => "scalar",
            false => "vector",
        }
    }
}

/// By op alone.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24} {:>6} {:>9} {:>6} {:>8} {:>6}",
            "op", "cases", "supported", "passed", "unjudged", "failed"
        )?;
        let mut ops: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
        let mut all = [0; 5];
        for ((op, _), row) in &self.rows {
            let numbers = [row.cases, row.supported, row.passed, row.unjudged, row.failed.len()];
            let sums = ops.entry(op).or_default();
            for ((sum, all), number) in sums.iter_mut().zip(&mut all).zip(numbers) {
                *sum += number;
                *all += number;
            }
        }
        let mut line = |op: &str, [cases, supported, passed, unjudged, failed]: [usize; 5]| {
            writeln!(
                f,
                "{op:<24} {cases:>6} {supported:>9} {passed:>6} {unjudged:>8} {failed:>6}"
            )
        };
        ops.into_iter().try_for_each(|(op, sums)| line(op, sums))?;
        line("all", all)
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::read;
    use super::*;

    const LINE: &str = r#""HEX0","CPY","type_src=f32,type_dst=f16,ne=[10,2,3,4]","test","1","","hexloom""#;

    #[test]
    fn failures_are_counted() {
        let mut table = Table::default();
        let mut case = read(LINE).unwrap();
        table.add(&[case.clone()]);
        case.error = "ERR = 1".to_owned();
        table.add(&[case.clone()]);
        table.leave(&[case]);
        assert_eq!(table.failures().count(), 1);
        assert!(table.to_string().trim_end().ends_with("1        1      1"));
    }

    #[test]
    fn the_document_has_units_and_failures() {
        let mut table = Table::default();
        let mut case = read(LINE).unwrap();
        table.count(&[case.clone(), case.clone()]);
        table.add(&[case.clone()]);
        case.error = "ERR = 1".to_owned();
        table.add(&[case.clone()]);
        let group = (case.op.clone(), case.types());
        table.group(&group).units = ["HVX".to_owned()].into();
        let text = table.document("Today.");
        assert!(
            text.contains("| CPY | src f32, dst f16 | 2 | 2 | 1 | 0 | HVX |"),
            "{text}"
        );
        assert!(
            text.contains("2 are supported, 2 of them on HVX or HMX; 1 passed, 1 failed"),
            "{text}"
        );
        assert!(text.contains("Failed: `CPY(type_src=f32"), "{text}");
        table.group(&group).units.insert("scalar: no reason".to_owned());
        assert!(table.document("").contains("0 of them on HVX"));
    }
}
