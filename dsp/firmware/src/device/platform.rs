//! QuRT as a [`Platform`]: mappings by the host's descriptors, futexes, cache lines, counters, the DMA engines.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hexloom_abi::control::CountedEvents;
use hexloom_abi::descriptor::BUFFER_EXTENDED;
use hexloom_abi::limits::PMU_COUNTERS;
use hexloom_abi::{BufferDesc, Status};
use hexloom_dsp::Platform;
use hexloom_dsp::dma::Engine;
use hexloom_dsp::dma::device::DeviceEngine;
use hexloom_dsp::dma::ring::RingEngine;
use hexloom_dsp::platform::{Base, DeviceAddress, Mapped, event_registers};
use hexloom_hexagon_sys::dsp;

use crate::arch::{self, ARCH};
use crate::{log, optional};

/// Up to and with this architecture the system has the older mapping call only, which takes less than 2 GiB.
const LAST_WITHOUT_MMAP2: u32 = 73;

/// Longest wait for a transfer; the largest one takes some milliseconds.
const DMA_DEADLINE_NS: u64 = 2_000_000_000;

/// Every thread's engine with its descriptors: these stay where they are, whatever becomes of a session. After a session
/// that ended well nothing is in flight, and the next one's threads link behind what is done.
static DMA: RingEngine<DeviceEngine> = RingEngine::new(DeviceEngine::new(ARCH, DMA_DEADLINE_NS, arch::nanos));

/// Registers of the performance counters, in order.
const COUNTER_REGISTERS: [i32; PMU_COUNTERS] = [0, 1, 2, 3, 6, 7, 8, 9];

/// The performance counters count for this process.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);

/// The machine under a session. What is mapped, the mapping table knows.
pub(crate) struct QurtPlatform {
    /// The session has been granted the matrix unit.
    pub(crate) matrix_unit: bool,
}

impl Platform for QurtPlatform {
    fn map_bytes_max(&self) -> u64 {
        hexloom_abi::limits::map_bytes_max(ARCH)
    }

    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        if buffer.flags & BUFFER_EXTENDED != 0 {
            return map_extended(buffer);
        }
        let (bytes, fd) = (u32::try_from(buffer.bytes), i32::try_from(buffer.fd));
        let (Ok(bytes), Ok(fd)) = (bytes, fd) else {
            return Err(Status::MapFailed);
        };
        let protection = (dsp::HAP_PROT_READ | dsp::HAP_PROT_WRITE) as i32;
        let start = if ARCH > LAST_WITHOUT_MMAP2 {
            // SAFETY: a fresh mapping at an address of the system's choice touches no existing memory.
            unsafe { dsp::HAP_mmap2(core::ptr::null_mut(), bytes, protection, 0, fd, 0) }
        } else {
            let bytes = i32::try_from(bytes).map_err(|_| Status::MapFailed)?;
            // SAFETY: as above.
            unsafe { dsp::HAP_mmap(core::ptr::null_mut(), bytes, protection, 0, fd, 0) }
        };
        let address = start as usize as u32;
        if address == 0 || address == dsp::HAP_MAP_FAILED {
            return Err(Status::MapFailed);
        }
        Ok(Mapped::window(u64::from(address), buffer.bytes))
    }

    fn has_extended(&self) -> bool {
        has_extended()
    }

    fn unmap(&self, _fd: u32, mapped: Mapped) {
        let address = match mapped.base {
            Base::Window(address) => address,
            Base::Extended(address) => return unmap_extended(address, mapped.bytes),
        };
        let start = address as usize as *mut _;
        // What cannot be taken back stays until the process ends; there is nobody to tell.
        if ARCH > LAST_WITHOUT_MMAP2 {
            // SAFETY: the mapping table gives each mapping back once, between two ops.
            let _ = unsafe { dsp::HAP_munmap2(start, mapped.bytes as u32) };
        } else {
            // SAFETY: as above.
            let _ = unsafe { dsp::HAP_munmap(start, mapped.bytes as i32) };
        }
    }

    fn clean(&self, address: u64, bytes: u64) {
        cache(address, bytes, dsp::QURT_MEM_CACHE_FLUSH);
    }

    /// Writes back first: a line at the range's ends may hold bytes beside it.
    fn invalidate(&self, address: u64, bytes: u64) {
        cache(address, bytes, dsp::QURT_MEM_CACHE_FLUSH_INVALIDATE);
    }

    fn cycles(&self) -> u64 {
        arch::cycles()
    }

    fn nanos(&self) -> u64 {
        arch::nanos()
    }

    fn count(&self, events: &CountedEvents) -> Result<(), Status> {
        stop_counting();
        if events.is_off() {
            return Ok(());
        }
        let [high, low, low_4_to_7] = event_registers(events);
        for (register, value) in [
            (dsp::QURT_PMUCFG, high),
            (dsp::QURT_PMUEVTCFG, low),
            (dsp::QURT_PMUEVTCFG1, low_4_to_7),
        ] {
            // SAFETY: takes numbers only; a process that may not do this has no effect.
            unsafe { dsp::qurt_pmu_set(register as i32, value) };
        }
        // SAFETY: takes a number only.
        unsafe { dsp::qurt_pmu_enable(1) };
        IS_COUNTING.store(true, Ordering::Release);
        Ok(())
    }

    fn counters(&self) -> [u32; PMU_COUNTERS] {
        match IS_COUNTING.load(Ordering::Acquire) {
            // SAFETY: takes a number only.
            true => COUNTER_REGISTERS.map(|register| unsafe { dsp::qurt_pmu_get(register) }),
            false => [0; PMU_COUNTERS],
        }
    }

    fn has_matrix_unit(&self) -> bool {
        self.matrix_unit
    }

    fn dma(&self) -> Option<&dyn Engine> {
        Some(&DMA)
    }

    /// The system's futex has no deadline; whoever changes a word wakes those who sleep on it. The thread's vector
    /// context goes back meanwhile: it holds nothing across a call, and other processes want the unit.
    fn wait(&self, word: &AtomicU32, expected: u32, _timeout_us: u32) {
        release_vectors();
        // SAFETY: the word is live for the call, which only reads it.
        let _ = unsafe { dsp::qurt_futex_wait(word.as_ptr().cast(), expected as i32) };
    }

    fn wake(&self, word: &AtomicU32) {
        // SAFETY: the address is live and only compared.
        let _ = unsafe { dsp::qurt_futex_wake(word.as_ptr().cast(), i32::MAX) };
    }
}

