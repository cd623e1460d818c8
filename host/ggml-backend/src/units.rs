//! Which unit of a core computes each op: one line per op into the file that `HEXLOOM_UNITS` names, for tables of tests.

use std::fs::File;
use std::io::Write as _;
use std::sync::OnceLock;

use hexloom::abi::op::Op;
use hexloom::abi::unit::unit;

/// The environment variable.
const UNITS_VAR: &str = "HEXLOOM_UNITS";

/// Notes an op of a graph that is built, if anybody wants to know.
pub(crate) fn note(op: &Op) {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let path = std::env::var_os(UNITS_VAR)?;
        let opened = File::options().append(true).create(true).open(&path);
        opened
            .inspect_err(|error| log::error!("{UNITS_VAR}: cannot write {}: {error}", path.display()))
            .ok()
    });
    if let Some(mut file) = file.as_ref()
        && let Err(error) = writeln!(file, "{} {}", op.opcode, unit(op))
    {
        log::error!("{UNITS_VAR}: {error}");
    }
}
