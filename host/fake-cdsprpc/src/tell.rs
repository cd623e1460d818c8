//! Statements to the driver, and what it tells: by a function that the library exports, and by `HEXLOOM_FAKE`.
//!
//! | statement | what |
//! | --- | --- |
//! | `option NAME=VALUE` | before the first call: `arch`, `cores`, `sessions`, `threads`, `scratch`, `window`, `junk`, `harsh`, `listing` (`new`, `old`, `none`), `signed`, `unsigned`, `extended_flags`, `dsp_extended`, `notices` (`effective`, `core`, `none`: how sessions are named), `takes_back`, `map_failed` |
//! | `fail CALL SKIP CODE` | the call after SKIP good ones gives CODE, or null, or -1; requests of `remote_session_control` have names of their own |
//! | `hang CALL SKIP` | the call after SKIP good ones does not come back before a process is killed |
//! | `deaf CORE SESSION ROOM` | the process takes no packet any more, and ROOM of them fit in its queue |
//! | `batch SEQ OP die` or `stall` | what happens at an op |
//! | `restart` | the DSPs restart |
//! | `clear` | what was planned and has not happened is forgotten, and calls that hang come back; tells how much that was |
//! | `counts` | tells what is held: sessions, queues, maps, mappings on the DSP, allocations, threads |
//! | `breaches` | tells the rules that were broken, one a line |

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write as _;

use hexloom::transport::SessionAt;
use hexloom_hexagon_sys::host;
use hexloom_sim::FaultKind;

use crate::driver::{Driver, driver, set_up};

/// The variable with statements, separated by semicolons.
const VARIABLE: &str = "HEXLOOM_FAKE";

/// Takes statements, separated by semicolons or lines, and writes what they tell as a string. Gives its length, or -1 with
/// the reason as the string; what does not fit is cut.
///
/// # Safety
/// `statements` is a string that ends with 0; `told` is writable for `room` bytes, at least one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexloom_fake_tell(statements: *const c_char, told: *mut c_char, room: usize) -> c_int {
    // SAFETY: the caller's promise.
    let statements = unsafe { CStr::from_ptr(statements) }.to_string_lossy();
    let mut text = String::new();
    let taken = each(&statements, |statement| match statement.strip_prefix("option ") {
        Some(option) => set_up(|setup| setup.set(option.trim())),
        None => obey(driver(), statement, &mut text),
    });
    let result = match taken {
        Ok(()) => text.len() as c_int,
        Err(why) => {
            text = why;
            -1
        }
    };
    let len = text.len().min(room.saturating_sub(1));
    // SAFETY: writable for more than `len` bytes by the caller's promise; the text is memory of our own.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), told.cast(), len) };
    // SAFETY: as above.
    unsafe { told.wrapping_add(len).write(0) };
    result
}

/// Takes the options of the environment: before the driver is made.
pub(crate) fn options_from_environment(set: impl FnMut(&str) -> Result<(), String>) {
    let mut set = set;
    let statements = std::env::var(VARIABLE).unwrap_or_default();
    let taken = each(&statements, |statement| {
        statement
            .strip_prefix("option ")
            .map_or(Ok(()), |option| set(option.trim()))
    });
    complain(taken);
}

/// Takes the other statements of the environment.
pub(crate) fn from_environment(driver: &Driver) {
    let statements = std::env::var(VARIABLE).unwrap_or_default();
    let taken = each(&statements, |statement| match statement.starts_with("option ") {
        true => Ok(()),
        false => obey(driver, statement, &mut String::new()),
    });
    complain(taken);
}

/// There is nobody to give an error to.
fn complain(taken: Result<(), String>) {
    if let Err(why) = taken {
        eprintln!("{VARIABLE}: {why}");
    }
}

fn each(statements: &str, mut take: impl FnMut(&str) -> Result<(), String>) -> Result<(), String> {
    let statements = statements.split([';', '\n']).map(str::trim);
    statements
        .filter(|statement| !statement.is_empty())
        .try_for_each(&mut take)
}

fn obey(driver: &Driver, statement: &str, told: &mut String) -> Result<(), String> {
    let words: Vec<&str> = statement.split_whitespace().collect();
    let no_number = |word: &str| format!("`{word}` in `{statement}` is no number");
    let number = |word: &str| word.parse::<u32>().map_err(|_| no_number(word));
    let plan = &driver.setup.sim.faults;
    match words[..] {
        ["fail", call, skip, code] => {
            let digits = code.strip_prefix("0x");
            let code = digits.map_or_else(|| code.parse().ok(), |digits| i64::from_str_radix(digits, 16).ok());
            driver
                .faults
                .plan(call, number(skip)?, code.ok_or_else(|| no_number(words[3]))? as i32);
        }
        ["hang", call, skip] => driver.faults.plan_hang(call, number(skip)?),
        ["deaf", core, session, room] => {
            let (core, session) = (number(core)?, number(session)?);
            plan.deafen(SessionAt { core, session }, number(room)?);
        }
        ["batch", seq, op, what] => {
            let kind = match what {
                "die" => FaultKind::Die,
                "stall" => FaultKind::Stall,
                _ => return Err(format!("`{what}` happens to no op")),
            };
            plan.add(number(seq)?.into(), number(op)?, kind);
        }
        ["restart"] => {
            // Told first: what waits in the driver hears of the end of its process at once.
            let running: Vec<u32> = driver.lock().domains.keys().copied().collect();
            running
                .into_iter()
                .for_each(|domain| driver.notify(domain, host::FASTRPC_DSP_SSR));
            driver.sim.restart();
        }
        ["clear"] => {
            let in_plan = usize::from(!plan.is_spent());
            plan.clear();
            let _ = write!(told, "{}", driver.faults.clear() + in_plan);
        }
        ["counts"] => {
            let counts = driver.sim.counts();
            let queues = driver.lock().queues.len();
            let _ = write!(
                told,
                "sessions {} queues {queues} maps {} dsp_maps {} allocations {} threads {}",
                counts.sessions, counts.maps, counts.dsp_maps, counts.allocations, counts.threads
            );
        }
        ["breaches"] => {
            let breaches = driver.sim.breaches().into_iter().chain(driver.lock().breaches.clone());
            *told += &breaches.collect::<Vec<_>>().join("\n");
        }
        _ => return Err(format!("`{statement}` is no statement")),
    }
    Ok(())
}
