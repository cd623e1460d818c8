//! One memory and several sessions on it, each with a cache of its own that is coherent with nothing: what a session reads is
//! junk or old until it invalidates, what it writes is seen by nobody until it cleans, and lines go over whole.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use hexloom_abi::descriptor::BUFFER_EXTENDED;
use hexloom_abi::{BufferDesc, Status};
use hexloom_dsp::Platform;
use hexloom_dsp::dma::{DmaError, Engine, Ticket, Transfer};
use hexloom_dsp::platform::{DeviceAddress, Mapped};

pub(crate) const LINE: usize = 128;
/// Where the DMA engine has the first line: beyond what 32 bits reach.
const DEVICE_BASE: u64 = 1 << 36;
/// What a cache holds of lines that it never read.
const JUNK: u8 = 0xa5;

#[repr(C, align(128))]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Line(pub(crate) [u8; LINE]);

/// Memory as the host and the DMA engines see it.
pub(crate) struct World {
    lines: Mutex<Vec<Line>>,
    /// First line and lines of each buffer, by fd.
    buffers: BTreeMap<u32, (usize, usize)>,
}

/// A session's machine.
pub(crate) struct Node<'w> {
    world: &'w World,
    cache: Mutex<Cache>,
    /// Bytes of the window that are really there.
    window_bytes: u64,
    mapped_bytes: Mutex<u64>,
    has_extended: bool,
    start: Instant,
    /// Lines that were invalidated.
    pub(crate) n_invalidated: AtomicU32,
}

struct Cache {
    lines: *mut Line,
    n_lines: usize,
    /// The lines as they were when they last changed hands: what differs is dirty.
    clean: Vec<Line>,
}

// SAFETY: the pointer is followed under the lock of `Node`, or by the threads of the one session.
unsafe impl Send for Cache {}

impl World {
    /// Buffers by fd, each of so many bytes.
    pub(crate) fn new(buffers: &[(u32, usize)]) -> Self {
        let mut places = BTreeMap::new();
        let mut first = 0;
        for &(fd, bytes) in buffers {
            let n_lines = bytes.div_ceil(LINE);
            places.insert(fd, (first, n_lines));
            first += n_lines;
        }
        Self {
            lines: Mutex::new(vec![Line([0; LINE]); first]),
            buffers: places,
        }
    }

    pub(crate) fn desc(&self, fd: u32, flags: u32) -> BufferDesc {
        BufferDesc {
            bytes: (self.buffers[&fd].1 * LINE) as u64,
            generation: 1,
            fd,
            flags,
            ..BufferDesc::default()
        }
    }

    pub(crate) fn write(&self, fd: u32, at: usize, bytes: &[u8]) {
        let mut lines = self.lines.lock().unwrap();
        let (first, _) = self.buffers[&fd];
        for (at, byte) in (at..).zip(bytes) {
            lines[first + at / LINE].0[at % LINE] = *byte;
        }
    }

    pub(crate) fn read(&self, fd: u32, at: usize, n: usize) -> Vec<u8> {
        let lines = self.lines.lock().unwrap();
        let (first, _) = self.buffers[&fd];
        (at..at + n).map(|at| lines[first + at / LINE].0[at % LINE]).collect()
    }

    pub(crate) fn all(&self, fd: u32) -> Vec<u8> {
        self.read(fd, 0, self.buffers[&fd].1 * LINE)
    }
}

impl<'w> Node<'w> {
    pub(crate) fn new(world: &'w World, window_bytes: u64, has_extended: bool) -> Self {
        let n_lines = world.lines.lock().unwrap().len();
        let junk = vec![Line([JUNK; LINE]); n_lines];
        Self {
            world,
            cache: Mutex::new(Cache {
                lines: Box::leak(junk.clone().into_boxed_slice()).as_mut_ptr(),
                n_lines,
                clean: junk,
            }),
            window_bytes,
            mapped_bytes: Mutex::new(0),
            has_extended,
            start: Instant::now(),
            n_invalidated: AtomicU32::new(0),
        }
    }

    /// Where this session has a buffer.
    pub(crate) fn address(&self, fd: u32) -> u64 {
        let cache = self.cache.lock().unwrap();
        cache.lines.wrapping_add(self.world.buffers[&fd].0) as u64
    }
}

