//! The mapping table against a window that fragments, whose space comes back late, and that fails for no reason.

use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::vec::Vec;

use super::*;
use crate::platform::DeviceAddress;

/// A first-fit window.
#[derive(Default)]
struct Window {
    bytes: u64,
    /// Whether space of an unmap comes back only when somebody waits for it.
    late: bool,
    map_bytes_max: Option<u64>,
    has_extended: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: Vec<(u64, u64)>,
    /// Unmapped, and still in the way.
    leaving: Vec<(u64, u64)>,
    n_extended: u64,
    n_settles: u32,
    /// Maps that fail for no reason, to come.
    failures: u32,
}

impl Window {
    fn new(bytes: u64) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    fn late(bytes: u64) -> Self {
        Self {
            late: true,
            ..Self::new(bytes)
        }
    }

    fn n_live(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.live.len() + state.n_extended as usize
    }
}

impl Platform for Window {
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        let mut state = self.state.lock().unwrap();
        if state.failures > 0 {
            state.failures -= 1;
            return Err(Status::MapFailed);
        }
        if buffer.flags & BUFFER_EXTENDED != 0 {
            assert!(self.has_extended, "asked for what there is not");
            state.n_extended += 1;
            let address = DeviceAddress::new(state.n_extended << 33);
            return Ok(Mapped::extended(address, buffer.bytes));
        }
        let mut taken = [&state.live[..], &state.leaving[..]].concat();
        taken.sort_unstable();
        let mut start = 0;
        for &(address, bytes) in &taken {
            if address - start >= buffer.bytes {
                break;
            }
            start = address + bytes;
        }
        if start + buffer.bytes > self.bytes {
            return Err(Status::WindowFull);
        }
        state.live.push((start, buffer.bytes));
        Ok(Mapped::window(start, buffer.bytes))
    }
    fn unmap(&self, _fd: u32, mapped: Mapped) {
        let mut state = self.state.lock().unwrap();
        let Some(address) = mapped.address() else {
            state.n_extended -= 1;
            return;
        };
        let idx = state.live.iter().position(|&entry| entry == (address, mapped.bytes));
        let entry = state.live.swap_remove(idx.expect("unmapped once"));
        if self.late {
            state.leaving.push(entry);
        }
    }
    fn settle(&self, _timeout_us: u32) -> bool {
        let mut state = self.state.lock().unwrap();
        state.n_settles += 1;
        // One comes back, the others still take their time.
        state.leaving.pop().is_some()
    }
    fn map_bytes_max(&self) -> u64 {
        self.map_bytes_max.unwrap_or(u64::MAX)
    }
    fn has_extended(&self) -> bool {
        self.has_extended
    }
    fn clean(&self, _: u64, _: u64) {}
    fn invalidate(&self, _: u64, _: u64) {}
    fn cycles(&self) -> u64 {
        0
    }
    fn nanos(&self) -> u64 {
        0
    }
    fn wait(&self, _: &AtomicU32, _: u32, _: u32) {}
    fn wake(&self, _: &AtomicU32) {}
}

const PINNED: PinnedBuffer = PinnedBuffer {
    fd: 3,
    address: 0x9000_0000,
    bytes: 4096,
};

fn buffer(fd: u32, generation: u64, bytes: u64) -> BufferDesc {
    BufferDesc {
        fd,
        generation,
        bytes,
        ..BufferDesc::default()
    }
}

fn extended(fd: u32, bytes: u64) -> BufferDesc {
    BufferDesc {
        flags: BUFFER_EXTENDED,
        ..buffer(fd, 1, bytes)
    }
}

fn live_fds(table: &MappingTable) -> Vec<u32> {
    let mut fds: Vec<u32> = table.entries.iter().map(|entry| entry.desc.fd).collect();
    fds.sort_unstable();
    fds
}

#[test]
fn own_buffer_takes_no_entry_and_is_checked() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    let bases = table.resolve(&window, &[buffer(3, 1, 4096)], PINNED).unwrap();
    assert_eq!((bases[0], table.len()), (Base::Window(PINNED.address), 0));
    let error = table.resolve(&window, &[buffer(3, 1, 4097)], PINNED).unwrap_err();
    assert_eq!(error.status, Status::Invalid);
    let error = table.resolve(&window, &[extended(3, 4096)], PINNED).unwrap_err();
    assert_eq!(error.status, Status::Invalid);
}

