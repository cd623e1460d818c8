//! How a session ends: its process is gone, a call of it never came back, or it was closed. The first reason stays.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hexloom::transport::aee::{self, Side};
use hexloom::transport::{Death, TransportError};

use crate::notices::Watch;

/// Whether and why a session is over.
pub(super) struct End {
    watch: Watch,
    dead: Mutex<Option<Death>>,
    is_closed: AtomicBool,
}

impl End {
    pub(super) fn new(watch: Watch) -> Self {
        Self {
            watch,
            dead: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Refuses what comes after the end.
    pub(super) fn check(&self) -> Result<(), TransportError> {
        if self.is_closed() {
            return Err(TransportError::Dead("closed".into()));
        }
        match &*self.dead() {
            Some(death) => Err(TransportError::Dead(death.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.check().is_err()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Notes that the session is closed; false when it was before.
    pub(super) fn close(&self) -> bool {
        !self.is_closed.swap(true, Ordering::AcqRel)
    }

    /// The error of a call: the end of the process where the code says so.
    pub(super) fn failed(&self, call: &'static str, code: i32, what: impl std::fmt::Display) -> TransportError {
        match is_end(code) {
            true => self.died(call, code),
            false => aee::failed(call, code, what),
        }
    }

    /// The process is gone, as the code of a call says.
    pub(super) fn died(&self, call: &str, code: i32) -> TransportError {
        self.note(|| {
            let told = self.watch.told().unwrap_or("the driver does not say why");
            format!("{told} ({call} failed with {code:#x}: {})", aee::decode(code))
        })
    }

    /// A call never came back.
    pub(super) fn stuck(&self, call: &str, error: &TransportError) {
        self.note(|| format!("{call}: {error}"));
    }

    /// The library's answer is none that it can give.
    pub(super) fn garbage(&self, what: &str) -> TransportError {
        self.note(|| format!("the library answered with {what}"))
    }

    fn note(&self, why: impl FnOnce() -> String) -> TransportError {
        let death = self.dead().get_or_insert_with(|| why().as_str().into()).clone();
        TransportError::Dead(death)
    }

    fn dead(&self) -> MutexGuard<'_, Option<Death>> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a code says that the process, or the DSP, is gone.
pub(super) fn is_end(code: i32) -> bool {
    match aee::split(code) {
        (Side::Host, number) => matches!(number, aee::ECONNRESET | aee::EINTERRUPTED),
        // A call in which an exception ended the process comes back with the last of these.
        (Side::Dsp, number) => matches!(number, aee::ECONNRESET | aee::EINTERRUPTED | aee::EBADSTATE),
        // ECONNRESET and ESHUTDOWN of the kernel.
        (Side::Kernel, number) => matches!(number, 104 | 108),
    }
}

/// What is given back to a process that is gone is given back.
pub(super) fn gone_is_done(result: Result<(), TransportError>) -> Result<(), TransportError> {
    match result {
        Err(TransportError::Dead(_)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_end_a_session() {
        let on_dsp = [104, 46, 0x0d].map(|code| aee::DSP_OFFSET + code);
        for code in on_dsp.into_iter().chain([104, 46, -104, -108]) {
            assert!(is_end(code), "{code:#x}");
        }
        for code in [0, 1, 0x0d, 0x0e, 0x72, -12, aee::DSP_OFFSET + 6, 0x200] {
            assert!(!is_end(code), "{code:#x}");
        }
    }
}
