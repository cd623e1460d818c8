//! What the DSP half needs of the machine it runs on, as one trait: the device, the emulator and the PC implement it.

use hexloom_abi::{BufferDesc, Status};

use crate::dma::Engine;

/// A buffer made visible to the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// Address of the buffer's first byte.
    pub address: u64,
    /// Bytes mapped.
    pub bytes: u64,
}

/// Memory, caches, counters and threads of the machine.
///
/// All methods may be called from any thread of the session.
pub trait Platform: Sync {
    /// Makes a buffer visible. Fails when the window has no hole, the fd does not exist or is smaller than `bytes`.
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status>;
    /// Takes a mapping back.
    fn unmap(&self, fd: u32, mapped: Mapped);

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

    /// Blocks while `*word == expected`, at most `timeout_us`; may return early.
    fn wait(&self, word: &core::sync::atomic::AtomicU32, expected: u32, timeout_us: u32);
    /// Wakes every thread that waits on `word`.
    fn wake(&self, word: &core::sync::atomic::AtomicU32);

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

impl<P: Platform> Platform for &P {
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        (**self).map(buffer)
    }
    fn unmap(&self, fd: u32, mapped: Mapped) {
        (**self).unmap(fd, mapped);
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