#[test]
fn live_mappings_are_reused_and_recycled_fds_are_not() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    table.resolve(&window, &[buffer(7, 1, 10)], PINNED).unwrap();
    table.resolve(&window, &[buffer(7, 1, 10)], PINNED).unwrap();
    assert_eq!(table.n_maps(), 1);
    table.resolve(&window, &[buffer(7, 2, 10)], PINNED).unwrap();
    assert_eq!((table.n_maps(), table.len(), window.n_live()), (2, 1, 1));
    // The same generation at a larger size than was mapped is a new mapping too.
    table.resolve(&window, &[buffer(7, 2, 20)], PINNED).unwrap();
    assert_eq!((table.n_maps(), window.n_live()), (3, 1));
}

#[test]
fn least_recently_used_goes_first_and_pinned_ones_stay() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    for fd in [10, 11, 12] {
        table.resolve(&window, &[buffer(fd, 1, 30)], PINNED).unwrap();
    }
    table.resolve(&window, &[buffer(10, 1, 30)], PINNED).unwrap();
    table.resolve(&window, &[buffer(13, 1, 30)], PINNED).unwrap();
    assert_eq!(live_fds(&table), [10, 12, 13]);
    // What a batch needs is not evicted for what stands before it in the same batch.
    table
        .resolve(&window, &[buffer(14, 1, 30), buffer(12, 1, 30)], PINNED)
        .unwrap();
    assert_eq!(live_fds(&table), [12, 13, 14]);
}

/// A cycle of four buffers through a window of three: by age each is gone when it is needed again, by the plan only one
/// goes a turn.
#[test]
fn the_plan_says_what_goes_first() {
    let maps = |planned: bool| {
        let (window, mut table) = (Window::new(90), MappingTable::new(90));
        for step in 0..40u32 {
            let desc = BufferDesc {
                next_use: if planned { 4 } else { 0 },
                ..buffer(10 + step % 4, 1, 30)
            };
            table.resolve(&window, &[desc], PINNED).unwrap();
        }
        table.n_maps()
    };
    assert_eq!((maps(false), maps(true)), (40, 4 + 12));
}

#[test]
fn a_plan_that_has_passed_counts_as_unknown() {
    let (window, mut table) = (Window::new(90), MappingTable::new(90));
    let soon = BufferDesc {
        next_use: 1,
        ..buffer(10, 1, 30)
    };
    table.resolve(&window, &[soon], PINNED).unwrap();
    for fd in [11, 12, 11, 12] {
        table.resolve(&window, &[buffer(fd, 1, 30)], PINNED).unwrap();
    }
    table.resolve(&window, &[buffer(13, 1, 30)], PINNED).unwrap();
    assert_eq!(live_fds(&table), [11, 12, 13]);
}

#[test]
fn holes_are_closed_by_mapping_again_largest_first() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    table
        .resolve(&window, &[buffer(1, 1, 20), buffer(2, 1, 30), buffer(4, 1, 30)], PINNED)
        .unwrap();
    // 2 leaves a hole of 30 between 1 and 4; with the free 20 at the end, 50 fit only after the others have moved.
    let batch = [buffer(3, 1, 8), buffer(1, 1, 20), buffer(4, 1, 30), buffer(5, 1, 50)];
    let bases = table.resolve(&window, &batch, PINNED).unwrap();
    let place = |address| Base::Window(address);
    assert_eq!(&bases[..4], &[place(PINNED.address), place(80), place(50), place(0)]);
    assert_eq!((window.n_live(), table.n_maps()), (3, 6));
}

