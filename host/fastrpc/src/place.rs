//! A session's names: the effective number that maps and queues go by, and the address that its library is opened by.

use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};

use hexloom::transport::{SessionAt, TransportError, aee};
use hexloom_abi::fastrpc::{ENTRY, MODULE_VERSION};

use crate::domains::Domain;
use crate::driver::{Driver, Reserved};

/// Architectures that there are libraries for.
pub(crate) const LIBRARIES: [u32; 6] = [68, 69, 73, 75, 79, 81];

/// Where a session is.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) domain: Domain,
    pub(crate) session: u32,
    pub(crate) effective: u32,
    /// Of a session that the driver has set aside.
    reservation: Option<Reservation>,
}

/// Sessions beside the first of a core. The driver hands them out; some take one back when its process ends, others keep
/// it for as long as the program runs, so that those which were closed are kept for when there is no other.
#[derive(Default)]
pub(crate) struct Places {
    closed: Arc<Mutex<Vec<Reserved>>>,
}

/// A session that is in use; kept for another use when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    reserved: Reserved,
    closed: Arc<Mutex<Vec<Reserved>>>,
}

impl Places {
    /// A place for a session: the first of the core, or one that nobody uses.
    pub(crate) fn at(&self, driver: &Driver, domain: &Domain, at: SessionAt) -> Result<Place, TransportError> {
        let domain_name = c_string(&domain.name)?;
        let (session, effective, reservation) = match at.session {
            0 => (0, driver.effective(&domain_name).unwrap_or(domain.id), None),
            session => {
                let name = c_string(&format!("HTP{}:{session}", at.core))?;
                let reserved = self.choose(domain.id, driver.reserve(domain.id, &domain_name, &name))?;
                let closed = Arc::clone(&self.closed);
                let Reserved { session, effective, .. } = reserved;
                (session, effective, Some(Reservation { reserved, closed }))
            }
        };
        Ok(Place {
            domain: domain.clone(),
            session,
            effective,
            reservation,
        })
    }

    /// What the driver has just handed out, or what was closed on that domain if it has no more.
    fn choose(&self, domain: u32, asked: Result<Reserved, TransportError>) -> Result<Reserved, TransportError> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        match asked {
            Ok(new) => {
                closed.retain(|reserved| *reserved != new);
                Ok(new)
            }
            Err(error) if error.is_code(aee::ENOSESSION) => {
                let found = closed.iter().position(|reserved| reserved.domain == domain);
                found.map(|idx| closed.remove(idx)).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.push(self.reserved);
    }
}

impl Place {
    /// Takes the hold on a session that was set aside out of its place: it ends when the session has been given back.
    pub(crate) fn take_reservation(&mut self) -> Option<Reservation> {
        self.reservation.take()
    }

    /// The address of the library for an architecture.
    pub(crate) fn address(&self, driver: &Driver, arch: u32) -> Result<CString, TransportError> {
        let module = module_address(arch);
        let by_driver = driver.address(&c_string(&self.domain.name)?, self.session, &c_string(&module)?);
        by_driver.map_or_else(|| c_string(&address(&module, &self.domain.name, self.session)), Ok)
    }
}

/// The library that runs on an architecture: the newest that is not newer.
pub(crate) fn library_file(arch: u32) -> String {
    let fitting = LIBRARIES.into_iter().rev().find(|&library| library <= arch);
    format!("libhexloom-v{}.so", fitting.unwrap_or(LIBRARIES[0]))
}

/// The library's own address.
fn module_address(arch: u32) -> String {
    format!("file:///{}?{ENTRY}&_modver={MODULE_VERSION}", library_file(arch))
}

/// The address of a library in a session of a core, as drivers make it.
fn address(module: &str, domain: &str, session: u32) -> String {
    format!("{module}&_dom={domain}&_session={session}")
}

fn c_string(text: &str) -> Result<CString, TransportError> {
    CString::new(text).map_err(|_| aee::failed("open", aee::EBADPARM, format!("a name with a zero byte: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_library_core_and_session() {
        assert_eq!(
            address(&module_address(79), "cdsp1", 2),
            "file:///libhexloom-v79.so?hexloom_skel_handle_invoke&_modver=1.0&_dom=cdsp1&_session=2"
        );
    }

    #[test]
    fn sessions_that_were_closed_are_for_when_there_is_no_other() {
        let places = Places::default();
        let reserved = |session| Reserved {
            domain: 3,
            session,
            effective: 3 + 8 * session,
        };
        let none = || Err(aee::failed("reserve", aee::ENOSESSION, "a session"));
        let close = |reserved| {
            let closed = Arc::clone(&places.closed);
            drop(Reservation { reserved, closed });
        };
        assert!(places.choose(3, none()).is_err());
        for session in [1, 2] {
            assert_eq!(places.choose(3, Ok(reserved(session))), Ok(reserved(session)));
            close(reserved(session));
        }
        // The driver had taken this one back.
        assert_eq!(places.choose(3, Ok(reserved(1))), Ok(reserved(1)));
        assert_eq!(places.choose(3, none()), Ok(reserved(2)));
        assert!(
            places
                .choose(3, none())
                .is_err_and(|error| error.is_code(aee::ENOSESSION))
        );
        close(reserved(1));
        assert!(places.choose(4, none()).is_err());
        assert_eq!(places.choose(3, none()), Ok(reserved(1)));
    }

    #[test]
    fn each_architecture_has_its_library_or_an_older_one() {
        for (arch, library) in [
            (68, 68),
            (69, 69),
            (71, 69),
            (73, 73),
            (77, 75),
            (81, 81),
            (85, 81),
            (66, 68),
        ] {
            assert_eq!(library_file(arch), format!("libhexloom-v{library}.so"), "v{arch}");
        }
    }

    /// The libraries are those that the firmware is built for.
    #[test]
    fn every_library_is_built() {
        for arch in LIBRARIES {
            let file = format!("{}/../../toolchains/v{arch}-device.toml", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(text.contains(&format!("\"{}\"", library_file(arch))), "{file}");
        }
    }

    #[test]
    fn names_with_zero_bytes_are_refused() {
        assert!(c_string("cd\0sp").is_err_and(|error| error.is_code(aee::EBADPARM)));
    }
}
