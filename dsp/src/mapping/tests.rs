//! The mapping table against a window that fragments.

use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::vec::Vec;

use super::*;

/// A first-fit window of `bytes`, with a count of calls.
struct Window {
    bytes: u64,
    live: Mutex<Vec<(u64, u64)>>,
}

impl Window {
    fn new(bytes: u64) -> Self {
        Self {
            bytes,
            live: Mutex::new(Vec::new()),
        }
    }

    fn n_live(&self) -> usize {
        self.live.lock().unwrap().len()
    }
}

impl Platform for Window {
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        let mut live = self.live.lock().unwrap();
        live.sort_unstable();
        let mut start = 0;
        for &(address, bytes) in live.iter() {
            if address - start >= buffer.bytes {
                break;
            }
            start = address + bytes;
        }
        if start + buffer.bytes > self.bytes {
            return Err(Status::MapFailed);
        }
        live.push((start, buffer.bytes));
        Ok(Mapped {
            address: start,
            bytes: buffer.bytes,
        })
    }
    fn unmap(&self, _fd: u32, mapped: Mapped) {
        let mut live = self.live.lock().unwrap();
        let idx = live.iter().position(|&entry| entry == (mapped.address, mapped.bytes));
        live.swap_remove(idx.expect("unmapped once"));
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

#[test]
fn own_buffer_takes_no_entry_and_is_checked() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    let addresses = table.resolve(&window, &[buffer(3, 1, 4096)], PINNED).unwrap();
    assert_eq!((addresses[0], table.len()), (PINNED.address, 0));
    let error = table.resolve(&window, &[buffer(3, 1, 4097)], PINNED).unwrap_err();
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
    let live: Vec<u32> = table.entries.iter().map(|entry| entry.desc.fd).collect();
    assert!(!live.contains(&11) && live.contains(&10), "{live:?}");
}

#[test]
fn holes_are_closed_by_mapping_again_largest_first() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    table
        .resolve(&window, &[buffer(1, 1, 20), buffer(2, 1, 30), buffer(4, 1, 30)], PINNED)
        .unwrap();
    // 2 leaves a hole of 30 between 1 and 4; with the free 20 at the end, 50 fit only after both have moved together.
    let batch = [buffer(1, 1, 20), buffer(4, 1, 30), buffer(5, 1, 50)];
    let addresses = table.resolve(&window, &batch, PINNED).unwrap();
    assert_eq!(&addresses[..3], &[30, 0, 50]);
    assert_eq!(window.n_live(), 3);
}

#[test]
fn a_batch_larger_than_the_window_fails_with_a_status_and_leaks_nothing() {
    let (window, mut table) = (Window::new(100), MappingTable::new(100));
    let error = table
        .resolve(&window, &[buffer(1, 1, 60), buffer(2, 1, 60)], PINNED)
        .unwrap_err();
    assert_eq!((error.status, error.buffer_idx), (Status::WindowFull, 1));
    table.resolve(&window, &[buffer(2, 1, 60)], PINNED).unwrap();
    table.clear(&window);
    assert_eq!(window.n_live(), 0);
}

#[test]
fn sixty_four_mappings_and_one_more() {
    let (window, mut table) = (Window::new(1000), MappingTable::new(1000));
    for fd in 100..165 {
        table.resolve(&window, &[buffer(fd, 1, 1)], PINNED).unwrap();
    }
    assert_eq!((table.len(), window.n_live()), (64, 64));
    table.forget(&window, 164);
    assert_eq!(window.n_live(), 63);
}
