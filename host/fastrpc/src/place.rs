//! A session's names: the effective number that maps and queues go by, and the address that its library is opened by.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use hexloom::transport::{SessionAt, TransportError, aee};
use hexloom_abi::fastrpc::{ENTRY, MODULE_VERSION};

use crate::domains::Domain;
use crate::driver::{Driver, Reserved};

/// Architectures that there are libraries for.
pub(crate) const LIBRARIES: [u32; 6] = [68, 69, 73, 75, 79, 81];

/// Where a session is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) domain: Domain,
    pub(crate) session: u32,
    pub(crate) effective: u32,
}

/// Sessions that the driver has set aside. It takes none back, so that each is asked for once and kept.
#[derive(Default)]
pub(crate) struct Places {
    reserved: Mutex<HashMap<SessionAt, Reserved>>,
}

impl Places {
    /// The place of a session, set aside the first time.
    pub(crate) fn at(&self, driver: &Driver, domain: &Domain, at: SessionAt) -> Result<Place, TransportError> {
        let domain_name = c_string(&domain.name)?;
        let Reserved { session, effective } = match at.session {
            0 => Reserved {
                session: 0,
                effective: driver.effective(&domain_name).unwrap_or(domain.id),
            },
            session => {
                let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
                match reserved.get(&at) {
                    Some(known) => *known,
                    None => {
                        let name = c_string(&format!("HTP{}:{session}", at.core))?;
                        let new = driver.reserve(&domain_name, &name)?;
                        *reserved.entry(at).insert_entry(new).get()
                    }
                }
            }
        };
        Ok(Place {
            domain: domain.clone(),
            session,
            effective,
        })
    }
}

impl Place {
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
