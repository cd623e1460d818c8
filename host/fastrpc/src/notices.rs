//! What the driver tells of processes on its own: that one has ended, and how.
//!
//! Notices come on threads of the driver's, for the life of the program, so that they go to a table of the program's own,
//! by the number of a watch.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hexloom_hexagon_sys::host;

use crate::driver::Driver;

static LAST: AtomicUsize = AtomicUsize::new(0);
static TOLD: Mutex<Option<HashMap<usize, host::remote_rpc_status_flags_t>>> = Mutex::new(None);

/// A session whose process is watched.
#[derive(Debug)]
pub(crate) struct Watch(usize);

impl Watch {
    /// Watches the process of a session; without notices it is told of nothing.
    pub(crate) fn new(driver: &Driver, effective: u32) -> Self {
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let context = std::ptr::without_provenance_mut(number);
        // SAFETY: the function may be called at any time from anywhere; its context is only a number.
        if !unsafe { driver.notify(effective, Some(on_notice), context) } {
            log::debug!("the driver tells nothing of the process on domain {effective}");
        }
        Self(number)
    }

    /// How the process has ended, as far as was told.
    pub(crate) fn told(&self) -> Option<&'static str> {
        let status = *lock().as_ref()?.get(&self.0)?;
        words(status)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(told) = &mut *lock() {
            told.remove(&self.0);
        }
    }
}

unsafe extern "C" fn on_notice(
    context: *mut c_void,
    _domain: c_int,
    _session: c_int,
    status: host::remote_rpc_status_flags_t,
) -> c_int {
    if words(status).is_some() {
        let mut told = lock();
        let told = told.get_or_insert_default().entry(context.addr()).or_insert(status);
        // A restart of the whole DSP ends its processes, too, and says more than they do.
        if *told != host::FASTRPC_DSP_SSR {
            *told = status;
        }
    }
    0
}

/// What has become of a process; `None` while it is well.
fn words(status: host::remote_rpc_status_flags_t) -> Option<&'static str> {
    match status {
        host::FASTRPC_USER_PD_EXIT => Some("the DSP process has ended itself"),
        host::FASTRPC_USER_PD_FORCE_KILL => {
            Some("the DSP's system has ended the process, as it does to free its memory")
        }
        host::FASTRPC_USER_PD_EXCEPTION => Some("an exception ended the DSP process; the DSP's log has the address"),
        host::FASTRPC_DSP_SSR => Some("the whole DSP has restarted"),
        _ => None,
    }
}

fn lock() -> MutexGuard<'static, Option<HashMap<usize, host::remote_rpc_status_flags_t>>> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_and_starts_are_not() {
        let watch = Watch(usize::MAX);
        let tell = |status| {
            // SAFETY: the context is only a number.
            unsafe { on_notice(std::ptr::without_provenance_mut(watch.0), 3, 0, status) };
            watch.told()
        };
        assert_eq!(tell(host::FASTRPC_USER_PD_UP), None);
        for status in [
            host::FASTRPC_USER_PD_EXIT,
            host::FASTRPC_USER_PD_FORCE_KILL,
            host::FASTRPC_USER_PD_EXCEPTION,
        ] {
            assert_eq!(tell(status), words(status));
        }
        assert_eq!(tell(host::FASTRPC_DSP_SSR), Some("the whole DSP has restarted"));
        assert_eq!(
            tell(host::FASTRPC_USER_PD_EXCEPTION),
            Some("the whole DSP has restarted")
        );
        assert_eq!(words(99), None);
    }
}
