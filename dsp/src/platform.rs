//! What the DSP half needs of the machine it runs on, as one trait: the device, the emulator and the PC implement it.

use hexloom_abi::control::CountedEvents;
use hexloom_abi::limits::PMU_COUNTERS;
use hexloom_abi::{BufferDesc, Status};

use crate::dma::Engine;

/// A buffer made visible to the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// Where its first byte is.
    pub base: Base,
    /// Bytes mapped.
    pub bytes: u64,
}

/// Where a buffer's first byte is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// In the 32-bit window: an address that code follows.
    Window(u64),
    /// Outside it: only the DMA engine gets there.
    Extended(DeviceAddress),
}

/// An address of the DMA engine in an extended mapping. It is no address of code's, and nothing turns it into one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceAddress(u64);

impl Mapped {
    /// A mapping in the window.
    pub const fn window(address: u64, bytes: u64) -> Self {
        Self {
            base: Base::Window(address),
            bytes,
        }
    }

    /// A mapping that only the DMA engine reaches.
    pub const fn extended(address: DeviceAddress, bytes: u64) -> Self {
        Self {
            base: Base::Extended(address),
            bytes,
        }
    }

    /// The address in the window, if it is there.
    pub const fn address(&self) -> Option<u64> {
        self.base.address()
    }
}

impl Base {
    /// The address in the window, if it is there.
    pub const fn address(self) -> Option<u64> {
        match self {
            Self::Window(address) => Some(address),
            Self::Extended(_) => None,
        }
    }
}

impl DeviceAddress {
    /// An address as the engine counts.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The number that [`crate::dma::Transfer::source`] takes.
    pub const fn source(self) -> u64 {
        self.0
    }

    /// The address `bytes` further on; `None` beyond the last.
    pub fn plus(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }
}

/// Memory, caches, counters and threads of the machine.
///
/// All methods may be called from any thread of the session.
pub trait Platform: Sync {
    /// Makes a buffer visible: outside the window if it is flagged [`hexloom_abi::descriptor::BUFFER_EXTENDED`], which is
    /// asked for only where [`Platform::has_extended`] says so, else inside it.
    ///
    /// Fails with [`Status::WindowFull`] when the window has no hole, with [`Status::MapFailed`] when the fd does not exist
    /// or is smaller than `bytes`; a machine that cannot tell says the latter.
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status>;
    /// Takes a mapping back. Its space may come back later.
    fn unmap(&self, fd: u32, mapped: Mapped);
    /// Waits until space of earlier unmaps comes back, at most `timeout_us`; false when none did.
    fn settle(&self, _timeout_us: u32) -> bool {
        false
    }
    /// Where in the window the byte at `address` of a mapping lies. It is the address itself, except on machines whose
    /// window is a model.
    fn window_place(&self, address: u64) -> u64 {
        address
    }
    /// Most bytes of one mapping.
    fn map_bytes_max(&self) -> u64 {
        u64::MAX
    }
    /// Whether there are mappings outside the window.
    fn has_extended(&self) -> bool {
        false
    }

    /// Writes back what this side's caches hold of a range, so that the other side sees it.
    fn clean(&self, address: u64, bytes: u64);
    /// Drops what this side's caches hold of a range, so that this side sees what the other wrote.
    fn invalidate(&self, address: u64, bytes: u64);

    /// The cycle counter.
    fn cycles(&self) -> u64;
    /// Nanoseconds since some fixed point.
    fn nanos(&self) -> u64;
    /// Instruction packets executed by all threads of the session, modulo 2^32; 0 where they cannot be counted.
    fn packets(&self) -> u32 {
        0
    }

    /// Lets the performance counters count these events from now on, or nothing.
    fn count(&self, _events: &CountedEvents) -> Result<(), Status> {
        Err(Status::Unsupported)
    }
    /// The performance counters; all 0 while nothing is counted.
    fn counters(&self) -> [u32; PMU_COUNTERS] {
        [0; PMU_COUNTERS]
    }

