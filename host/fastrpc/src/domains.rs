//! Which DSPs there are: as the driver lists them, else the ones that have always been there.
//!
//! Records of the list have had several layouts, and no version number says which. They are told apart by what they hold:
//! a name, a kind, nothing where nothing may be.

use std::ffi::c_int;

use hexloom::transport::{TransportError, aee};
use hexloom_hexagon_sys::host;

use crate::driver::Driver;

/// Room for one record, more than any layout has.
const RECORD_ROOM: usize = 128;
/// More than any device has.
const MAX_DOMAINS: usize = 64;
/// A kind has the low five bits of a request's flags.
const MAX_KIND: u32 = 31;

/// A compute DSP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Domain {
    /// hexloom's number for it.
    pub(crate) number: u32,
    /// The driver's number for it.
    pub(crate) id: u32,
    pub(crate) name: String,
}

/// Byte offsets in a record.
struct Layout {
    bytes: usize,
    instance: Option<usize>,
    name: usize,
}

/// Oldest first: its names lie where newer ones have a small number, so that neither is taken for the other.
const LAYOUTS: [Layout; 3] = [
    Layout {
        bytes: 52,
        instance: None,
        name: 4,
    },
    Layout {
        bytes: 96,
        instance: Some(4),
        name: 8,
    },
    Layout {
        bytes: 56,
        instance: Some(4),
        name: 8,
    },
];

/// Every compute DSP that is up, by number.
pub(crate) fn all(driver: &Driver) -> Result<Vec<Domain>, TransportError> {
    let mut domains = listed(driver).unwrap_or_else(|| usual(driver));
    domains.sort_by_key(|domain| domain.number);
    match domains.is_empty() {
        true => Err(aee::failed(
            "remote_system_request",
            aee::ENOSUCH,
            "no compute DSP is up",
        )),
        false => Ok(domains),
    }
}

/// The DSP of a number.
pub(crate) fn at(driver: &Driver, number: u32) -> Result<Domain, TransportError> {
    let all = all(driver)?;
    let known: Vec<String> = all
        .iter()
        .map(|domain| format!("{} ({})", domain.number, domain.name))
        .collect();
    let found = all.into_iter().find(|domain| domain.number == number);
    found.ok_or_else(|| {
        let what = format!("core {number}; there are {}", known.join(", "));
        aee::failed("open", aee::ENOSUCH, what)
    })
}

/// Those that have their numbers by the interface itself.
fn usual(driver: &Driver) -> Vec<Domain> {
    let usual = [("cdsp", host::CDSP_DOMAIN_ID), ("cdsp1", host::CDSP1_DOMAIN_ID)];
    let domains = usual.into_iter().zip(0..).map(|((name, id), number)| Domain {
        number,
        id,
        name: name.to_owned(),
    });
    // A driver that does not say has the first one at least.
    domains
        .filter(|domain| driver.has_domain(domain.id).unwrap_or(domain.number == 0))
        .collect()
}

/// What the driver lists; `None` when it cannot, or in a layout that is not known.
fn listed(driver: &Driver) -> Option<Vec<Domain>> {
    let call = driver.calls.remote_system_request?;
    let mut request = host::system_req_payload {
        id: host::FASTRPC_GET_DOMAINS,
        ..Default::default()
    };
    request.__bindgen_anon_1.sys = host::fastrpc_domains_info {
        flags: host::FASTRPC_NSP.into(),
        ..Default::default()
    };
    // SAFETY: a request without room for records, live for the call.
    let result = unsafe { call(&raw mut request) };
    // SAFETY: every bit pattern is an answer.
    let n = unsafe { request.__bindgen_anon_1.sys.num_domains };
    let n = usize::try_from(n)
        .ok()
        .filter(|n| result == 0 && (1..=MAX_DOMAINS).contains(n))?;
    let mut records = vec![0u64; n * RECORD_ROOM / 8];
    request.__bindgen_anon_1.sys = host::fastrpc_domains_info {
        domains: records.as_mut_ptr().cast(),
        max_domains: n as c_int,
        num_domains: 0,
        flags: host::FASTRPC_NSP.into(),
    };
    // SAFETY: a request with room for as many records as it says, more than any layout needs, live for the call.
    let result = unsafe { call(&raw mut request) };
    // SAFETY: as above.
    let told = unsafe { request.__bindgen_anon_1.sys.num_domains };
    let told = usize::try_from(told).unwrap_or(0).min(n);
    let bytes: Vec<u8> = records.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let domains = decode(&bytes, told);
    if result != 0 || domains.is_none() {
        log::warn!("the driver's list of {n} DSPs is not understood (code {result:#x})");
    }
    domains.filter(|_| result == 0)
}

/// The compute DSPs in `n` records that are up; `None` when no layout fits all records, or none is a compute DSP.
fn decode(bytes: &[u8], n: usize) -> Option<Vec<Domain>> {
    LAYOUTS.iter().find_map(|layout| layout.decode(bytes, n))
}

