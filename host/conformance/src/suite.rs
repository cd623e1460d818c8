//! The case list on one reference session and many runners, and the count of what ran.

use std::fmt;

use hexloom::abi::DType;
use hexloom::{OpenError, Session, SessionOptions, Transport};
use std::sync::Arc;

use crate::case::{Case, Expect, tolerance};
use crate::fill::decode;
use crate::run::{Outcome, run};

/// A session under test, with a name and a count.
pub struct Runner {
    name: String,
    session: Session,
    count: Count,
}

/// A reference session and the runners that are compared with it.
pub struct Suite {
    reference: Runner,
    runners: Vec<Runner>,
    failures: Vec<String>,
}

/// What ran where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Name and count of each runner, the reference first.
    pub counts: Vec<(String, Count)>,
    /// One line for each thing that is wrong.
    pub failures: Vec<String>,
}

/// Runs of one runner; a case in several overlaps counts as often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Ran and were compared.
    pub ran: usize,
    /// Refused by the support rules, as expected or for want of scratch memory.
    pub unsupported: usize,
    /// Known to fail, and did.
    pub gaps: usize,
}

impl Runner {
    /// Opens a session with room for a batch of one op.
    pub fn open(
        name: impl Into<String>,
        transport: Arc<dyn Transport>,
        options: SessionOptions,
    ) -> Result<Self, OpenError> {
        let options = SessionOptions {
            n_slots: 2,
            batch_ops: 4,
            batch_tensors: 32,
            n_fences: 0,
            ..options
        };
        Ok(Self {
            name: name.into(),
            session: Session::open(transport, options)?,
            count: Count::default(),
        })
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }
}

impl Suite {
    /// A suite that compares the first of `runners` with `reference` and the others with the first.
    pub fn new(reference: Runner, runners: Vec<Runner>) -> Self {
        Self {
            reference,
            runners,
            failures: Vec::new(),
        }
    }

    /// Runs cases and adds to the counts.
    pub fn run(&mut self, cases: &[Case]) {
        for case in cases {
            for overlap in case.overlaps() {
                let reference = run(&self.reference.session, case, overlap);
                let mut first = None;
                let mut findings = Vec::new();
                let mut note = |runner: &mut Runner, finding: Result<(), String>| match finding {
                    Ok(()) => runner.count.ran += 1,
                    Err(what) => {
                        runner.count.gaps += usize::from(case.gap.is_some());
                        findings.push(format!("{}: {} {overlap:?}: {what}", runner.name, case.name));
                    }
                };
                match (&reference, case.expect) {
                    (Ok(Outcome::Unsupported), Expect::Unsupported) => self.reference.count.unsupported += 1,
                    (found, _) => note(&mut self.reference, expected(case, found)),
                }
                for runner in &mut self.runners {
                    let outcome = run(&runner.session, case, overlap);
                    if outcome == Ok(Outcome::Unsupported) {
                        runner.count.unsupported += 1;
                        continue;
                    }
                    let finding = expected(case, &outcome).and_then(|()| match (&first, &outcome, &reference) {
                        (Some(first), Ok(outcome), _) => same(first, outcome),
                        (None, Ok(outcome), Ok(reference)) => close(case, outcome, reference),
                        _ => Ok(()),
                    });
                    note(runner, finding);
                    if let (None, Ok(outcome)) = (&first, outcome) {
                        first = Some(outcome);
                    }
                }
                if first.is_none() && case.expect != Expect::Unsupported {
                    findings.push(format!("{} {overlap:?}: no runner supports it", case.name));
                }
                match case.gap {
                    Some(reason) if findings.is_empty() => self.failures.push(format!(
                        "{} {overlap:?} is listed as a gap ({reason}) and works: take the mark away",
                        case.name
                    )),
                    Some(_) => {}
                    None => self.failures.append(&mut findings),
                }
            }
        }
    }