    /// Blocks while `*word == expected`, at most `timeout_us`; may return early.
    fn wait(&self, word: &core::sync::atomic::AtomicU32, expected: u32, timeout_us: u32);
    /// Wakes every thread that waits on `word`.
    fn wake(&self, word: &core::sync::atomic::AtomicU32);
    /// Passes a short time between two looks at memory that another session writes.
    fn relax(&self) {
        core::hint::spin_loop();
    }

    /// Whether the machine has a matrix unit that this session may drive.
    fn has_matrix_unit(&self) -> bool {
        false
    }

    /// The engine that moves weights into scratch; without one kernels read them where they lie, with the same bits.
    fn dma(&self) -> Option<&dyn Engine> {
        None
    }

    /// Called by each thread of the pool after its part of a fork, for counters that belong to threads.
    fn part_done(&self, _thread: usize) {}

    /// Called before each op with the bytes of scratch, from its start, that the op may use: a test set-up may fill them
    /// with junk. Does nothing by default.
    fn disturb_scratch(&self, _bytes: usize) {}
}

/// The words that tell a performance monitor what to count: two high bits of each event, then the eight low bits of
/// counters 0 to 3, then those of counters 4 to 7.
pub fn event_registers(events: &CountedEvents) -> [u32; 3] {
    let (mut high, mut low) = (0, 0);
    for (idx, number) in events.numbers.into_iter().enumerate() {
        high |= (u32::from(number) >> 8 & 3) << (2 * idx);
        low |= (u64::from(number) & 0xff) << (8 * idx);
    }
    [high, low as u32, (low >> 32) as u32]
}

impl<P: Platform> Platform for &P {
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        (**self).map(buffer)
    }
    fn unmap(&self, fd: u32, mapped: Mapped) {
        (**self).unmap(fd, mapped);
    }
    fn settle(&self, timeout_us: u32) -> bool {
        (**self).settle(timeout_us)
    }
    fn window_place(&self, address: u64) -> u64 {
        (**self).window_place(address)
    }
    fn map_bytes_max(&self) -> u64 {
        (**self).map_bytes_max()
    }
    fn has_extended(&self) -> bool {
        (**self).has_extended()
    }
    fn relax(&self) {
        (**self).relax();
    }
    fn clean(&self, address: u64, bytes: u64) {
        (**self).clean(address, bytes);
    }
    fn invalidate(&self, address: u64, bytes: u64) {
        (**self).invalidate(address, bytes);
    }
    fn cycles(&self) -> u64 {
        (**self).cycles()
    }
    fn nanos(&self) -> u64 {
        (**self).nanos()
    }
    fn packets(&self) -> u32 {
        (**self).packets()
    }
    fn count(&self, events: &CountedEvents) -> Result<(), Status> {
        (**self).count(events)
    }
    fn counters(&self) -> [u32; PMU_COUNTERS] {
        (**self).counters()
    }
    fn wait(&self, word: &core::sync::atomic::AtomicU32, expected: u32, timeout_us: u32) {
        (**self).wait(word, expected, timeout_us);
    }
    fn wake(&self, word: &core::sync::atomic::AtomicU32) {
        (**self).wake(word);
    }
    fn has_matrix_unit(&self) -> bool {
        (**self).has_matrix_unit()
    }
    fn dma(&self) -> Option<&dyn Engine> {
        (**self).dma()
    }
    fn part_done(&self, thread: usize) {
        (**self).part_done(thread);
    }
    fn disturb_scratch(&self, bytes: usize) {
        (**self).disturb_scratch(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_go_to_three_registers() {
        let numbers = [0x3ff, 0x101, 0x002, 0x280, 0, 0x1aa, 0x0bb, 0x2cc];
        let events = CountedEvents { numbers };
        let high = 3 | 1 << 2 | 2 << 6 | 1 << 10 | 2 << 14;
        assert_eq!(event_registers(&events), [high, 0x8002_01ff, 0xccbb_aa00]);
    }
}
