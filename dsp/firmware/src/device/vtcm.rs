//! VTCM as scratch, and the matrix unit that works on it: asked for once a session, held only while batches run, given up
//! when somebody else wants them.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};

use hexloom_abi::Status;
use hexloom_dsp::Span;
use hexloom_hexagon_sys::dsp;

use crate::arch::ARCH;
use crate::log;

/// The first architecture with the matrix unit that `hexloom_dsp::hmx` drives.
const FIRST_WITH_MATRIX_UNIT: u32 = 73;
/// VTCM of a DSP that does not tell how much it has. Too much is refused with the grant.
const LIKELY_BYTES: u32 = 8 << 20;
/// Longest wait for the first grant.
const GRANT_TIMEOUT_US: u32 = 1_000_000;
/// Longest wait to take it again, a batch of somebody else long.
const TAKE_TIMEOUT_US: u32 = 10_000_000;

/// Somebody else wants the VTCM.
static WANTED: AtomicBool = AtomicBool::new(false);

/// A session's VTCM, and its matrix unit if there is one.
pub(crate) struct Vtcm {
    id: u32,
    start: *mut u8,
    bytes: u32,
    matrix_unit: bool,
    taken: bool,
}

// SAFETY: the address is that of memory which the holder of the session's lock uses.
unsafe impl Send for Vtcm {}

/// Bytes of VTCM that this DSP has, or that it most likely has where it does not tell.
pub(crate) fn total_bytes() -> u32 {
    let mut bytes = 0;
    let none = core::ptr::null_mut();
    // SAFETY: the one output is live, the others are allowed to be null.
    let result = unsafe { dsp::compute_resource_query_VTCM(0, &raw mut bytes, none, core::ptr::null_mut(), none) };
    if result == 0 && bytes != 0 {
        return bytes;
    }
    log::line(log::ERROR, "the size of the VTCM is not told", "code", result as u32);
    LIKELY_BYTES
}

impl Vtcm {
    /// Reserves all there is, in one page, and does not take it yet; with the matrix unit if `matrix_unit` asks for it and
    /// it is to be had.
    pub(crate) fn reserve(matrix_unit: bool) -> Result<Self, Status> {
        if ARCH >= FIRST_WITH_MATRIX_UNIT && matrix_unit {
            match Self::ask(true) {
                Ok(vtcm) => return Ok(vtcm),
                Err(_) => log::line(log::ERROR, "no matrix unit is granted", "", 0),
            }
        }
        Self::ask(false)
    }

    /// Whether the session may drive the matrix unit, between [`Vtcm::take`] and [`Vtcm::give`].
    pub(crate) fn has_matrix_unit(&self) -> bool {
        self.matrix_unit
    }

    fn ask(matrix_unit: bool) -> Result<Self, Status> {
        let bytes = total_bytes();
        let mut request = dsp::compute_res_attr_t::default();
        let attr = &raw mut request;
        let done = |result: i32| (result == 0).then_some(()).ok_or(Status::ScratchTooSmall);
        // SAFETY: here and below `attr` is live for each call.
        done(unsafe { dsp::compute_resource_attr_init(attr) })?;
        // SAFETY: as above.
        done(unsafe { dsp::compute_resource_attr_set_serialize(attr, 0) })?;
        // SAFETY: as above.
        done(unsafe { dsp::compute_resource_attr_set_cache_mode(attr, 1) })?;
        // SAFETY: as above.
        done(unsafe { dsp::compute_resource_attr_set_vtcm_param_v2(attr, bytes, bytes, bytes) })?;
        if ARCH >= FIRST_WITH_MATRIX_UNIT && matrix_unit {
            // SAFETY: as above.
            done(unsafe { dsp::compute_resource_attr_set_hmx_param(attr, 1) })?;
        }
        // SAFETY: the callback is a function of this library that needs no context.
        done(unsafe { dsp::compute_resource_attr_set_release_callback(attr, Some(on_wanted), core::ptr::null_mut()) })?;
        // SAFETY: as above.
        let id = unsafe { dsp::compute_resource_acquire(attr, GRANT_TIMEOUT_US) };
        if id == 0 {
            return Err(Status::ScratchTooSmall);
        }
        let mut vtcm = Self {
            id,
            start: core::ptr::null_mut(),
            bytes: 0,
            matrix_unit,
            taken: false,
        };
        let mut start = core::ptr::null_mut();
        // SAFETY: both outputs are live. On failure `vtcm` gives the grant back.
        done(unsafe { dsp::compute_resource_attr_get_vtcm_ptr_v2(attr, &raw mut start, &raw mut vtcm.bytes) })?;
        vtcm.start = start.cast();
        if vtcm.start.is_null() || !vtcm.start.cast::<[u8; 128]>().is_aligned() {
            return Err(Status::ScratchTooSmall);
        }
        Ok(vtcm)
    }

