//! Events: everything that a device had begun when one was recorded.
//!
//! The host waits for them, not a DSP: what another device computed is copied by the host anyway, and a DSP thread that
//! looks at a fence burns power, on one core with several sessions at the cost of the session that it waits for.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use crate::abi::{Device, Event};
use crate::device::DeviceState;
use crate::error::BackendError;
use crate::graph::Mark;
use crate::guard;

/// What was recorded last, if anything.
#[derive(Default)]
pub(crate) struct EventState {
    recorded: Mutex<Option<(&'static DeviceState, Mark)>>,
}

impl EventState {
    /// Stands from now on for what `device` has begun.
    pub(crate) fn record(&self, device: &'static DeviceState) {
        let mark = device.graphs().mark();
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some((device, mark));
    }

    /// Waits for it; at once if nothing was recorded.
    pub(crate) fn wait(&self) {
        let recorded = *self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((device, mark)) = recorded {
            device.graphs().settle_to(device, mark);
        }
    }
}

/// The state of an event of ours.
///
/// # Safety
/// `event` is null or what `new` has made and `free` has not got.
pub(crate) unsafe fn state<'a>(event: *mut Event) -> Result<&'a EventState, BackendError> {
    // SAFETY: the caller's.
    let event = unsafe { event.as_ref() }.ok_or(BackendError::Null("event"))?;
    // SAFETY: `new` has put a box's address there.
    unsafe { event.context.cast::<EventState>().as_ref() }.ok_or(BackendError::Null("event context"))
}

pub(crate) unsafe extern "C" fn new(device: *mut Device) -> *mut Event {
    let context: *mut c_void = Box::into_raw(Box::<EventState>::default()).cast();
    Box::into_raw(Box::new(Event { device, context }))
}

pub(crate) unsafe extern "C" fn free(_: *mut Device, event: *mut Event) {
    if event.is_null() {
        return;
    }
    // SAFETY: `new` has turned a box into this address, and ggml frees it once.
    let event = unsafe { Box::from_raw(event) };
    // SAFETY: the same for its context.
    drop(unsafe { Box::from_raw(event.context.cast::<EventState>()) });
}

pub(crate) unsafe extern "C" fn synchronize(_: *mut Device, event: *mut Event) {
    guard::entry("waiting for an event", || {
        // SAFETY: ggml passes an event of ours.
        unsafe { state(event) }?.wait();
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn what_was_never_recorded_is_reached() {
        // SAFETY: an event needs nothing of its device.
        let event = unsafe { new(ptr::null_mut()) };
        // SAFETY: it was just made.
        unsafe { synchronize(ptr::null_mut(), event) };
        // SAFETY: it is freed once.
        unsafe { free(ptr::null_mut(), event) };
    }
}
