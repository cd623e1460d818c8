//! Calls that not every DSP has. Their names are weak, so that the loader takes the library where they are missing, as it
//! does those of shipped ones; each is asked for before it is called.

use core::arch::asm;

use hexloom_hexagon_sys::dsp;

use crate::arch::ARCH;

/// The first architecture whose bus corners can be protected.
const FIRST_WITH_PROTECTED_CORNERS: u32 = 79;

/// What makes and takes back mappings outside the 32-bit window.
pub(crate) type RequestMemory = unsafe extern "C" fn(*mut dsp::HAP_mem_req_payload_t) -> i32;
/// What makes the bus corners of a vote hold where other clients are.
pub(crate) type ProtectBusCorners = unsafe extern "C" fn(*mut dsp::HAP_power_request_t, u32) -> i32;

/// The address of a name that may be missing, from the table that the loader fills: 0 where it has none. Going by the
/// name itself would not do, since the compiler takes functions to be somewhere.
macro_rules! address {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: reads a word of this library's own table.
        unsafe {
            asm!(
                concat!(".weak ", $name),
                "{address} = add(pc,##_GLOBAL_OFFSET_TABLE_@PCREL)",
                concat!("{address} = memw({address}+##", $name, "@GOT)"),
                address = out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

/// The memory request, where there are such mappings.
pub(crate) fn request_memory() -> Option<RequestMemory> {
    if !hexloom_abi::limits::has_extended_mappings(ARCH) {
        return None;
    }
    let address = address!("HAP_mem_request");
    // SAFETY: 0, which is `None`, or the function of that name, which has this type.
    unsafe { core::mem::transmute::<usize, Option<RequestMemory>>(address) }
}

/// The call that protects bus corners.
pub(crate) fn protect_bus_corners() -> Option<ProtectBusCorners> {
    if ARCH < FIRST_WITH_PROTECTED_CORNERS {
        return None;
    }
    let address = address!("sysmon_set_dcvs_v3_protected_bus_corners");
    // SAFETY: as above.
    unsafe { core::mem::transmute::<usize, Option<ProtectBusCorners>>(address) }
}