    /// Runs cases and prints what ran.
    ///
    /// # Panics
    /// When something is wrong, or when a runner ran no more than `least`: a list that nothing takes would prove nothing.
    #[track_caller]
    pub fn check(mut self, cases: &[Case], least: usize) -> Report {
        self.run(cases);
        let report = self.report();
        println!("{report}");
        assert!(report.failures.is_empty(), "{report}");
        for (name, count) in &report.counts {
            assert!(count.ran > least, "{name} ran {} cases only", count.ran);
        }
        report
    }

    /// What ran so far.
    pub fn report(&self) -> Report {
        let all = std::iter::once(&self.reference).chain(&self.runners);
        Report {
            counts: all.map(|runner| (runner.name.clone(), runner.count)).collect(),
            failures: self.failures.clone(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<32}{:>7}{:>13}{:>6}", "runner", "ran", "unsupported", "gaps")?;
        for (name, count) in &self.counts {
            writeln!(
                f,
                "{name:<32}{:>7}{:>13}{:>6}",
                count.ran, count.unsupported, count.gaps
            )?;
        }
        for failure in &self.failures {
            writeln!(f, "FAILED {failure}")?;
        }
        write!(f, "{} failures", self.failures.len())
    }
}

/// Whether a case ended in the way that it must.
fn expected(case: &Case, outcome: &Result<Outcome, String>) -> Result<(), String> {
    match (outcome, case.expect) {
        (Ok(Outcome::Done(_)), Expect::Result) => Ok(()),
        (Ok(Outcome::Failed(status)), Expect::Status(wanted)) if *status == wanted => Ok(()),
        (Ok(outcome), expect) => {
            let what = match outcome {
                Outcome::Done(_) => "a result".to_owned(),
                Outcome::Unsupported => "unsupported".to_owned(),
                Outcome::Failed(status) => format!("status \"{status}\""),
            };
            Err(format!("gave {what}, expected {expect:?}"))
        }
        (Err(what), _) => Err(what.clone()),
    }
}

/// Bit-equal; any NaN equals any other.
fn same(first: &Outcome, other: &Outcome) -> Result<(), String> {
    let (Outcome::Done(first), Outcome::Done(other)) = (first, other) else {
        return Ok(());
    };
    for (idx, ((dtype, first), (_, other))) in first.iter().zip(other).enumerate() {
        if first == other {
            continue;
        }
        let both = decode(*dtype, first).into_iter().zip(decode(*dtype, other));
        let differs = |(a, b): (f64, f64)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
        if let Some(at) = both.clone().position(differs) {
            let (a, b) = both.clone().nth(at).unwrap_or_default();
            return Err(format!(
                "destination {idx}, element {at}: {b:e} instead of the first runner's {a:e}"
            ));
        }
    }
    Ok(())
}

/// Within the tolerance of the reference; integers and what is not finite exactly.
fn close(case: &Case, outcome: &Outcome, reference: &Outcome) -> Result<(), String> {
    let (Outcome::Done(outcome), Outcome::Done(reference)) = (outcome, reference) else {
        return Ok(());
    };
    for (idx, ((dtype, got), (_, wanted))) in outcome.iter().zip(reference).enumerate() {
        let (mut error, mut power) = (0.0, 0.0);
        for (at, (got, wanted)) in decode(*dtype, got).into_iter().zip(decode(*dtype, wanted)).enumerate() {
            if !got.is_finite() || !wanted.is_finite() {
                if got == wanted || got.is_nan() && wanted.is_nan() {
                    continue;
                }
                return Err(format!("destination {idx}, element {at}: {got} instead of {wanted}"));
            }
            error += (got - wanted) * (got - wanted);
            power += wanted * wanted;
        }
        let limit = match dtype {
            DType::I8 | DType::I32 | DType::I64 => 0.0,
            _ => tolerance(case),
        };
        if error > limit * power {
            return Err(format!(
                "destination {idx}: error {:e}, allowed {limit:e} (NMSE to the reference)",
                error / power
            ));
        }
    }
    Ok(())
}
