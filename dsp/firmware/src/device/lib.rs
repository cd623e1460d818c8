//! The device library: hexloom's DSP half for the loader of a real DSP (QuRT, unsigned process).
//!
//! It exports what `toolchains/link/exports.txt` lists and nothing else: [`entry::hexloom_skel_handle_invoke`], by which
//! FastRPC opens it, closes it and hands over the control messages that the emulator image takes from its socket, and the
//! address that goes with it. Batches arrive on the packet queue.
//!
//! Reading order: [`entry`], [`session`] (start, serve, stop), [`queue`], [`platform`], [`vtcm`], [`power`], [`optional`],
//! [`threads`], [`guarded`]. All memory is static: the DSP's loader provides no allocator to a library.
#![no_std]
#![feature(asm_experimental_arch, core_intrinsics)]
#![allow(internal_features, reason = "`abort` is the one intrinsic, for panics")]

mod arch;
pub mod entry;
mod guarded;
#[cfg(feature = "idl-skel")]
pub mod idl;
mod log;
mod optional;
mod platform;
mod power;
mod queue;
mod session;
mod threads;
mod vtcm;

use core::panic::PanicInfo;

/// A panic ends the process: the host sees a lost session, with the place on the system's log.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let place = info.location().map_or(("", 0), |place| (place.file(), place.line()));
    log::line(log::FATAL, "panic", place.0, place.1);
    core::intrinsics::abort()
}
