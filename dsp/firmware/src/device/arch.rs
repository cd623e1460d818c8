//! The architecture that this library is built for, and its counters.

use core::arch::asm;

/// Architecture number, for instance 73; `toolchains/` is where it comes from.
pub(crate) const ARCH: u32 = number(env!("HEXLOOM_ARCH"));

/// Processor cycles since the DSP was started.
pub(crate) fn cycles() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter.
    unsafe { asm!("r1:0 = upcycle", out("r0") low, out("r1") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Nanoseconds of the timer that all processors of the system share; it counts at 19.2 MHz.
pub(crate) fn nanos() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter.
    unsafe { asm!("r1:0 = utimer", out("r0") low, out("r1") high, options(nomem, nostack)) };
    let ticks = u64::from(high) << 32 | u64::from(low);
    // 10^9 / 19.2 * 10^6 = 625 / 12; the product overflows after some 48 years.
    ticks.wrapping_mul(625) / 12
}

const fn number(digits: &str) -> u32 {
    match u32::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("HEXLOOM_ARCH is no number"),
    }
}
