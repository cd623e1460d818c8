//! The registry: the devices that ggml sees, decided once by `HEXLOOM_DEVICES`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::abi::{API_VERSION, BufferType, Device, Registry, RegistryFns};
use crate::device::{DeviceState, Kind};
use crate::error::BackendError;
use crate::{comm, guard};

/// The environment variable that lists devices, separated by commas: `sim` (the default), `emu`,
/// `fastrpc`, `null` or `nothing`.
const DEVICES_VAR: &str = "HEXLOOM_DEVICES";

struct Listed {
    raw: Registry,
    devices: Vec<&'static DeviceState>,
}

// SAFETY: ggml only reads the C structure, and nothing changes it once it is shared.
unsafe impl Send for Listed {}
// SAFETY: as for `Send`.
unsafe impl Sync for Listed {}

/// The registry, made at the first call.
pub(crate) fn get() -> *mut Registry {
    (&raw const listed().raw).cast_mut()
}

/// Every device.
pub(crate) fn devices() -> &'static [&'static DeviceState] {
    &listed().devices
}

fn listed() -> &'static Listed {
    static LISTED: OnceLock<Listed> = OnceLock::new();
    LISTED.get_or_init(|| {
        let wanted = std::env::var(DEVICES_VAR).unwrap_or_default();
        let kinds = parse(&wanted).unwrap_or_else(|error| {
            log::error!("{error}");
            Vec::new()
        });
        let alone = kinds.len() == 1;
        let devices = kinds
            .into_iter()
            .enumerate()
            .map(|(idx, kind)| DeviceState::new(idx, kind, alone));
        Listed {
            raw: Registry {
                api_version: API_VERSION,
                fns: RegistryFns {
                    name,
                    device_count,
                    device,
                    proc_address,
                },
                context: ptr::null_mut(),
            },
            devices: devices.collect(),
        }
    })
}

/// The devices of a list; the empty list is one simulator.
fn parse(list: &str) -> Result<Vec<Kind>, BackendError> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    let kinds: Vec<Kind> = words.map(Kind::parse).collect::<Result<_, _>>()?;
    Ok(if kinds.is_empty() { vec![Kind::Sim] } else { kinds })
}

unsafe extern "C" fn name(_: *mut Registry) -> *const c_char {
    c"hexloom".as_ptr()
}

unsafe extern "C" fn device_count(_: *mut Registry) -> usize {
    devices().len()
}

unsafe extern "C" fn device(_: *mut Registry, idx: usize) -> *mut Device {
    let found = guard::entry("listing devices", || {
        let device = devices().get(idx).ok_or(BackendError::Null("device"))?;
        device.attach(get());
        Ok(device.raw())
    });
    found.unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn proc_address(_: *mut Registry, name: *const c_char) -> *mut c_void {
    if name.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: ggml passes a zero-terminated name.
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"ggml_backend_comm_init" => comm::init as *mut c_void,
        b"ggml_backend_comm_free" => comm::free as *mut c_void,
        b"ggml_backend_comm_allreduce_tensor" => comm::allreduce_tensor as *mut c_void,
        b"ggml_backend_split_buffer_type" => split_buffer_type as *mut c_void,
        _ => ptr::null_mut(),
    }
}

/// Rows of one tensor are never split over devices: `--split-mode tensor` has taken that over. Gives the main device's own
/// type.
unsafe extern "C" fn split_buffer_type(main: c_int, _: *const f32) -> *mut BufferType {
    let listed = devices();
    let chosen = usize::try_from(main).ok().and_then(|main| listed.get(main));
    let device = chosen.or_else(|| listed.first());
    device.map_or(ptr::null_mut(), |device| device.buffer_type())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_devices() {
        assert_eq!(parse("").unwrap(), [Kind::Sim]);
        assert_eq!(
            parse(" sim, null,emu ,fastrpc,nothing").unwrap(),
            [Kind::Sim, Kind::Null, Kind::Emu, Kind::FastRpc, Kind::Nothing]
        );
        let error = parse("sim,gpu").unwrap_err().to_string();
        assert!(
            error.contains("gpu") && error.contains("sim, emu, fastrpc, null and nothing"),
            "{error}"
        );
    }
}
