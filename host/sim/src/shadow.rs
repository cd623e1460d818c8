//! Caches that are not coherent: the DSP side works on a copy of a mapping, whose lines change hands one by one.
//!
//! A line whose copy differs from what it was when it last changed hands is dirty. A clean writes dirty lines to the
//! memory, whole; an invalidation reads lines from the memory, dirty or not; an eviction does the one, then the other. So
//! a missing clean or invalidation shows as old bytes, and a line that both sides write loses bytes of one of them.

use std::os::fd::OwnedFd;
use std::sync::Mutex;

use hexloom::transport::TransportError;
use hexloom::transport::memfd::failed;
use hexloom_abi::limits::LINE_BYTES;
use rustix::fs::SeekFrom;
use rustix::mm::{MapFlags, ProtFlags};

use crate::memory::Shared;
use crate::platform::lock;

/// 64-bit words of a line.
const LINE_WORDS: usize = LINE_BYTES as usize / 8;

type Line = [u64; LINE_WORDS];

/// A copy of a mapping.
pub(crate) struct Shadow {
    copy: usize,
    memory: usize,
    bytes: u64,
    /// Of each line: the sum of what it was when it last changed hands.
    sums: Mutex<Vec<u64>>,
}

impl Shadow {
    /// A copy of `shared`, which `fd` names.
    pub(crate) fn new(fd: &OwnedFd, shared: &Shared) -> Result<Self, TransportError> {
        let bytes = shared.bytes();
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let copy = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let shadow = Self {
            copy: copy.map_err(|errno| failed("mmap", errno))? as usize,
            memory: shared.address(),
            bytes,
            sums: Mutex::new(vec![0; bytes.div_ceil(LINE_BYTES) as usize]),
        };
        shadow.read_data(fd);
        Ok(shadow)
    }

    pub(crate) fn address(&self) -> usize {
        self.copy
    }

    /// Writes dirty lines that touch a range back.
    pub(crate) fn clean(&self, offset: u64, bytes: u64) {
        self.each(offset, bytes, |shadow, idx, sum| shadow.write_back(idx, sum));
    }

    /// Reads the lines that touch a range, and loses what was not cleaned.
    pub(crate) fn invalidate(&self, offset: u64, bytes: u64) {
        self.each(offset, bytes, |shadow, idx, sum| shadow.read(idx, sum));
    }

    /// What a cache may do unasked at any time.
    pub(crate) fn evict(&self, offset: u64, bytes: u64) {
        self.each(offset, bytes, |shadow, idx, sum| {
            shadow.write_back(idx, sum);
            shadow.read(idx, sum);
        });
    }

    fn each(&self, offset: u64, bytes: u64, act: impl Fn(&Self, usize, &mut u64)) {
        let end = offset.saturating_add(bytes).min(self.bytes);
        if offset >= end {
            return;
        }
        let (first, last) = (offset / LINE_BYTES, (end - 1) / LINE_BYTES);
        let mut sums = lock(&self.sums);
        for idx in first as usize..=last as usize {
            act(self, idx, &mut sums[idx]);
        }
    }

    fn write_back(&self, idx: usize, sum: &mut u64) {
        let line = self.load(self.copy, idx);
        let now = sum_of(&line);
        if now != *sum {
            *sum = now;
            self.store(self.memory, idx, &line);
        }
    }

    fn read(&self, idx: usize, sum: &mut u64) {
        let line = self.load(self.memory, idx);
        *sum = sum_of(&line);
        self.store(self.copy, idx, &line);
    }

    /// Reads what is in the memory at the start, and leaves alone what was never written.
    fn read_data(&self, fd: &OwnedFd) {
        let mut at = 0;
        while let Ok(start) = rustix::fs::seek(fd, SeekFrom::Data(at)) {
            let end = rustix::fs::seek(fd, SeekFrom::Hole(start)).unwrap_or(self.bytes);
            if start >= self.bytes || end <= start {
                break;
            }
            self.invalidate(start, end - start);
            at = end;
        }
    }

    fn load(&self, base: usize, idx: usize) -> Line {
        debug_assert!((idx as u64) < self.bytes.div_ceil(LINE_BYTES));
        // SAFETY: `idx` is one of the lines of the two mappings, which are at least `bytes` long and whole pages; both live
        // as long as this does. Whoever writes the line meanwhile breaks the rule that this copy is there to test.
        unsafe { std::ptr::read_volatile((base as *const Line).wrapping_add(idx)) }
    }

    fn store(&self, base: usize, idx: usize, line: &Line) {
        debug_assert!((idx as u64) < self.bytes.div_ceil(LINE_BYTES));
        // SAFETY: as in `load`.
        unsafe { std::ptr::write_volatile((base as *mut Line).wrapping_add(idx), *line) };
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, made by `new`, and drop runs once, when the DSP side uses it no more.
        let unmapped = unsafe { rustix::mm::munmap(self.copy as *mut _, self.bytes as usize) };
        if let Err(errno) = unmapped {
            log::error!("munmap of {} bytes: {errno}", self.bytes);
        }
    }
}

/// A sum that differs for lines that differ; 0 for zeros.
fn sum_of(line: &Line) -> u64 {
    line.iter().fold(0, |sum: u64, &word| {
        (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}
