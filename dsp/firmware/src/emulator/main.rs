//! The emulator image: hexloom's DSP half as a freestanding Linux program for `qemu-hexagon`.
//!
//! It speaks [`hexloom_abi::control`] over the socket it inherits as descriptor 3: one message in, one answer out, in
//! order. Memory that the host shares arrives as descriptors and is mapped into the guest's real 32-bit address space.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod frames;
mod platform;
mod serve;
mod sys;
mod threads;

use core::panic::PanicInfo;

/// The socket to the host, as `hexloom-emu` passes it.
const SOCKET: i32 = 3;

/// Entry point: the stack is the one that the emulator made.
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    let code = serve::run(SOCKET);
    sys::exit_group(code)
}

/// A panic ends the process; the host sees a dead session with the message that stands on its log.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    use core::fmt::Write;
    let mut text: heapless::String<256> = heapless::String::new();
    // A message longer than the buffer is cut.
    let _ = write!(text, "{info}\n");
    sys::write(2, text.as_bytes());
    sys::exit_group(101)
}