/// Holes of 10, 20 and 20, and 35 wanted: the 5 between the last two moves, and is as old as before.
#[test]
fn little_is_moved_and_stays_as_old_as_it_was() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    for (fd, bytes) in [(20, 10), (10, 20), (11, 25), (21, 20), (12, 5), (22, 20)] {
        table.resolve(&window, &[buffer(fd, 1, bytes)], PINNED).unwrap();
    }
    for fd in [20, 21, 22] {
        table.forget(&window, fd);
    }
    table
        .resolve(&window, &[buffer(10, 1, 20), buffer(11, 1, 25)], PINNED)
        .unwrap();
    let bases = table
        .resolve(&window, &[buffer(10, 1, 20), buffer(13, 1, 35)], PINNED)
        .unwrap();
    assert_eq!(bases[..2], [Base::Window(10), Base::Window(55)]);
    assert_eq!(table.base_of(&buffer(11, 1, 25), PINNED), Some(Base::Window(30)));
    assert_eq!(table.base_of(&buffer(12, 1, 5), PINNED), Some(Base::Window(0)));
    assert_eq!(table.n_maps(), 6 + 2);
    // Room for 20 is one eviction away, and what has moved is the oldest still.
    table.resolve(&window, &[buffer(14, 1, 20)], PINNED).unwrap();
    assert_eq!(live_fds(&table), [10, 11, 13, 14]);
}

/// With the session's own buffer in the middle, what lies below it moves above.
#[test]
fn the_own_buffer_stays_where_it_is() {
    let own = PinnedBuffer {
        address: 40,
        bytes: 20,
        ..PINNED
    };
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    window.state.lock().unwrap().live.push((40, 20));
    table.resolve(&window, &[buffer(10, 1, 10)], own).unwrap();
    table.resolve(&window, &[buffer(11, 1, 30)], own).unwrap();
    table.resolve(&window, &[buffer(12, 1, 20)], own).unwrap();
    table.forget(&window, 11);
    table.resolve(&window, &[buffer(13, 1, 40)], own).unwrap();
    let bases = [buffer(13, 1, 40), buffer(12, 1, 20), buffer(10, 1, 10)].map(|desc| table.base_of(&desc, own));
    assert_eq!(bases, [0, 60, 80].map(|place| Some(Base::Window(place))));
    assert_eq!(table.n_maps(), 5);
}

#[test]
fn a_batch_larger_than_the_window_fails_with_a_status_and_leaks_nothing() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    let error = table
        .resolve(&window, &[buffer(1, 1, 60), buffer(2, 1, 60)], PINNED)
        .unwrap_err();
    assert_eq!((error.status, error.buffer_idx), (Status::WindowFull, 1));
    let error = table.resolve(&window, &[buffer(1, 1, u64::MAX)], PINNED).unwrap_err();
    assert_eq!(error.status, Status::WindowFull);
    table.resolve(&window, &[buffer(2, 1, 60)], PINNED).unwrap();
    table.clear(&window);
    assert_eq!(window.n_live(), 0);
}

/// The numbers promise room that the machine does not have: every means is tried, then the batch fails and others go on.
#[test]
fn a_window_smaller_than_promised_ends_in_a_status() {
    for late in [false, true] {
        let window = Window {
            late,
            ..Window::new(50)
        };
        let mut table = MappingTable::new(100);
        table.resolve(&window, &[buffer(1, 1, 30)], PINNED).unwrap();
        let batch = [buffer(1, 1, 30), buffer(2, 1, 30)];
        let error = table.resolve(&window, &batch, PINNED).unwrap_err();
        assert_eq!((error.status, error.buffer_idx), (Status::WindowFull, 1));
        table.resolve(&window, &[buffer(2, 1, 40)], PINNED).unwrap();
        table.clear(&window);
        assert_eq!(window.n_live(), 0);
    }
}

/// Evictions end as soon as there is room.
#[test]
fn a_window_smaller_than_promised_keeps_what_it_can() {
    let (window, mut table) = (Window::new(50), MappingTable::new(100));
    for fd in [10, 11, 12, 13, 14, 15] {
        table.resolve(&window, &[buffer(fd, 1, 10)], PINNED).unwrap();
    }
    assert_eq!((live_fds(&table), table.n_maps()), (std::vec![11, 12, 13, 14, 15], 6));
}

