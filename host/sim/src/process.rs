//! What the simulated driver knows of one session: its maps, its windows, and whether its DSP process lives.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hexloom::transport::{MapKind, SessionAt, SharedMemory, TransportError, aee, ends_at};
use hexloom_abi::descriptor::BUFFER_EXTENDED;
use hexloom_abi::limits::{has_extended_mappings, map_bytes_max};
use hexloom_abi::{BufferDesc, Status};

use crate::SimOptions;
use crate::calls::{CallName, Calls};
use crate::channel::Channel;
use crate::fault::CallFault;
use crate::harsh::{Dice, Spurious};
use crate::memory;
use crate::platform::{die, lock};
use crate::tally::{Counted, Tally};
use crate::window::Window;

/// Bytes of device addresses that extended mappings can have.
const FAR_BYTES: u64 = 1 << 40;

/// One session's part of the driver. Host and DSP side share it.
pub(crate) struct Process {
    pub(crate) at: SessionAt,
    pub(crate) options: SimOptions,
    pub(crate) channel: Channel,
    pub(crate) dice: Dice,
    pub(crate) tally: Arc<Tally>,
    calls: Arc<Calls>,
    memory: Mutex<Memory>,
    host_maps_fail: Spurious,
    dsp_maps_fail: Spurious,
    /// Ends stalls.
    stopping: AtomicBool,
    killed: AtomicBool,
}

struct Memory {
    maps: HashMap<u32, HostMap>,
    window: Window,
    far: Window,
    /// Maps made.
    n_maps: u64,
}

/// A map that the host made.
struct HostMap {
    /// Tells it from others of the same fd.
    id: u64,
    fd: Arc<OwnedFd>,
    bytes: u64,
    extended: bool,
    /// Its place, if it was mapped at once.
    place: Option<Placed>,
    /// Mappings of it on the DSP side.
    n_dsp: u32,
    /// The host has asked for its end.
    unmap_tried: bool,
    _counted: [Counted; 2],
}

/// Addresses taken in one of the two windows.
struct Placed {
    start: u64,
    extended: bool,
    _bytes: Option<Counted>,
}

/// Leave for the DSP side to map a buffer; given back when dropped.
pub(crate) struct Grant {
    process: Arc<Process>,
    number: u32,
    id: u64,
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) bytes: u64,
    /// Start of its place in the window, or outside of it.
    pub(crate) start: u64,
    pub(crate) extended: bool,
    place: Option<Placed>,
    _counted: Counted,
}

impl Process {
    pub(crate) fn new(at: SessionAt, options: SimOptions, calls: Arc<Calls>, tally: Arc<Tally>, dice: Dice) -> Self {
        let harsh = &options.harsh;
        Self {
            at,
            channel: Channel::default(),
            tally,
            calls,
            memory: Mutex::new(Memory {
                maps: HashMap::new(),
                window: Window::new(options.window_in_use(), harsh.late_free),
                far: Window::new(FAR_BYTES, None),
                n_maps: 0,
            }),
            host_maps_fail: Spurious::new(harsh.spurious_maps, &dice),
            dsp_maps_fail: Spurious::new(harsh.spurious_maps, &dice),
            dice,
            stopping: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            options,
        }
    }

    /// Counts a call of this session and gives the fault that is planned for it.
    pub(crate) fn enter(&self, name: CallName, fd: Option<u32>) -> Option<CallFault> {
        self.calls.enter(name, Some(self.at), fd)
    }

    /// Counts a call of the DSP process to its system; false when it fails. Does not return when the process ends or
    /// hangs in it.
    pub(crate) fn enter_on_dsp(&self, name: CallName, fd: u32) -> bool {
        match self.enter(name, Some(fd)) {
            None => true,
            Some(CallFault::Code(code)) => {
                log::warn!("{} of fd {fd}: {}", name.text(), aee::words(code));
                false
            }
            Some(CallFault::Timeout) => self.stall(),
            Some(CallFault::Death) => die(format!("the simulated DSP died in {} of fd {fd}", name.text())),
        }
    }

