//! Listing the DSPs (`remote_system_request`), in either of the layouts that records have had.

use std::ffi::c_int;

use hexloom_hexagon_sys::host;

use crate::driver::{Outcome, answer, code, domain_id, domain_name, driver};
use crate::setup::Listing;

/// Lists the compute DSPs, or tells how many there are.
///
/// # Safety
/// `request` is null or a request, with room for as many records as it says in the layout that the driver has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remote_system_request(request: *mut host::system_req_payload) -> c_int {
    if request.is_null() {
        return code(host::AEE_EBADPARM);
    }
    // SAFETY: not null, and so a request.
    answer(list(unsafe { &mut *request }))
}

fn list(request: &mut host::system_req_payload) -> Outcome {
    let driver = driver();
    driver.enter("remote_system_request")?;
    // SAFETY: every bit pattern is a list request.
    let asked = unsafe { &mut request.__bindgen_anon_1.sys };
    let is_known = request.id == host::FASTRPC_GET_DOMAINS && asked.flags == u64::from(host::FASTRPC_NSP);
    if driver.setup.listing == Listing::None || !is_known {
        return Err(code(host::AEE_EUNSUPPORTED));
    }
    let n_cores = driver.setup.sim.n_cores;
    asked.num_domains = n_cores as c_int;
    if asked.domains.is_null() {
        return Ok(());
    }
    if asked.max_domains < asked.num_domains {
        return Err(code(host::AEE_EBADSIZE));
    }
    // Not in the order of their numbers.
    let records: Vec<u8> = (0..n_cores)
        .rev()
        .flat_map(|core| record(core, driver.setup.listing))
        .collect();
    // SAFETY: the caller's promise for the room; the records are memory of our own.
    unsafe { std::ptr::copy_nonoverlapping(records.as_ptr(), asked.domains.cast(), records.len()) };
    Ok(())
}

/// Number, perhaps instance, name, kind, whether it is up, card and chip, perhaps room for more.
fn record(core: u32, listing: Listing) -> Vec<u8> {
    let mut record = domain_id(core).to_ne_bytes().to_vec();
    if listing == Listing::New {
        record.extend(core.to_ne_bytes());
    }
    let mut name = [0; host::MAX_DOMAIN_NAMELEN as usize];
    let text = domain_name(core);
    name[..text.len()].copy_from_slice(text.as_bytes());
    record.extend(name);
    record.resize(record.len().next_multiple_of(4), 0);
    for word in [host::FASTRPC_NSP, 1, 0, 0] {
        record.extend(word.to_ne_bytes());
    }
    if listing == Listing::New {
        record.extend([0; 40]);
    }
    record
}
