//! Caches that are not coherent: the DSP side works on a copy of a mapping, whose lines change hands one by one.
//!
//! A line whose copy differs from what it was when it last changed hands is dirty. A clean writes dirty lines to the
//! memory, whole; an invalidation reads lines from the memory, dirty or not; an eviction does the one, then the other. So
//! a missing clean or invalidation shows as old bytes, and a line that both sides write loses bytes of one of them.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

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

    /// A line as it is, first word first: a sequence number there is read before what it stands for.
    fn load(&self, base: usize, idx: usize) -> Line {
        std::array::from_fn(|word| self.word(base, idx, word).load(Ordering::Acquire))
    }

    /// Stores a line, first word last.
    fn store(&self, base: usize, idx: usize, line: &Line) {
        for (word, &value) in line.iter().enumerate().rev() {
            self.word(base, idx, word).store(value, Ordering::Release);
        }
    }

    fn word(&self, base: usize, idx: usize, word: usize) -> &AtomicU64 {
        debug_assert!((idx as u64) < self.bytes.div_ceil(LINE_BYTES) && word < LINE_WORDS);
        let word = (base as *mut Line).wrapping_add(idx).cast::<u64>().wrapping_add(word);
        // SAFETY: `idx` is one of the lines of the two mappings, which begin on pages, are at least `bytes` long, whole pages,
        // and live as long as this does. Whoever writes the line meanwhile with plain stores breaks the rules that this copy
        // is there to test.
        unsafe { AtomicU64::from_ptr(word) }
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

/// A sum that differs for lines that differ; 0 for zeros. Each word counts with a multiplier of its own, and both halves of
/// the product, so that single bits (signs of zeros, say) never stand for each other.
fn sum_of(line: &Line) -> u64 {
    const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut multiplier = FIRST;
    line.iter().fold(0, |sum: u64, &word| {
        let product = u128::from(word) * u128::from(multiplier);
        multiplier = multiplier.wrapping_add(FIRST << 1);
        sum.wrapping_add(product as u64 ^ (product >> 64) as u64)
    })
}

#[cfg(test)]
mod tests {
    use hexloom::transport::SharedMemory;
    use hexloom::transport::memfd;

    use super::*;
    use crate::memory::duplicate;

    const LINE: u64 = LINE_BYTES;

    struct Both {
        host: SharedMemory,
        shadow: Shadow,
        _shared: Shared,
    }

    impl Both {
        /// Memory whose second page begins with ones.
        fn new() -> Self {
            let host = memfd::alloc(3 * 4096).expect("there is memory");
            host.write(4096, &[1; 8]);
            let fd = duplicate(&host).expect("there are descriptors");
            let shared = Shared::new(&fd, host.bytes()).expect("it maps");
            let shadow = Shadow::new(&fd, &shared).expect("it maps");
            Self {
                host,
                shadow,
                _shared: shared,
            }
        }

        fn host(&self, offset: u64) -> u8 {
            let mut byte = [0];
            self.host.read(offset, &mut byte);
            byte[0]
        }

        fn dsp(&self, offset: u64) -> u8 {
            let (line, byte) = ((offset / LINE) as usize, (offset % LINE) as usize);
            self.shadow.load(self.shadow.copy, line)[byte / 8].to_ne_bytes()[byte % 8]
        }

        fn dsp_writes(&self, offset: u64, value: u8) {
            let (line, byte) = ((offset / LINE) as usize, (offset % LINE) as usize);
            let mut words = self.shadow.load(self.shadow.copy, line);
            let mut bytes = words[byte / 8].to_ne_bytes();
            bytes[byte % 8] = value;
            words[byte / 8] = u64::from_ne_bytes(bytes);
            self.shadow.store(self.shadow.copy, line, &words);
        }
    }

    #[test]
    fn lines_change_hands_when_told() {
        let both = Both::new();
        assert_eq!((both.dsp(4096), both.dsp(0)), (1, 0));
        both.host.write(4096, &[2]);
        assert_eq!(both.dsp(4096), 1);
        both.shadow.invalidate(4096 + LINE, LINE);
        assert_eq!(both.dsp(4096), 1, "another line");
        both.shadow.invalidate(4100, 1);
        assert_eq!(both.dsp(4096), 2);
        both.dsp_writes(5000, 3);
        assert_eq!(both.host(5000), 0);
        both.shadow.clean(0, u64::MAX);
        assert_eq!(both.host(5000), 3);
    }

    #[test]
    fn what_was_not_cleaned_is_lost() {
        let both = Both::new();
        both.dsp_writes(0, 3);
        both.shadow.invalidate(100, 1);
        assert_eq!((both.dsp(0), both.host(0)), (0, 0));
    }

    /// A clean of a line that only the host changed leaves it alone; of one that both changed it wins.
    #[test]
    fn two_writers_of_a_line() {
        let both = Both::new();
        both.host.write(0, &[5]);
        both.shadow.clean(0, LINE);
        assert_eq!(both.host(0), 5);
        both.dsp_writes(1, 6);
        both.shadow.clean(0, LINE);
        assert_eq!((both.host(0), both.host(1)), (0, 6));
    }

    #[test]
    fn an_eviction_goes_both_ways() {
        let both = Both::new();
        both.dsp_writes(0, 7);
        both.host.write(LINE, &[8]);
        both.shadow.evict(0, 2 * LINE);
        assert_eq!((both.host(0), both.dsp(LINE)), (7, 8));
    }

    #[test]
    fn sums_tell_lines_apart() {
        assert_eq!(sum_of(&[0; LINE_WORDS]), 0);
        let lines = (0..LINE_WORDS).flat_map(|word| (0..64).map(move |bit| (word, 1u64 << bit)));
        let mut sums: Vec<u64> = lines
            .map(|(word, bits)| {
                let mut line = [0; LINE_WORDS];
                line[word] = bits;
                sum_of(&line)
            })
            .collect();
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), 64 * LINE_WORDS);
    }
}
