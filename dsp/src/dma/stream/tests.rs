//! Streams over an engine that copies only when it is waited for: what is read too early is not there.

use std::sync::Mutex;
use std::vec::Vec;

use super::*;

/// Copies in `wait`; breaks on demand.
#[derive(Default)]
struct Lazy {
    pending: Mutex<Vec<Transfer>>,
    n_pushed: AtomicU32,
    n_done: AtomicU32,
    room: Option<usize>,
    reach: Option<u64>,
    broken: AtomicBool,
}

impl Engine for Lazy {
    unsafe fn push(&self, _channel: usize, transfer: &Transfer) -> Result<Ticket, DmaError> {
        let mut pending = self.pending.lock().unwrap();
        if self.reach.is_some_and(|reach| transfer.source >= reach) {
            return Err(DmaError::Unreachable);
        }
        if self.room.is_some_and(|room| pending.len() >= room) {
            return Err(DmaError::Full);
        }
        pending.push(*transfer);
        Ok(Ticket(self.n_pushed.fetch_add(1, Ordering::Relaxed)))
    }

    fn is_done(&self, _channel: usize, ticket: Ticket) -> Result<bool, DmaError> {
        Ok(ticket.0 < self.n_done.load(Ordering::Relaxed))
    }

    fn wait(&self, channel: usize, ticket: Ticket) -> Result<(), DmaError> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(DmaError::Timeout);
        }
        let mut pending = self.pending.lock().unwrap();
        while !self.is_done(channel, ticket)? {
            let transfer = pending.remove(0);
            // SAFETY: the streams under test promise both, and the tests keep them alive.
            unsafe {
                core::ptr::copy(
                    transfer.source as *const u8,
                    transfer.target as *mut u8,
                    transfer.row_bytes as usize,
                );
            }
            self.n_done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Two threads that never fork.
struct Two;

impl Fork for Two {
    fn fork(&self, _work: crate::pool::Work<'_>) -> Result<(), Status> {
        Err(Status::Internal)
    }
    fn n_threads(&self) -> u32 {
        2
    }
    fn is_poisoned(&self) -> bool {
        false
    }
    fn mark(&self, _thread: usize, _id: u16, _is_stop: bool) {}
}

/// Memory on a line, junk at first.
struct Memory(Vec<u128>);

impl Memory {
    fn new(bytes: usize) -> Self {
        Self(std::vec![u128::MAX; bytes / 16 + 8])
    }

    fn span(&mut self, bytes: usize) -> Span<'_, u8> {
        let base = self.0.as_mut_ptr().cast::<u8>();
        let base = base.wrapping_add(base.align_offset(128));
        // SAFETY: `bytes` from the line in the first 128 bytes lie in the vector, which the borrow keeps.
        unsafe { Span::new(base, bytes) }
    }
}

/// Pieces of these sizes, each filled with its number.
fn pieces<'a>(memory: &'a mut Memory, sizes: &[usize]) -> Vec<Span<'a, u8>> {
    let all = memory.span(sizes.iter().sum());
    let mut start = 0;
    let mut pieces = Vec::new();
    for (number, &size) in sizes.iter().enumerate() {
        let piece = all.part(start, size);
        (0..size).for_each(|idx| piece.set(idx, number as u8));
        pieces.push(piece);
        start += size;
    }
    pieces
}

/// Reads all of `list`; gives how many came by DMA.
fn read<'a>(streams: &Streams<'a>, list: &[Span<'a, u8>], next: &[Span<'a, u8>]) -> usize {
    // SAFETY: the tests write no piece.
    let feed = unsafe { streams.feed(1, list.iter().chain(next).copied()) };
    let mut feed = feed.expect("nobody has the lane");
    let mut streamed = 0;
    for piece in list {
        let bytes = feed.take(*piece);
        assert_eq!(bytes.len(), piece.len());
        assert!(
            (0..piece.len()).all(|idx| bytes.get(idx) == piece.get(idx)),
            "other bytes"
        );
        streamed += usize::from(bytes.as_ptr() != piece.as_ptr());
    }
    streamed
}

/// Streams of two threads over a region of `region_bytes` for `engine`.
fn streams<'a>(engine: &'a Lazy, memory: &'a mut Memory, region_bytes: usize) -> Streams<'a> {
    // SAFETY: engine and region outlive the streams, and nobody else has them.
    unsafe { Streams::new(engine, memory.span(region_bytes), &Two) }
}

const REGION: usize = 2 * 4096;

#[test]
fn every_piece_comes_whole_and_in_order() {
    let (mut region, mut source) = (Memory::new(REGION), Memory::new(1 << 16));
    let engine = Lazy::default();
    let sizes: Vec<usize> = (0..60).map(|idx| 128 * (1 + idx * 7 % 9)).collect();
    let list = pieces(&mut source, &sizes);
    let streams = streams(&engine, &mut region, REGION);
    assert_eq!(read(&streams, &list, &[]), 60);
    assert!(streams.is_idle());
    assert_eq!(engine.n_pushed.load(Ordering::Relaxed), 60);
}

#[test]
fn transfers_run_ahead_of_the_reader() {
    let (mut region, mut source) = (Memory::new(REGION), Memory::new(1 << 16));
    let engine = Lazy::default();
    let list = pieces(&mut source, &[1024; 20]);
    let streams = streams(&engine, &mut region, REGION);
    // SAFETY: nobody writes the pieces.
    let mut feed = unsafe { streams.feed(1, list.iter().copied()) }.expect("free");
    assert_eq!(engine.n_pushed.load(Ordering::Relaxed), 4, "as many as the share holds");
    feed.take(list[0]);
    assert_eq!(engine.n_pushed.load(Ordering::Relaxed), 4, "the first is being read");
    feed.take(list[1]);
    assert_eq!(engine.n_pushed.load(Ordering::Relaxed), 5);
    // SAFETY: as above.
    let second = unsafe { streams.feed(1, list.iter().copied()) };
    assert!(second.is_none(), "one user a lane");
    // SAFETY: as above.
    let other = unsafe { streams.feed(99, list.iter().copied()) };
    assert!(other.is_none(), "no such lane");
}