impl Cache {
    fn line(&self, idx: usize) -> *mut Line {
        assert!(idx < self.n_lines);
        self.lines.wrapping_add(idx)
    }

    fn range(&self, address: u64, bytes: u64) -> std::ops::Range<usize> {
        let start = address as usize - self.lines as usize;
        start / LINE..(start + bytes as usize).div_ceil(LINE)
    }
}

impl Platform for Node<'_> {
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        let &(first, _) = self.world.buffers.get(&buffer.fd).ok_or(Status::MapFailed)?;
        if buffer.flags & BUFFER_EXTENDED != 0 {
            let address = DeviceAddress::new(DEVICE_BASE + (first * LINE) as u64);
            return Ok(Mapped::extended(address, buffer.bytes));
        }
        let mut mapped = self.mapped_bytes.lock().unwrap();
        if *mapped + buffer.bytes > self.window_bytes {
            return Err(Status::WindowFull);
        }
        *mapped += buffer.bytes;
        drop(mapped);
        // A mapping that is new has nothing in a cache: weights, which nobody writes from now on, are read as they are.
        self.invalidate(self.address(buffer.fd), buffer.bytes);
        Ok(Mapped::window(self.address(buffer.fd), buffer.bytes))
    }
    fn unmap(&self, _fd: u32, mapped: Mapped) {
        if mapped.address().is_some() {
            *self.mapped_bytes.lock().unwrap() -= mapped.bytes;
        }
    }
    fn has_extended(&self) -> bool {
        self.has_extended
    }
    fn clean(&self, address: u64, bytes: u64) {
        let mut memory = self.world.lines.lock().unwrap();
        let mut cache = self.cache.lock().unwrap();
        for idx in cache.range(address, bytes) {
            // SAFETY: `line` has found it inside the leaked cache, and the session's main thread is the caller.
            let line = unsafe { *cache.line(idx) };
            if line != cache.clean[idx] {
                memory[idx] = line;
                cache.clean[idx] = line;
            }
        }
    }
    fn invalidate(&self, address: u64, bytes: u64) {
        let memory = self.world.lines.lock().unwrap();
        let mut cache = self.cache.lock().unwrap();
        for idx in cache.range(address, bytes) {
            self.n_invalidated.fetch_add(1, Ordering::Relaxed);
            cache.clean[idx] = memory[idx];
            // SAFETY: as in `clean`.
            unsafe { *cache.line(idx) = memory[idx] };
        }
    }
    fn cycles(&self) -> u64 {
        0
    }
    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
    fn wait(&self, _word: &AtomicU32, _expected: u32, _timeout_us: u32) {
        std::thread::yield_now();
    }
    fn wake(&self, _word: &AtomicU32) {}
    fn relax(&self) {
        std::thread::yield_now();
    }
    fn dma(&self) -> Option<&dyn Engine> {
        self.has_extended.then_some(self)
    }
}

/// An engine that is done at once. It reads memory past the cache, and of it only what is mapped as extended.
impl Engine for Node<'_> {
    unsafe fn push(&self, _channel: usize, transfer: &Transfer) -> Result<Ticket, DmaError> {
        let memory = self.world.lines.lock().unwrap();
        for row in 0..u64::from(transfer.rows) {
            let source = transfer.source + row * u64::from(transfer.source_stride);
            let target = transfer.target + row * u64::from(transfer.target_stride);
            for byte in 0..u64::from(transfer.row_bytes) {
                let at = (source + byte).checked_sub(DEVICE_BASE).ok_or(DmaError::Unreachable)? as usize;
                let value = memory.get(at / LINE).ok_or(DmaError::Unreachable)?.0[at % LINE];
                // SAFETY: the caller promises a writable target.
                unsafe { *((target + byte) as *mut u8) = value };
            }
        }
        Ok(Ticket::default())
    }
    fn is_done(&self, _channel: usize, _ticket: Ticket) -> Result<bool, DmaError> {
        Ok(true)
    }
    fn wait(&self, _channel: usize, _ticket: Ticket) -> Result<(), DmaError> {
        Ok(())
    }
}