impl Layout {
    fn decode(&self, bytes: &[u8], n: usize) -> Option<Vec<Domain>> {
        let (mut domains, mut has_any) = (Vec::new(), false);
        for (record, place) in bytes.chunks_exact(self.bytes).take(n).zip(0..) {
            let word = |offset: usize| Some(u32::from_ne_bytes(*record.get(offset..)?.first_chunk()?));
            let name = name(record.get(self.name..self.name + host::MAX_DOMAIN_NAMELEN as usize)?)?;
            let kind = (self.name + host::MAX_DOMAIN_NAMELEN as usize).next_multiple_of(4);
            match word(kind)? {
                host::FASTRPC_NSP => has_any = true,
                // A processor of another kind, which was not asked for.
                2..=MAX_KIND => continue,
                _ => return None,
            }
            let number = self.instance.map_or(Some(place), word)?;
            if number > MAX_DOMAINS as u32 {
                return None;
            }
            let domain = Domain {
                number,
                id: word(0)?,
                name,
            };
            match word(kind + 4)? {
                0 => log::warn!("{} is down", domain.name),
                _ => domains.push(domain),
            }
        }
        // Without instances the order of their own numbers is all there is.
        if self.instance.is_none() {
            domains.sort_by_key(|domain| domain.id);
            domains
                .iter_mut()
                .zip(0..)
                .for_each(|(domain, number)| domain.number = number);
        }
        has_any.then_some(domains)
    }
}

/// A name with zeroes behind it.
fn name(field: &[u8]) -> Option<String> {
    let len = field.iter().position(|&byte| byte == 0)?;
    let (name, rest) = field.split_at(len);
    let is_name = !name.is_empty() && name.iter().all(u8::is_ascii_alphanumeric);
    (is_name && rest.iter().all(|&byte| byte == 0)).then(|| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of a layout with (number, instance, name, kind, status).
    fn records(layout: &Layout, all: &[(u32, u32, &str, u32, u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(id, instance, name, kind, status) in all {
            let mut record = vec![0; layout.bytes];
            record[..4].copy_from_slice(&id.to_ne_bytes());
            if let Some(at) = layout.instance {
                record[at..at + 4].copy_from_slice(&instance.to_ne_bytes());
            }
            record[layout.name..layout.name + name.len()].copy_from_slice(name.as_bytes());
            let at = layout.name + 32;
            record[at..at + 4].copy_from_slice(&kind.to_ne_bytes());
            record[at + 4..at + 8].copy_from_slice(&status.to_ne_bytes());
            bytes.extend(record);
        }
        bytes.resize(all.len() * RECORD_ROOM, 0);
        bytes
    }

    fn domain(number: u32, id: u32, name: &str) -> Domain {
        Domain {
            number,
            id,
            name: name.to_owned(),
        }
    }

    #[test]
    fn every_layout_is_told_from_the_others() {
        let all = [(4, 1, "cdsp1", 1, 1), (3, 0, "cdsp", 1, 1), (18, 2, "cdsp2", 1, 1)];
        for layout in &LAYOUTS {
            for n in 1..=3 {
                let found = decode(&records(layout, &all[..n]), n).expect("a layout fits");
                let mut numbers: Vec<(u32, u32)> = found.iter().map(|domain| (domain.number, domain.id)).collect();
                numbers.sort_unstable();
                let expected: &[(u32, u32)] = match (layout.instance.is_some(), n) {
                    (true, 1) => &[(1, 4)],
                    (false, 1) => &[(0, 4)],
                    (_, 2) => &[(0, 3), (1, 4)],
                    _ => &[(0, 3), (1, 4), (2, 18)],
                };
                assert_eq!(numbers, expected, "layout of {} bytes", layout.bytes);
            }
        }
    }

    #[test]
    fn those_that_are_down_are_left_out() {
        let bytes = records(&LAYOUTS[1], &[(3, 0, "cdsp", 1, 0), (4, 1, "cdsp1", 1, 1)]);
        assert_eq!(decode(&bytes, 2), Some(vec![domain(1, 4, "cdsp1")]));
    }

    #[test]
    fn processors_of_other_kinds_are_left_out() {
        for layout in &LAYOUTS {
            let all = [(0, 0, "adsp", 2, 1), (3, 0, "cdsp", 1, 1), (2, 0, "sdsp", 4, 0)];
            let found = decode(&records(layout, &all), 3);
            assert_eq!(
                found,
                Some(vec![domain(0, 3, "cdsp")]),
                "layout of {} bytes",
                layout.bytes
            );
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let wrong = [
            records(&LAYOUTS[1], &[(3, 0, "", 1, 1)]),
            records(&LAYOUTS[1], &[(3, 0, "cdsp", 0, 1)]),
            records(&LAYOUTS[1], &[(3, 0, "cdsp", 32, 1)]),
            records(&LAYOUTS[1], &[(0, 0, "adsp", 2, 1)]),
            records(&LAYOUTS[1], &[(3, 0, "cd\u{1}p", 1, 1)]),
            records(&LAYOUTS[1], &[(3, 9999, "cdsp", 1, 1)]),
            vec![0; RECORD_ROOM],
            vec![0xff; RECORD_ROOM],
        ];
        for bytes in wrong {
            assert_eq!(decode(&bytes, 1), None, "{bytes:?}");
        }
        assert_eq!(decode(&[], 0), None);
    }
}
