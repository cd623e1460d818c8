//! Rings on hardware that does what a test says, when it says so.

use std::sync::Mutex;
use std::vec::Vec;

use super::*;

/// Keeps what it was given; the test completes places by their number on the channel.
#[derive(Default)]
struct Manual {
    linked: Mutex<Vec<(usize, usize)>>,
    started: AtomicU32,
    clock: AtomicU32,
    broken: AtomicBool,
}

impl Hardware for Manual {
    fn arch(&self) -> Arch {
        Arch::V68
    }
    fn address(&self, memory: u64) -> Option<u64> {
        (memory < 1 << 32).then_some(memory)
    }
    unsafe fn start(&self, _channel: usize, first: &Place) {
        assert_eq!(
            self.started.fetch_add(1, Ordering::Relaxed),
            0,
            "a running channel is started"
        );
        self.linked.lock().unwrap().push((0, first.address()));
    }
    unsafe fn link(&self, _channel: usize, tail: &Place, next: &Place) {
        assert!(!next.is_done(), "a descriptor that looks done already");
        self.linked.lock().unwrap().push((tail.address(), next.address()));
    }
    fn poll(&self, _channel: usize) -> Result<(), DmaError> {
        match self.broken.load(Ordering::Relaxed) {
            true => Err(DmaError::Fault),
            false => Ok(()),
        }
    }
    fn nanos(&self) -> u64 {
        u64::from(self.clock.fetch_add(1, Ordering::Relaxed))
    }
    fn deadline_ns(&self) -> u64 {
        5
    }
}

fn push(engine: &RingEngine<Manual>, source: u64, bytes: u32) -> Result<Ticket, DmaError> {
    // SAFETY: the manual hardware moves nothing, and the engine stays in its test's frame.
    unsafe { engine.push(3, &Transfer::linear(source, 0x100, bytes)) }
}

fn complete(engine: &RingEngine<Manual>, number: usize) {
    engine.channels[3].places[number % PLACES].set_done();
}

#[test]
fn a_full_ring_says_so_and_takes_more_after_one_is_done() {
    let engine = RingEngine::new(Manual::default());
    let tickets: Vec<_> = (0..63).map(|idx| push(&engine, idx * 64, 64).expect("room")).collect();
    assert_eq!(push(&engine, 0, 64), Err(DmaError::Full));
    assert_eq!(
        engine.hardware.linked.lock().unwrap().len(),
        63,
        "nothing of it was begun"
    );
    complete(&engine, 0);
    assert_eq!(engine.is_done(3, tickets[0]), Ok(true));
    assert_eq!(engine.is_done(3, tickets[1]), Ok(false));
    assert!(push(&engine, 0, 64).is_ok());
    assert_eq!(push(&engine, 0, 64), Err(DmaError::Full));
    // Each is linked to the one before it, round the ring.
    let linked = engine.hardware.linked.lock().unwrap();
    assert!(linked.windows(2).all(|pair| pair[1].0 == pair[0].1));
}

#[test]
fn done_means_that_all_before_are_done() {
    let engine = RingEngine::new(Manual::default());
    let tickets: Vec<_> = (0..4).map(|_| push(&engine, 0, 64).expect("room")).collect();
    for number in [3, 1, 2] {
        complete(&engine, number);
        assert!(tickets.iter().all(|&ticket| engine.is_done(3, ticket) == Ok(false)));
    }
    complete(&engine, 0);
    assert!(tickets.iter().all(|&ticket| engine.is_done(3, ticket) == Ok(true)));
}

#[test]
fn a_transfer_in_pieces_is_taken_whole_or_not_at_all() {
    let engine = RingEngine::new(Manual::default());
    let rows = |rows| Transfer {
        source: 0,
        target: 0x4000_0000,
        row_bytes: 64,
        rows,
        source_stride: 1 << 17,
        target_stride: 64,
    };
    // SAFETY: as in `push`.
    assert_eq!(unsafe { engine.push(3, &rows(64)) }, Err(DmaError::TooLong));
    // SAFETY: as in `push`.
    let ticket = unsafe { engine.push(3, &rows(40)) }.expect("room");
    // SAFETY: as in `push`.
    assert_eq!(unsafe { engine.push(3, &rows(24)) }, Err(DmaError::Full));
    (0..39).for_each(|number| complete(&engine, number));
    assert_eq!(engine.is_done(3, ticket), Ok(false));
    complete(&engine, 39);
    assert_eq!(engine.is_done(3, ticket), Ok(true));
}

#[test]
fn nothing_to_move_is_done_with_what_went_before() {
    let engine = RingEngine::new(Manual::default());
    let nothing = push(&engine, u64::MAX, 0).expect("no address is looked at");
    assert_eq!(engine.is_done(3, nothing), Ok(true));
    push(&engine, 0, 64).expect("room");
    let after = push(&engine, 0, 0).expect("room");
    assert_eq!(engine.is_done(3, after), Ok(false));
    complete(&engine, 0);
    assert_eq!(engine.is_done(3, after), Ok(true));
}

#[test]
fn waits_end_at_the_deadline_or_with_the_fault() {
    let engine = RingEngine::new(Manual::default());
    let ticket = push(&engine, 0, 64).expect("room");
    assert_eq!(engine.wait(3, ticket), Err(DmaError::Timeout));
    engine.hardware.broken.store(true, Ordering::Relaxed);
    assert_eq!(engine.wait(3, ticket), Err(DmaError::Fault));
    engine.hardware.broken.store(false, Ordering::Relaxed);
    complete(&engine, 0);
    assert_eq!(engine.wait(3, ticket), Ok(()));
}

#[test]
fn numbers_wrap() {
    let engine = RingEngine::new(Manual::default());
    for counter in [&engine.channels[3].pushed, &engine.channels[3].retired] {
        counter.store(u32::MAX - 1, Ordering::Relaxed);
    }
    for number in 0..200usize {
        let ticket = push(&engine, 0, 64).expect("room");
        assert_eq!(engine.is_done(3, ticket), Ok(false), "{number}");
        complete(&engine, (number + u32::MAX as usize - 1) % PLACES);
        assert_eq!(engine.is_done(3, ticket), Ok(true), "{number}");
    }
}

#[test]
fn what_cannot_be_reached_is_refused() {
    let engine = RingEngine::new(Manual::default());
    assert_eq!(push(&engine, 1 << 32, 64), Err(DmaError::Unreachable));
    assert_eq!(push(&engine, (1 << 32) - 32, 64), Err(DmaError::Unreachable));
    // SAFETY: as in `push`.
    let other = unsafe { engine.push(10, &Transfer::linear(0, 0, 1)) };
    assert_eq!(other, Err(DmaError::NoChannel));
    assert!(engine.hardware.linked.lock().unwrap().is_empty());
}
