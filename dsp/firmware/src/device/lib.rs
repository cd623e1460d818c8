//! The device library: hexloom's DSP half for the loader of a real DSP.
//!
//! First slice: one entry point that reaches every kernel, so that the library can be linked, measured and disassembled.
#![no_std]

use core::panic::PanicInfo;

use hexloom_dsp::KernelSet;
use hexloom_dsp::kernels::{Context, OpArgs};

/// Runs one op; gives its status.
#[unsafe(no_mangle)]
extern "C" fn hexloom_open(cx: &Context<'_>, args: &OpArgs<'_>) -> u32 {
    match KernelSet::best().run(cx, args) {
        Ok(()) => 0,
        Err(status) => status.number(),
    }
}

/// A panic stops the thread; the host notices by its deadline.
#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
