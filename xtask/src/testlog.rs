//! Reads what a test runner prints: counts, names of failures, and tests that skipped themselves.
//!
//! A test that cannot run here prints `SKIPPED: reason`. It counts as skipped, never as passed.

use std::collections::BTreeSet;

use crate::steps::Outcome;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Runner {
    Nextest,
    Libtest,
}

pub(crate) struct TestLog {
    runner: Runner,
    passed: usize,
    failed: usize,
    skipped: usize,
    /// The test whose output is being read, and whether it passed.
    block: Option<(String, bool)>,
    failures: BTreeSet<String>,
    skips: BTreeSet<(String, String)>,
}

impl TestLog {
    pub(crate) fn new(runner: Runner) -> Self {
        Self {
            runner,
            passed: 0,
            failed: 0,
            skipped: 0,
            block: None,
            failures: BTreeSet::new(),
            skips: BTreeSet::new(),
        }
    }

    /// Takes one line in; tells whether a person wants to see it.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        if let Some(reason) = line.trim_start().strip_prefix("SKIPPED:") {
            let test = self.block.as_ref().map_or("?", |(name, _)| name.as_str());
            self.skips.insert((test.to_owned(), reason.trim().to_owned()));
            return true;
        }
        match self.runner {
            Runner::Nextest => self.nextest_line(line),
            Runner::Libtest => self.libtest_line(line),
        }
    }

    /// The outcome; a runner that failed without naming a test failed as a whole.
    pub(crate) fn finish(mut self, runner_succeeded: bool) -> Outcome {
        if !runner_succeeded && self.failed == 0 {
            self.failed = 1;
            self.failures
                .insert("the tests did not build or the runner failed: see above".into());
        }
        let tests: BTreeSet<&String> = self.skips.iter().map(|(test, _)| test).collect();
        let itself = tests.len().min(self.passed);
        Outcome {
            passed: self.passed - itself,
            failed: self.failed,
            skipped: self.skipped + itself,
            failures: self.failures.into_iter().collect(),
            skips: self
                .skips
                .iter()
                .map(|(test, reason)| format!("{test}: {reason}"))
                .collect(),
        }
    }

    fn nextest_line(&mut self, line: &str) -> bool {
        if let Some((state, name)) = nextest_state(line) {
            let passed = matches!(state, "PASS" | "LEAK");
            if !passed && !matches!(state, "SLOW" | "TERMINATING") {
                self.failures.insert(name.to_owned());
            }
            self.block = Some((name.to_owned(), passed));
            return true;
        }
        if let Some(summary) = line.trim_start().strip_prefix("Summary [") {
            for (count, word) in counts(summary) {
                match word {
                    "passed" => self.passed += count,
                    "failed" | "timed" | "exec" => self.failed += count,
                    "skipped" => self.skipped += count,
                    _ => {}
                }
            }
            self.block = None;
            return true;
        }
        if self.block.is_some() && !line.is_empty() && !line.starts_with("  ") {
            self.block = None;
        }
        !matches!(self.block, Some((_, true)))
    }

    fn libtest_line(&mut self, line: &str) -> bool {
        if let Some(name) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.block = Some((name.to_owned(), true));
        } else if let Some(result) = line.strip_prefix("test result: ") {
            for (count, word) in counts(result) {
                match word {
                    "passed" => self.passed += count,
                    "failed" => self.failed += count,
                    "ignored" => self.skipped += count,
                    _ => {}
                }
            }
            self.block = None;
        } else if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failures.insert(name.to_owned());
        }
        true
    }
}

/// `        PASS [   0.008s] (1/3) crate test::name` in its two parts.
fn nextest_state(line: &str) -> Option<(&str, &str)> {
    let (state, rest) = line.trim_start().split_once(" [")?;
    let (time, name) = rest.split_once(']')?;
    if state.is_empty() || !state.bytes().all(|byte| byte.is_ascii_uppercase()) || !time.ends_with('s') {
        return None;
    }
    let name = name.trim_start();
    let name = match name.strip_prefix('(').and_then(|n| n.split_once(") ")) {
        Some((_, name)) => name,
        None => name,
    };
    Some((state, name.trim()))
}

/// Each number with the word after it: `2 passed; 1 failed` gives (2, passed), (1, failed).
fn counts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let words = || text.split(|c: char| c.is_whitespace() || ",;()".contains(c));
    let words = || words().filter(|word| !word.is_empty());
    words()
        .zip(words().skip(1))
        .filter_map(|(number, word)| Some((number.parse().ok()?, word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(runner: Runner, text: &str, succeeded: bool) -> (Outcome, Vec<&str>) {
        let mut log = TestLog::new(runner);
        let shown = text.lines().filter(|line| log.line(line)).collect();
        (log.finish(succeeded), shown)
    }

    const NEXTEST: &str = "    Starting 3 tests across 1 binary (1 test skipped)
        PASS [   0.008s] (1/3) nx a
  stdout ───

    running 1 test
    test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured

  stderr ───
    SKIPPED: no device

        PASS [   0.012s] (2/3) nx d
        FAIL [   0.155s] (3/3) nx b
  stdout ───
    boom
────────────
     Summary [   0.157s] 3 tests run: 2 passed (1 slow), 1 failed, 1 skipped
        FAIL [   0.155s] (3/3) nx b
error: test run failed";

    #[test]
    fn nextest_counts_and_skips() {
        let (outcome, shown) = read(Runner::Nextest, NEXTEST, false);
        let expected = Outcome {
            passed: 1,
            failed: 1,
            skipped: 2,
            failures: vec!["nx b".into()],
            skips: vec!["nx a: no device".into()],
        };
        assert_eq!(outcome, expected);
        assert!(shown.contains(&"    boom"));
        assert!(shown.contains(&"    SKIPPED: no device"));
        assert!(!shown.contains(&"    running 1 test"));
    }

    #[test]
    fn libtest_counts_and_skips() {
        let text = "test a ... ok
test b ... FAILED
test c ... ignored
---- a stdout ----
SKIPPED: no device
---- b stdout ----
boom
test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let (outcome, _) = read(Runner::Libtest, text, false);
        let expected = Outcome {
            passed: 5,
            failed: 1,
            skipped: 2,
            failures: vec!["b".into()],
            skips: vec!["a: no device".into()],
        };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn a_failed_build_is_a_failure() {
        let (outcome, shown) = read(Runner::Nextest, "error: could not compile `x`", false);
        assert_eq!(outcome.failed, 1);
        assert_eq!(shown.len(), 1);
        let (outcome, _) = read(Runner::Libtest, "", true);
        assert_eq!(outcome, Outcome::default());
    }
}