#[test]
fn what_was_pushed_for_the_next_reader_is_kept() {
    let (mut region, mut source) = (Memory::new(REGION), Memory::new(1 << 16));
    let engine = Lazy::default();
    let list = pieces(&mut source, &[1024; 8]);
    let streams = streams(&engine, &mut region, REGION);
    read(&streams, &list[..3], &list[3..]);
    assert!(!streams.is_idle());
    let pushed = engine.n_pushed.load(Ordering::Relaxed);
    assert!(pushed > 3);
    assert_eq!(read(&streams, &list[3..], &[]), 5);
    assert_eq!(engine.n_pushed.load(Ordering::Relaxed), 8, "nothing is fetched twice");
}

#[test]
fn what_the_next_reader_does_not_want_is_dropped() {
    let (mut region, mut source) = (Memory::new(REGION), Memory::new(1 << 16));
    let engine = Lazy::default();
    let list = pieces(&mut source, &[1024; 8]);
    let streams = streams(&engine, &mut region, REGION);
    read(&streams, &list[..2], &list[2..4]);
    // Another order, and less than is in flight.
    assert_eq!(read(&streams, &[list[3], list[2]], &list[5..]), 2);
    assert_eq!(read(&streams, &list[5..6], &[]), 1);
    assert!(streams.is_idle());
    read(&streams, &list[..1], &list[1..]);
    assert_eq!(read(&streams, &[], &[]), 0);
    assert!(streams.is_idle(), "a reader of nothing leaves nothing");
}

#[test]
fn pieces_that_cannot_be_streamed_are_read_where_they_lie() {
    let (mut region, mut source) = (Memory::new(REGION), Memory::new(1 << 16));
    let list = pieces(&mut source, &[1024, 4224, 1024, 4096, 4224, 128]);
    let engine = Lazy::default();
    let both = streams(&engine, &mut region, REGION);
    assert_eq!(read(&both, &list, &[]), 4, "two are larger than the share");
    drop(both);
    let engine = Lazy {
        reach: Some(list[2].as_ptr() as u64),
        ..Lazy::default()
    };
    let near = streams(&engine, &mut region, REGION);
    assert_eq!(read(&near, &list, &[]), 1, "the others are out of reach");
    drop(near);
    let engine = Lazy::default();
    let none = streams(&engine, &mut region, 0);
    assert_eq!(read(&none, &list, &[]), 0, "no region");
}

#[test]
fn a_full_ring_is_tried_again() {
    let (mut region, mut source) = (Memory::new(REGION), Memory::new(1 << 16));
    let engine = Lazy {
        room: Some(1),
        ..Lazy::default()
    };
    let list = pieces(&mut source, &[256; 10]);
    let streams = streams(&engine, &mut region, REGION);
    assert_eq!(read(&streams, &list, &[]), 10);
}

#[test]
fn a_transfer_that_does_not_end_is_a_failure_and_the_last_one() {
    let (mut region, mut source) = (Memory::new(REGION), Memory::new(1 << 16));
    let engine = Lazy {
        broken: AtomicBool::new(true),
        ..Lazy::default()
    };
    let list = pieces(&mut source, &[1024; 10]);
    let streams = streams(&engine, &mut region, REGION);
    assert_eq!(streams.failure(), None);
    assert_eq!(
        read(&streams, &list, &[]),
        0,
        "the reader goes on with the bytes where they lie"
    );
    assert_eq!(streams.failure(), Some(Status::Timeout));
    let pushed = engine.n_pushed.load(Ordering::Relaxed);
    assert_eq!(read(&streams, &list, &[]), 0);
    streams.drain(1);
    assert_eq!(engine.n_pushed.load(Ordering::Relaxed), pushed, "nothing more is begun");
}

#[test]
fn a_drain_waits_for_what_is_in_flight() {
    let (mut region, mut source) = (Memory::new(REGION), Memory::new(1 << 16));
    let engine = Lazy::default();
    let list = pieces(&mut source, &[1024; 4]);
    let streams = streams(&engine, &mut region, REGION);
    read(&streams, &[], &list);
    assert_eq!(engine.pending.lock().unwrap().len(), 4);
    streams.drain(1);
    assert!(engine.pending.lock().unwrap().is_empty());
    assert!(streams.is_idle() && streams.failure().is_none());
    streams.drain(99);
}

/// Sizes and shares of any kind: no piece ever overwrites another that is in flight or being read.
#[test]
fn any_sizes_in_any_share() {
    let mut state = 7u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..300 {
        let region_bytes = 256 * (1 + random(32));
        let sizes: Vec<usize> = (0..30).map(|_| 128 * (1 + random(12))).collect();
        let (mut region, mut source) = (Memory::new(region_bytes), Memory::new(sizes.iter().sum()));
        let engine = Lazy::default();
        let list = pieces(&mut source, &sizes);
        let streams = streams(&engine, &mut region, region_bytes);
        let cut = random(30);
        let fitting = |list: &[Span<'_, u8>]| list.iter().filter(|piece| piece.len() <= streams.share).count();
        assert_eq!(read(&streams, &list[..cut], &list[cut..]), fitting(&list[..cut]));
        assert_eq!(read(&streams, &list[cut..], &[]), fitting(&list[cut..]));
    }
}