    /// The memory, at most `max` bytes of it (0: all). To be used between [`Vtcm::take`] and [`Vtcm::give`] only.
    pub(crate) fn span(&self, max: u64) -> Span<'static, u8> {
        let bytes = match max {
            0 => self.bytes,
            max => u32::try_from(max).unwrap_or(u32::MAX).min(self.bytes),
        };
        // SAFETY: the grant is for `self.bytes` bytes at that address, which does not change while it lasts; the session
        // uses them inside `serve` only, which is called between `take` and `give`.
        unsafe { Span::new(self.start, bytes as usize) }
    }

    /// Takes the memory, and the matrix unit for the calling thread, for as long as batches come; `priority` is that of the
    /// threads which use them.
    pub(crate) fn take(&mut self, priority: u16) -> Result<(), Status> {
        if self.taken {
            return Ok(());
        }
        WANTED.store(false, Ordering::Relaxed);
        // SAFETY: takes numbers only.
        if unsafe { dsp::compute_resource_acquire_cached(self.id, TAKE_TIMEOUT_US) } != 0 {
            return Err(Status::Timeout);
        }
        // The lock has no deadline of its own: whoever holds the unit was granted it with the VTCM, which is ours by now.
        // SAFETY: takes a number only.
        if ARCH >= FIRST_WITH_MATRIX_UNIT && self.matrix_unit && unsafe { dsp::compute_resource_hmx_lock(self.id) } != 0
        {
            // SAFETY: takes a number only.
            let _ = unsafe { dsp::compute_resource_release_cached(self.id) };
            return Err(Status::Internal);
        }
        self.taken = true;
        // Held with less urgency than it was taken with, so that whoever comes next is announced.
        // SAFETY: takes numbers only.
        let _ = unsafe { dsp::compute_resource_update_priority(self.id, priority.saturating_add(10)) };
        Ok(())
    }

    /// Whether somebody else waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        WANTED.load(Ordering::Relaxed)
    }

    /// Gives both back until the next [`Vtcm::take`]; on the thread that took them.
    pub(crate) fn give(&mut self) {
        if core::mem::take(&mut self.taken) {
            if ARCH >= FIRST_WITH_MATRIX_UNIT && self.matrix_unit {
                // SAFETY: takes a number only.
                let _ = unsafe { dsp::compute_resource_hmx_unlock(self.id) };
            }
            // SAFETY: takes a number only.
            let _ = unsafe { dsp::compute_resource_release_cached(self.id) };
        }
    }
}

impl Drop for Vtcm {
    fn drop(&mut self) {
        self.give();
        // SAFETY: the grant is this value's, and nothing uses the memory any more.
        let _ = unsafe { dsp::compute_resource_release(self.id) };
    }
}

unsafe extern "C" fn on_wanted(_id: u32, _client: *mut c_void) -> i32 {
    WANTED.store(true, Ordering::Relaxed);
    0
}
