//! Votes for clocks, vector units and the matrix unit, as [`hexloom_dsp::idle`] decides.
//!
//! A vote that is refused costs speed and nothing else, so no session fails over it; the log says so.

use core::ptr::addr_of;

use hexloom_dsp::idle::Level;
use hexloom_hexagon_sys::dsp::{self, HAP_power_request_t};

use crate::log;

/// Its address is the name that votes are made under.
static CLIENT: u8 = 0;

/// Changes the votes from one level to another; `matrix_unit` tells whether the session has it.
pub(crate) fn set(from: Level, to: Level, matrix_unit: bool) {
    if from == Level::Off && to != Level::Off {
        let mut class = request(dsp::HAP_POWER_SET_APPTYPE);
        class.__bindgen_anon_1.apptype = dsp::HAP_POWER_COMPUTE_CLIENT_CLASS as i32;
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
    let fastest = dsp::HAP_corner_params_t {
        target_corner: dsp::HAP_DCVS_VCORNER_MAX as i32,
        min_corner: dsp::HAP_DCVS_VCORNER_MAX as i32,
        max_corner: dsp::HAP_DCVS_VCORNER_MAX as i32,
        reserved: [0; 3],
    };
    let corner = if full {
        fastest
    } else {
        dsp::HAP_corner_params_t::default()
    };
    let mut clocks = request(dsp::HAP_POWER_SET_DCVS_V3);
    clocks.__bindgen_anon_1.dcvs_v3 = dsp::HAP_power_dcvs_v3_t {
        set_dcvs_enable: 1,
        dcvs_enable: u8::from(!full),
        set_core_params: 1,
        core_params: corner,
        set_bus_params: 1,
        bus_params: corner,
        set_sleep_disable: 1,
        sleep_disable: u8::from(full),
        ..dsp::HAP_power_dcvs_v3_t::default()
    };
    vote(&mut clocks);
}

fn vector_units(on: u8) {
    let mut units = request(dsp::HAP_POWER_SET_HVX);
    units.__bindgen_anon_1.hvx_power_up = on;
    vote(&mut units);
}

fn matrix_unit(on: u8) {
    let mut unit = request(dsp::HAP_POWER_SET_HMX);
    unit.__bindgen_anon_1.hmx_power_up = on;
    vote(&mut unit);
}

fn request(kind: u32) -> HAP_power_request_t {
    HAP_power_request_t {
        type_: kind as i32,
        ..HAP_power_request_t::default()
    }
}

fn vote(request: &mut HAP_power_request_t) {
    let client = addr_of!(CLIENT).cast_mut().cast();
    // SAFETY: the client is only compared; the request is live for the call.
    let result = unsafe { dsp::HAP_power_set(client, request) };
    if result != 0 {
        log::line(log::ERROR, "power vote refused", "type", request.type_ as u32);
    }
}
