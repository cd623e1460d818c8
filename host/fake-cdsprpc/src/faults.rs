//! Calls that are to fail, or not to come back.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use hexloom_hexagon_sys::host;

use crate::driver::{LONGEST, code};

/// Calls that are to fail, in the order in which they were planned.
#[derive(Debug, Default)]
pub struct Faults {
    planned: Mutex<VecDeque<Fault>>,
    /// How often calls that hang were let go.
    n_let_go: Mutex<u32>,
    let_go: Condvar,
}

#[derive(Debug)]
struct Fault {
    call: String,
    /// Good calls before it.
    skip: u32,
    kind: FaultKind,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug)]
enum FaultKind {
    /// It gives a code.
    Fails(i32),
    /// It does not come back before a process is killed, and fails then.
    Hangs,
}

impl Faults {
    /// Plans a failure of the call after `skip` good ones.
    pub(crate) fn plan(&self, call: &str, skip: u32, code: i32) {
        self.push(call, skip, FaultKind::Fails(code));
    }

    /// Plans that the call after `skip` good ones does not come back before a process is killed.
    pub(crate) fn plan_hang(&self, call: &str, skip: u32) {
        self.push(call, skip, FaultKind::Hangs);
    }

    /// Lets calls that hang come back.
    pub(crate) fn let_go(&self) {
        *self.n_let_go.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.let_go.notify_all();
    }

    /// Forgets what has not happened, and tells how much that was; calls that hang come back.
    pub(crate) fn clear(&self) -> usize {
        self.let_go();
        let mut faults = self.lock();
        let n = faults.len();
        faults.clear();
        n
    }

    /// Counts a call and gives the code that it is to fail with, when it is to come back.
    pub(crate) fn at(&self, call: &str) -> Option<i32> {
        match self.next(call)? {
            FaultKind::Fails(code) => Some(code),
            FaultKind::Hangs => {
                let n_let_go = self.n_let_go.lock().unwrap_or_else(PoisonError::into_inner);
                let before = *n_let_go;
                let waited = self.let_go.wait_timeout_while(n_let_go, LONGEST, |n| *n == before);
                drop(waited);
                Some(code(host::AEE_ECONNRESET))
            }
        }
    }

    fn push(&self, call: &str, skip: u32, kind: FaultKind) {
        let call = call.to_owned();
        self.lock().push_back(Fault { call, skip, kind });
    }

    fn next(&self, call: &str) -> Option<FaultKind> {
        let mut faults = self.lock();
        let idx = faults.iter().position(|fault| fault.call == call)?;
        let fault = &mut faults[idx];
        match fault.skip.checked_sub(1) {
            Some(skip) => {
                fault.skip = skip;
                None
            }
            None => faults.remove(idx).map(|fault| fault.kind),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Fault>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
