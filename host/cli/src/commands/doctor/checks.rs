//! The checks in their order; what needs something that failed is skipped.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hexloom::session::MeasureEnd;
use hexloom::transport::SessionAt;
use hexloom::{OpenError, Session, SessionOptions, Transport};
use hexloom_fastrpc::calls::CALLS;
use hexloom_fastrpc::find::System;
use hexloom_fastrpc::{CoreFacts, FastRpcTransport, LoadError};

use super::{Check, State, canary, library, nodes, selftest};
use crate::budget::{self, Budget};
use crate::device::DeviceChoice;
use crate::output::mib;

/// What to do where an error says it already.
const SAID: &str = "do what the message says, then run this again";

/// Below it are the system's files.
const ROOT: &str = "/";

/// Every check of core `number`; with `model` the canary prompts, too.
pub(super) fn all(choice: &DeviceChoice, number: u32, model: Option<&Path>) -> Vec<Check> {
    let mut checks = Vec::new();
    let transport = match FastRpcTransport::open(choice.fastrpc()) {
        Ok(transport) => Arc::new(transport),
        Err(error) => {
            let remedy = match error {
                LoadError::NotFound(_) => "install the device's driver, or name its library with --cdsprpc",
                _ => SAID,
            };
            checks.push(Check::failed("driver library", error.to_string(), remedy));
            checks.push(nodes::check(Path::new(ROOT), System::this()));
            skip_rest(&mut checks, "there is no driver library");
            return checks;
        }
    };
    checks.push(Check::ok("driver library", library_name(&transport)));
    checks.push(calls(&transport));
    checks.push(nodes::check(Path::new(ROOT), System::this()));
    let Some(core) = cores(&transport, number, &mut checks) else {
        skip_rest(&mut checks, "the core is not there");
        return checks;
    };
    let Some(arch) = choice.arch.or(core.arch) else {
        let remedy = "name the architecture with --arch";
        checks.push(Check::failed("architecture", "the driver does not say", remedy));
        skip_rest(&mut checks, "the architecture is not known");
        return checks;
    };
    checks.extend(library::check(
        arch,
        &core,
        |name| std::env::var(name).ok(),
        Path::new(ROOT),
    ));
    let Some(session) = session(&transport, &core, &mut checks) else {
        skip_rest(&mut checks, "no session opens");
        return checks;
    };
    checks.iter_mut().for_each(Check::acquit);
    checks.push(selftest::check(&session));
    checks.push(match model {
        Some(model) => canary::check(&session, model),
        None => Check::skipped("canary prompts", "no model was named (--model)"),
    });
    checks
}

/// Names of the checks that come last, marked as skipped where they have not been made.
fn skip_rest(checks: &mut Vec<Check>, why: &str) {
    let all = [
        "calls",
        "cores",
        "DSP library",
        "signature",
        "session",
        "budget",
        "self-test",
        "canary prompts",
    ];
    for name in all {
        if !checks.iter().any(|check| check.name == name) {
            checks.push(Check::skipped(name, why));
        }
    }
}

/// The driver library's file, with the name that it was asked for by where that is another one.
fn library_name(transport: &FastRpcTransport) -> String {
    let name = transport.library().display();
    match transport.library_file() {
        Some(file) if file != transport.library() => format!("{}, as {name}", file.display()),
        _ => name.to_string(),
    }
}

fn calls(transport: &FastRpcTransport) -> Check {
    let missing = transport.missing_calls();
    let fallbacks = CALLS.iter().filter(|call| missing.contains(&call.name));
    let fallbacks: Vec<String> = fallbacks
        .map(|call| format!("no {}: {}", call.name, call.fallback.unwrap_or("")))
        .collect();
    match fallbacks.is_empty() {
        true => Check::ok("calls", format!("all {}", CALLS.len())),
        false => Check::warning("calls", fallbacks.join("\n"), "update the device's driver"),
    }
}

/// The core to look at.
fn cores(transport: &FastRpcTransport, number: u32, checks: &mut Vec<Check>) -> Option<CoreFacts> {
    let facts = match transport.facts() {
        Ok(facts) => facts,
        Err(error) => {
            checks.push(Check::failed("cores", error.to_string(), SAID));
            return None;
        }
    };
    let text = |core: &CoreFacts| {
        let arch = core.arch.map_or_else(|| "v?".to_owned(), |arch| format!("v{arch}"));
        format!("{} {} (domain {}, {arch})", core.number, core.name, core.domain)
    };
    let all: Vec<String> = facts.iter().map(text).collect();
    let core = facts.into_iter().find(|core| core.number == number);
    checks.push(match core {
        Some(_) => Check::ok("cores", all.join(", ")),
        None => Check::failed("cores", all.join(", "), "name one of them with --core"),
    });
    core
}

/// A trial session; tells what it has and how much it can map.
fn session(transport: &Arc<FastRpcTransport>, core: &CoreFacts, checks: &mut Vec<Check>) -> Option<Session> {
    let at = SessionAt {
        core: core.number,
        session: 0,
    };
    let begun = Instant::now();
    let budget = budget::measure(&**transport, at);
    let options = SessionOptions {
        at,
        ..SessionOptions::default()
    };
    let opened = Session::open(Arc::clone(transport) as Arc<dyn Transport>, options);
    let session = match opened {
        Ok(session) => session,
        Err(error) => {
            checks.push(Check::failed("session", error.to_string(), SAID));
            return None;
        }
    };
    let hw = session.hw();
    let (arch, threads, scratch) = (hw.arch, session.n_threads(), mib(hw.scratch_bytes));
    let process = if core.unsigned { "unsigned" } else { "signed" };
    let took = begun.elapsed().as_secs_f64();
    checks.push(Check::ok(
        "session",
        format!("v{arch}, {threads} threads, {scratch} scratch, {process} process, in {took:.2} s"),
    ));
    checks.push(window(budget, hw.window_bytes));
    debug_assert!(
        checks
            .iter()
            .all(|check| check.state != State::Failed || check.remedy.is_some())
    );
    Some(session)
}

/// How much of the window can be mapped, held against all of it.
fn window(budget: Result<Budget, OpenError>, window_bytes: u64) -> Check {
    const NAME: &str = "budget";
    let budget = match budget {
        Ok(budget) => budget,
        Err(error) => return Check::failed(NAME, error.to_string(), SAID),
    };
    let bytes = budget.measured.bytes;
    if bytes >= window_bytes {
        return Check::ok(NAME, format!("{} can be mapped", mib(window_bytes)));
    }
    let mut found = format!("{} can be mapped of a window of {}", mib(bytes), mib(window_bytes));
    if let Some(doubt) = budget.doubt() {
        found += &format!("; {doubt}");
    }
    let remedy = match budget.measured.end {
        // Nothing was found to be wrong.
        MeasureEnd::Bound => return Check::ok(NAME, found),
        MeasureEnd::Memory(_) => "close other programs: the device is short of memory",
        MeasureEnd::Window => "close other programs that use the NPU, or plan with --window",
    };
    Check::warning(NAME, found, remedy)
}
