//! The border: no panic leaves it, and a failure is one line in ggml's log.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::BackendError;

/// Runs the inside of a foreign entry; `None` after a failure, which is logged with what was being done.
pub(crate) fn entry<T>(doing: &str, inside: impl FnOnce() -> Result<T, BackendError>) -> Option<T> {
    // What a panic leaves half done is behind mutexes, whose poison is ignored on purpose: each use starts by checking
    // what it finds against ggml's own structures.
    match catch_unwind(AssertUnwindSafe(inside)) {
        Ok(Ok(value)) => Some(value),
        Ok(Err(error)) => {
            log::error!("{doing}: {error}");
            None
        }
        Err(panic) => {
            log::error!("{doing}: a fault in the back end: {}", text(&*panic));
            None
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    said.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_panics_nor_errors_pass() {
        assert_eq!(entry("nothing", || Ok(7)), Some(7));
        assert_eq!(entry::<()>("failing", || Err(BackendError::Null("tensor"))), None);
        assert_eq!(entry::<()>("panicking", || panic!("on purpose")), None);
    }
}
