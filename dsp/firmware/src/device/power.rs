//! Votes for clocks, vector units and the matrix unit, as [`hexloom_dsp::idle`] decides.
//!
//! A vote that is refused costs speed and nothing else, so no session fails over it; the log says so. At full speed the
//! votes are those of shipped libraries, bit for bit.

use core::ptr::addr_of;

use hexloom_dsp::idle::Level;
use hexloom_hexagon_sys::dsp::{self, HAP_power_request_t};

use crate::arch::ARCH;
use crate::{log, optional};

/// The first architecture whose matrix unit has a clock of its own to vote on.
const FIRST_WITH_MATRIX_CLOCK: u32 = 75;

/// Its address is the name that votes are made under.
static CLIENT: u8 = 0;

/// Changes the votes from one level to another; `matrix_unit` tells whether the session has it.
pub(crate) fn set(from: Level, to: Level, matrix_unit: bool) {
    if from == Level::Off && to != Level::Off {
        let mut class = request(dsp::HAP_POWER_SET_APPTYPE);
        class.__bindgen_anon_1.apptype = dsp::HAP_POWER_COMPUTE_CLIENT_CLASS as u8;
        vote(&mut class);
    }
    clocks(to == Level::Full);
    if (from == Level::Off) != (to == Level::Off) {
        let on = u8::from(to != Level::Off);
        vector_units(on);
        if matrix_unit {
            self::matrix_unit(on);
        }
    }
}

/// The fastest clocks and no sleep, or as the system sees fit.
fn clocks(full: bool) {
    const FASTEST: u8 = dsp::HAP_DCVS_VCORNER_MAX as u8;
    let fastest = dsp::HAP_corner_params_t {
        target_corner: FASTEST,
        min_corner: FASTEST,
        max_corner: FASTEST,
        reserved: [0; 3],
    };
    let corner = if full {
        fastest
    } else {
        dsp::HAP_corner_params_t::default()
    };
    // How the system may change clocks counts where it may; 0 is no way of it.
    let dcvs_option = if full { 0 } else { dsp::HAP_DCVS_V2_ADJUST_UP_DOWN as u8 };
    let mut clocks = request(dsp::HAP_POWER_SET_DCVS_V3);
    clocks.__bindgen_anon_1.dcvs_v3 = dsp::HAP_power_dcvs_v3_t {
        set_dcvs_enable: 1,
        dcvs_enable: u8::from(!full),
        dcvs_option,
        set_core_params: 1,
        core_params: corner,
        set_bus_params: 1,
        bus_params: corner,
        set_sleep_disable: 1,
        sleep_disable: u8::from(full),
        ..dsp::HAP_power_dcvs_v3_t::default()
    };
    if full && let Some(protect) = optional::protect_bus_corners() {
        // SAFETY: the request is live for the call, which changes nothing else.
        let _ = unsafe { protect(&raw mut clocks, 1) };
    }
    vote(&mut clocks);
}

fn vector_units(on: u8) {
    let mut units = request(dsp::HAP_POWER_SET_HVX);
    units.__bindgen_anon_1.hvx_power_up = on;
    vote(&mut units);
}

/// With its clock where that is its own, at the fastest; a system that refuses such a vote has the older one.
fn matrix_unit(on: u8) {
    if ARCH >= FIRST_WITH_MATRIX_CLOCK && vote(&mut matrix_unit_with_clock(on)) {
        return;
    }
    let mut unit = request(dsp::HAP_POWER_SET_HMX);
    unit.__bindgen_anon_1.hmx_power_up = on;
    vote(&mut unit);
}

fn matrix_unit_with_clock(on: u8) -> HAP_power_request_t {
    let corner = if on == 0 {
        0
    } else {
        dsp::HAP_DCVS_EXP_VCORNER_MAX as u16
    };
    let mut unit = request(dsp::HAP_POWER_SET_HMX_V2);
    unit.__bindgen_anon_1.hmx_v2 = dsp::HAP_power_hmx_v2_t {
        set_power: 1,
        power_up: on,
        set_clock: on,
        target_corner: corner,
        min_corner: corner,
        max_corner: corner,
        perf_mode: dsp::HAP_CLK_PERF_HIGH as u8,
        ..dsp::HAP_power_hmx_v2_t::default()
    };
    unit
}

fn request(kind: u32) -> HAP_power_request_t {
    HAP_power_request_t {
        type_: kind as u8,
        ..HAP_power_request_t::default()
    }
}

/// Gives whether it was taken.
fn vote(request: &mut HAP_power_request_t) -> bool {
    let client = addr_of!(CLIENT).cast_mut().cast();
    // SAFETY: the client is only compared; the request is live for the call.
    let result = unsafe { dsp::HAP_power_set(client, request) };
    if result != 0 {
        log::line(log::ERROR, "power vote refused", "type", request.type_.into());
    }
    result == 0
}