/// One fd twice in a batch: at two sizes it is one mapping, as two buffers it is refused.
#[test]
fn one_fd_is_one_buffer() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    let (small, large, other) = (buffer(7, 1, 10), buffer(7, 1, 60), buffer(7, 2, 10));
    table.resolve(&window, &[small], PINNED).unwrap();
    for batch in [[small, large], [large, small]] {
        let bases = table.resolve(&window, &batch, PINNED).unwrap();
        assert_eq!((bases[0], bases[1], window.n_live()), (bases[1], Base::Window(0), 1));
    }
    let error = table.resolve(&window, &[small, other], PINNED).unwrap_err();
    assert_eq!((error.status, window.n_live()), (Status::Invalid, 1));
    table.resolve(&window, &[large, large], PINNED).unwrap();
    assert_eq!(window.n_live(), 1);
}

#[test]
fn sixty_four_mappings_and_one_more() {
    let (window, mut table) = (Window::new(1000), MappingTable::new(1000));
    for fd in 100..165 {
        table.resolve(&window, &[buffer(fd, 1, 1)], PINNED).unwrap();
    }
    assert_eq!((table.len(), window.n_live()), (64, 64));
    // The session's own buffer needs none of the 64.
    let bases = table.resolve(&window, &[buffer(3, 1, 4096)], PINNED).unwrap();
    assert_eq!((bases[0], table.n_maps()), (Base::Window(PINNED.address), 65));
    table.forget(&window, 164);
    assert_eq!(window.n_live(), 63);
}

/// Sixteen buffers of 256 MiB, four of them live at a time, in a window of 2 GiB whose unmaps free late.
#[test]
fn space_that_comes_back_late_is_waited_for() {
    const MIB: u64 = 1 << 20;
    let (window, mut table) = (Window::late(2048 * MIB), MappingTable::new(2048 * MIB));
    for first in 0..13 {
        let batch: Vec<BufferDesc> = (first..first + 4).map(|idx| buffer(10 + idx, 1, 256 * MIB)).collect();
        table.resolve(&window, &batch, PINNED).unwrap();
    }
    // Nothing was evicted for space that was only on its way back: each buffer was mapped once.
    assert_eq!((table.n_maps(), table.len()), (16, 8));
    assert!(window.state.lock().unwrap().n_settles > 0);
}

#[test]
fn a_map_that_fails_for_no_reason_is_tried_again() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    table.resolve(&window, &[buffer(1, 1, 30)], PINNED).unwrap();
    window.state.lock().unwrap().failures = 1;
    table.resolve(&window, &[buffer(2, 1, 30)], PINNED).unwrap();
    window.state.lock().unwrap().failures = 9;
    let error = table.resolve(&window, &[buffer(4, 1, 30)], PINNED).unwrap_err();
    assert_eq!(error.status, Status::MapFailed);
    table.clear(&window);
    assert_eq!(window.n_live(), 0);
}

#[test]
fn extended_buffers_take_an_entry_and_no_window() {
    let window = Window {
        has_extended: true,
        ..Window::new(100)
    };
    let mut table = MappingTable::new(100);
    let batch = [extended(1, 1 << 40), buffer(2, 1, 100)];
    let bases = table.resolve(&window, &batch, PINNED).unwrap();
    assert_eq!(bases[1], Base::Window(0));
    assert_eq!(bases[0].address(), None);
    // Room in the window is not made by giving up what takes none.
    table.resolve(&window, &[buffer(4, 1, 90)], PINNED).unwrap();
    assert_eq!(live_fds(&table), [1, 4]);
    table.clear(&window);
    assert_eq!(window.n_live(), 0);
}

#[test]
fn older_architectures_refuse_by_name() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    let error = table
        .resolve(&window, &[buffer(1, 1, 10), extended(2, 10)], PINNED)
        .unwrap_err();
    assert_eq!((error.status, error.buffer_idx), (Status::NoExtended, 1));
}

#[test]
fn one_mapping_has_a_limit_too() {
    let window = Window {
        map_bytes_max: Some(50),
        ..Window::new(100)
    };
    let mut table = MappingTable::new(100);
    table.resolve(&window, &[buffer(1, 1, 50)], PINNED).unwrap();
    let error = table.resolve(&window, &[buffer(2, 1, 51)], PINNED).unwrap_err();
    assert_eq!((error.status, table.len()), (Status::MapFailed, 1));
}
