//! The checks in their order; what needs something that failed is skipped.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hexloom::session::measure_window;
use hexloom::transport::SessionAt;
use hexloom::{Session, SessionOptions, Transport};
use hexloom_fastrpc::calls::CALLS;
use hexloom_fastrpc::{CoreFacts, FastRpcTransport};

use super::{Check, State, canary, library, nodes, selftest};
use crate::device::DeviceChoice;
use crate::output::mib;

/// What to do where an error says it already.
const SAID: &str = "do what the message says, then run this again";

/// Every check of core `number`; with `model` the canary prompts, too.
pub(super) fn all(choice: &DeviceChoice, number: u32, model: Option<&Path>) -> Vec<Check> {
    let mut checks = Vec::new();
    let transport = match FastRpcTransport::open(choice.fastrpc()) {
        Ok(transport) => Arc::new(transport),
        Err(error) => {
            let remedy = "install the device's driver, or name its library with --cdsprpc";
            checks.push(Check::failed("driver library", error.to_string(), remedy));
            checks.push(nodes::check(Path::new("/")));
            skip_rest(&mut checks, "there is no driver library");
            return checks;
        }
    };
    checks.push(Check::ok("driver library", transport.library().display().to_string()));
    checks.push(calls(&transport));
    checks.push(nodes::check(Path::new("/")));
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
    checks.extend(library::check(arch, &core, |name| std::env::var(name).ok()));
    let Some(session) = session(&transport, number, &mut checks) else {
        skip_rest(&mut checks, "no session opens");
        return checks;
    };
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
fn session(transport: &Arc<FastRpcTransport>, number: u32, checks: &mut Vec<Check>) -> Option<Session> {
    let at = SessionAt {
        core: number,
        session: 0,
    };
    let begun = Instant::now();
    let budget = measure_window(&**transport, at);
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
    let took = begun.elapsed().as_secs_f64();
    checks.push(Check::ok(
        "session",
        format!("v{arch}, {threads} threads, {scratch} scratch, in {took:.2} s"),
    ));
    checks.push(match budget {
        Ok(bytes) if bytes >= hw.window_bytes => Check::ok("budget", format!("{} can be mapped", mib(hw.window_bytes))),
        Ok(bytes) => {
            let found = format!("{} can be mapped of a window of {}", mib(bytes), mib(hw.window_bytes));
            Check::warning(
                "budget",
                found,
                "close other programs that use the NPU, or plan with --window",
            )
        }
        Err(error) => Check::failed("budget", error.to_string(), SAID),
    });
    debug_assert!(
        checks
            .iter()
            .all(|check| check.state != State::Failed || check.remedy.is_some())
    );
    Some(session)
}