/// Whether this DSP's system has the call for mappings outside the window. That it grants one is known when it has.
pub(crate) fn has_extended() -> bool {
    optional::request_memory().is_some()
}

/// Only the DMA engine goes there, past the caches, and it only reads.
fn map_extended(buffer: &BufferDesc) -> Result<Mapped, Status> {
    let request_memory = optional::request_memory().ok_or(Status::NoExtended)?;
    let fd = i32::try_from(buffer.fd).map_err(|_| Status::MapFailed)?;
    let mut request = dsp::HAP_mem_req_payload_t {
        request_id: dsp::HAP_MEM_MAP as u8,
        ..dsp::HAP_mem_req_payload_t::default()
    };
    request.__bindgen_anon_1.map = dsp::HAP_mem_map_t {
        bytes: buffer.bytes,
        protection: (dsp::HAP_MEM_CACHE_NON_SHARED | dsp::HAP_PROT_READ) as i32,
        flags: dsp::HAP_MEM_FLAGS_EXTENDED_MAP as i32,
        fd,
        ..dsp::HAP_mem_map_t::default()
    };
    // SAFETY: the request is live for the call; a fresh mapping at an address of the system's choice touches no existing
    // memory.
    let result = unsafe { request_memory(&raw mut request) };
    // SAFETY: written as this part above; any bytes are such a part.
    let address = unsafe { request.__bindgen_anon_1.map }.mapped_address;
    if result != 0 || address == 0 {
        log::line(log::ERROR, "no mapping outside the window", "code", result as u32);
        return Err(Status::MapFailed);
    }
    Ok(Mapped::extended(DeviceAddress::new(address), buffer.bytes))
}

fn unmap_extended(address: DeviceAddress, bytes: u64) {
    let Some(request_memory) = optional::request_memory() else {
        return;
    };
    let mut request = dsp::HAP_mem_req_payload_t {
        request_id: dsp::HAP_MEM_UNMAP as u8,
        ..dsp::HAP_mem_req_payload_t::default()
    };
    request.__bindgen_anon_1.unmap = dsp::HAP_mem_unmap_t {
        address: address.source(),
        bytes,
    };
    // What cannot be taken back stays until the process ends.
    // SAFETY: the request is live for the call; the mapping table gives each mapping back once, between two ops.
    let _ = unsafe { request_memory(&raw mut request) };
}

/// Lets the performance counters rest, if they count for this process.
pub(crate) fn stop_counting() {
    if IS_COUNTING.swap(false, Ordering::AcqRel) {
        // SAFETY: takes a number only.
        unsafe { dsp::qurt_pmu_enable(0) };
    }
}

/// Gives this thread's vector context back; its next vector instruction takes one again.
pub(crate) fn release_vectors() {
    // SAFETY: vector registers are the caller's to save, so none is live here.
    let _ = unsafe { dsp::qurt_hvx_unlock() };
}

/// A cache operation on the lines of a range in the 32-bit window.
fn cache(address: u64, bytes: u64, operation: u32) {
    let (Ok(start), Ok(bytes)) = (u32::try_from(address), u32::try_from(bytes)) else {
        return;
    };
    // SAFETY: keeps memory's contents; an address that is not mapped is refused with a number.
    let _ = unsafe { dsp::qurt_mem_cache_clean(start, bytes, operation as i32, dsp::QURT_MEM_DCACHE as i32) };
}
