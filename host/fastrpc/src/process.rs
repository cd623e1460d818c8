//! Which kind of process a session runs in: one that takes unsigned libraries, or one that takes signed ones only.
//!
//! The program says, else the environment, else what the driver tells of the core. Unsigned ones are the first choice:
//! they need no key, and have everything that hexloom uses.

use std::env;

use crate::calls::LoadError;
use crate::driver::Driver;

/// The environment variable that names the kind: `unsigned` or `signed`.
pub const PROCESS_VAR: &str = "HEXLOOM_PROCESS";

/// What the program or the environment asks for; `None` = as the driver says.
pub(crate) fn wanted(by_program: Option<bool>) -> Result<Option<bool>, LoadError> {
    match by_program {
        Some(_) => Ok(by_program),
        None => parse(&env::var_os(PROCESS_VAR).unwrap_or_default().to_string_lossy()),
    }
}

/// Whether a session on a core asks for an unsigned process. A driver that does not say is asked for one, and refuses.
pub(crate) fn is_unsigned(wanted: Option<bool>, driver: &Driver, domain: u32) -> bool {
    wanted.unwrap_or_else(|| driver.takes_unsigned(domain) != Some(false))
}

fn parse(word: &str) -> Result<Option<bool>, LoadError> {
    match word {
        "" => Ok(None),
        "unsigned" => Ok(Some(true)),
        "signed" => Ok(Some(false)),
        _ => Err(LoadError::Process(word.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_two_words() {
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("unsigned"), Ok(Some(true)));
        assert_eq!(parse("signed"), Ok(Some(false)));
        let text = parse("Signed").expect_err("a third word").to_string();
        assert!(text.contains(PROCESS_VAR) && text.contains("\"Signed\""), "{text}");
        assert_eq!(wanted(Some(false)), Ok(Some(false)));
    }
}