    /// Hangs until the process is stopped, then ends it.
    pub(crate) fn stall(&self) -> ! {
        while !self.stopping.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        die("stopped while stalled".to_owned());
    }

    /// Ends stalls, so that the main thread can see its stop event.
    pub(crate) fn stop_stalls(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Ends the process: its threads notice at their next step.
    pub(crate) fn kill(&self, why: String) {
        self.killed.store(true, Ordering::Release);
        self.stop_stalls();
        self.channel.die(why);
    }

    /// Whether the process is to end, now or with its next event.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether somebody has ended the process.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// The host's map.
    pub(crate) fn map(&self, memory: &SharedMemory, kind: MapKind) -> Result<(), TransportError> {
        let (number, bytes, arch) = (memory.fd(), memory.bytes(), self.options.arch);
        let error = |code, what: String| aee::failed("map", code, format!("fd {number}, {bytes} bytes: {what}"));
        let failed = |code, what| Err(error(code, what));
        let extended = matches!(kind, MapKind::Extended | MapKind::ExtendedNow);
        if extended && !has_extended_mappings(arch) {
            let what = format!("v{arch} has no mappings outside the 32-bit window, v81 and later have");
            return failed(aee::EUNSUPPORTED, what);
        }
        if bytes > map_bytes_max(arch) {
            let what = format!("v{arch} maps at most {} bytes in one piece", map_bytes_max(arch));
            return failed(aee::EBADPARM, what);
        }
        let mut state = lock(&self.memory);
        if state.maps.contains_key(&number) {
            let SessionAt { core, session } = self.at;
            return failed(
                aee::EALREADY,
                format!("mapped in session {session} of core {core} already"),
            );
        }
        let is_lazy = matches!(kind, MapKind::Lazy | MapKind::Extended);
        if is_lazy && self.host_maps_fail.strikes(&self.dice) {
            return failed(aee::EFAILED, "for no reason".to_owned());
        }
        let fd = memory::duplicate(memory)?;
        let place = match is_lazy {
            true => None,
            false => {
                let placed = self.place(&mut state, bytes, extended);
                Some(placed.map_err(|what| error(aee::EFAILED, what))?)
            }
        };
        state.n_maps += 1;
        let map = HostMap {
            id: state.n_maps,
            fd: Arc::new(fd),
            bytes,
            extended,
            place,
            n_dsp: 0,
            unmap_tried: false,
            _counted: [self.tally.maps.take(1), self.tally.descriptors.take(1)],
        };
        state.maps.insert(number, map);
        Ok(())
    }

    /// Takes it back.
    pub(crate) fn unmap(&self, number: u32) -> Result<(), TransportError> {
        let mut state = lock(&self.memory);
        let failed = |code, what: &str| Err(aee::failed("unmap", code, format!("fd {number}{what}")));
        let Some(map) = state.maps.get_mut(&number) else {
            return failed(aee::ENOSUCHMAP, "");
        };
        map.unmap_tried = true;
        if map.n_dsp > 0 && !self.options.lax_unmaps {
            return failed(
                aee::EBADPARM,
                " is mapped on the DSP side; forget it there, or stop, first",
            );
        }
        if let Some(place) = state.maps.remove(&number).and_then(|map| map.place) {
            state.free(&place);
        }
        Ok(())
    }

    /// Notes that the host was about to unmap, which a planned fault has kept from happening.
    pub(crate) fn unmap_failed(&self, number: u32) {
        if let Some(map) = lock(&self.memory).maps.get_mut(&number) {
            map.unmap_tried = true;
        }
    }

    /// Ends all maps, as closing a session does.
    pub(crate) fn clear(&self) {
        lock(&self.memory).maps.clear();
    }

    /// Whether an fd is mapped here and the host has not asked for its end.
    pub(crate) fn has_mapped(&self, number: u32) -> bool {
        lock(&self.memory).maps.get(&number).is_some_and(|map| !map.unmap_tried)
    }

    /// Leave for the DSP side to map a buffer of a batch.
    pub(crate) fn grant(self: &Arc<Self>, buffer: &BufferDesc) -> Result<Grant, Status> {
        let extended = buffer.flags & BUFFER_EXTENDED != 0;
        let refused = |status: Status, why: &str| {
            log::debug!("the DSP's map of fd {}, {} bytes: {why}", buffer.fd, buffer.bytes);
            status
        };
        let mut state = lock(&self.memory);
        let map = state.maps.get(&buffer.fd);
        let map = map.ok_or_else(|| refused(Status::MapFailed, "the host has not mapped it"))?;
        if buffer.bytes > map.bytes || extended != map.extended {
            return Err(refused(Status::MapFailed, "the host has mapped it otherwise"));
        }
        let place = match map.place {
            Some(_) => None,
            None => match self.place(&mut state, buffer.bytes, extended) {
                Ok(place) => Some(place),
                Err(why) => {
                    self.dsp_maps_fail.spare();
                    return Err(refused(Status::WindowFull, &why));
                }
            },
        };
        if !extended && self.dsp_maps_fail.strikes(&self.dice) {
            if let Some(place) = place {
                state.free(&place);
            }
            return Err(refused(Status::MapFailed, "no reason"));
        }
        self.granted(&mut state, buffer.fd, buffer.bytes, place)
            .ok_or(Status::MapFailed)
    }

    /// Waits until space of earlier unmaps comes back; false when none did in time.
    pub(crate) fn settle(&self, timeout: Duration) -> bool {
        let end = ends_at(timeout);
        loop {
            match lock(&self.memory).window.settle() {
                (true, _) => return true,
                (false, more) if !more || Instant::now() >= end => return false,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Leave for the DSP side to use the whole of what was mapped at once.
    pub(crate) fn grant_pinned(self: &Arc<Self>, number: u32, bytes: u64) -> Option<Grant> {
        let mut state = lock(&self.memory);
        let map = state.maps.get(&number)?;
        let fits = map.place.is_some() && !map.extended && map.bytes >= bytes;
        let bytes = map.bytes;
        fits.then(|| self.granted(&mut state, number, bytes, None))?
    }

    fn granted(self: &Arc<Self>, state: &mut Memory, number: u32, bytes: u64, place: Option<Placed>) -> Option<Grant> {
        let map = state.maps.get_mut(&number)?;
        map.n_dsp += 1;
        let start = place.as_ref().or(map.place.as_ref())?.start;
        Some(Grant {
            process: Arc::clone(self),
            number,
            id: map.id,
            fd: Arc::clone(&map.fd),
            bytes,
            start,
            extended: map.extended,
            place,
            _counted: self.tally.dsp_maps.take(1),
        })
    }

    fn place(&self, state: &mut Memory, bytes: u64, extended: bool) -> Result<Placed, String> {
        let window = if extended { &mut state.far } else { &mut state.window };
        let start = window.place(bytes).map_err(|hole| {
            format!(
                "no hole; the largest of the window of {} bytes is {}, {} are taken",
                self.options.window_in_use(),
                hole.largest,
                hole.taken
            )
        })?;
        Ok(Placed {
            start,
            extended,
            _bytes: (!extended).then(|| self.tally.window_bytes.take(bytes)),
        })
    }
}

impl Memory {
    fn free(&mut self, place: &Placed) {
        match place.extended {
            true => self.far.free(place.start),
            false => self.window.free(place.start),
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut state = lock(&self.process.memory);
        if let Some(place) = &self.place {
            state.free(place);
        }
        // The map may be gone, and another of the same fd in its place.
        if let Some(map) = state.maps.get_mut(&self.number).filter(|map| map.id == self.id) {
            map.n_dsp -= 1;
        }
    }
}
