//! What the driver tells of processes on its own: that one has ended, and how.
//!
//! Notices come on threads of the driver's, for the life of the program, so that each domain is registered once, and they
//! go to a table of the program's own. Drivers name a session beside the first in one of two ways, by its effective number
//! or by the core's with the session's beside it, and match registrations by the number that they tell.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hexloom_hexagon_sys::host;

use crate::driver::Driver;
use crate::place::Place;

static LAST_NUMBER: AtomicUsize = AtomicUsize::new(0);
static WATCHES: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

/// The notices of one driver library.
#[derive(Debug)]
pub(crate) struct Notices {
    /// Tells the libraries of a program apart.
    library: usize,
    /// Domains of which the library tells.
    registered: Mutex<BTreeSet<u32>>,
}

/// A session whose process is watched.
#[derive(Debug)]
pub(crate) struct Watch(usize);

/// What is known of it.
struct Watched {
    watch: usize,
    library: usize,
    at: At,
    told: Option<host::remote_rpc_status_flags_t>,
}

/// The names of a session in notices.
#[derive(Clone, Copy)]
struct At {
    domain: u32,
    session: u32,
    effective: u32,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            library: next_number(),
            registered: Mutex::default(),
        }
    }
}

impl Notices {
    fn register(&self, driver: &Driver, domain: u32) {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if registered.contains(&domain) {
            return;
        }
        let context = std::ptr::without_provenance_mut(self.library);
        // SAFETY: the function may be called at any time from anywhere; its context is only a number.
        match unsafe { driver.notify(domain, Some(on_notice), context) } {
            true => _ = registered.insert(domain),
            false => log::debug!("the driver tells nothing of processes on domain {domain}"),
        }
    }
}

impl Watch {
    /// Watches the process of a session; without notices it is told of nothing.
    pub(crate) fn new(driver: &Driver, place: &Place) -> Self {
        let at = At {
            domain: place.domain.id,
            session: place.session,
            effective: place.effective,
        };
        let watch = Self::of(driver.notices.library, at);
        driver.notices.register(driver, at.effective);
        driver.notices.register(driver, at.domain);
        watch
    }

    fn of(library: usize, at: At) -> Self {
        let watch = next_number();
        let told = None;
        lock().push(Watched {
            watch,
            library,
            at,
            told,
        });
        Self(watch)
    }

    /// How the process has ended, as far as was told.
    pub(crate) fn told(&self) -> Option<&'static str> {
        lock()
            .iter()
            .find(|watched| watched.watch == self.0)?
            .told
            .and_then(words)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock().retain(|watched| watched.watch != self.0);
    }
}

impl At {
    /// Whether a notice with these numbers is about the session.
    fn is(self, domain: c_int, session: c_int, status: host::remote_rpc_status_flags_t) -> bool {
        let (Ok(domain), Ok(session)) = (u32::try_from(domain), u32::try_from(session)) else {
            return false;
        };
        match domain == self.domain {
            // The whole DSP is about every session of it.
            true => session == self.session || status == host::FASTRPC_DSP_SSR,
            false => domain == self.effective,
        }
    }
}

unsafe extern "C" fn on_notice(
    context: *mut c_void,
    domain: c_int,
    session: c_int,
    status: host::remote_rpc_status_flags_t,
) -> c_int {
    if words(status).is_some() {
        let mut watches = lock();
        let about =
            |watched: &&mut Watched| watched.library == context.addr() && watched.at.is(domain, session, status);
        for watched in watches.iter_mut().filter(about) {
            // A restart of the whole DSP ends its processes, too, and says more than they do.
            if watched.told != Some(host::FASTRPC_DSP_SSR) {
                watched.told = Some(status);
            }
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

fn next_number() -> usize {
    LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1
}

fn lock() -> MutexGuard<'static, Vec<Watched>> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: At = At {
        domain: 3,
        session: 1,
        effective: 11,
    };

    fn tell(library: usize, domain: c_int, session: c_int, status: host::remote_rpc_status_flags_t) {
        // SAFETY: the context is only a number.
        unsafe { on_notice(std::ptr::without_provenance_mut(library), domain, session, status) };
    }

    #[test]
    fn ends_are_told_and_starts_are_not() {
        let library = next_number();
        let watch = Watch::of(library, SECOND);
        let tell = |status| {
            tell(library, 11, 1, status);
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

    #[test]
    fn each_session_is_told_its_own() {
        let (library, other) = (next_number(), next_number());
        let first = At {
            session: 0,
            effective: 3,
            ..SECOND
        };
        let watches =
            [(library, first), (library, SECOND), (other, SECOND)].map(|(library, at)| Watch::of(library, at));
        let told = || watches.each_ref().map(|watch| watch.told().is_some());
        let exit = host::FASTRPC_USER_PD_EXIT;
        // Of no session here: another core, another session, none.
        for (domain, session) in [(4, 0), (19, 2), (3, 2), (-1, 0)] {
            tell(library, domain, session, exit);
        }
        assert_eq!(told(), [false; 3]);
        tell(library, 3, 1, exit);
        assert_eq!(told(), [false, true, false]);
        tell(other, 11, 0, exit);
        assert_eq!(told(), [false, true, true]);
        tell(library, 3, 1, host::FASTRPC_DSP_SSR);
        assert_eq!(told(), [true; 3]);
        assert_eq!(watches[1].told(), words(host::FASTRPC_DSP_SSR));
    }
}
