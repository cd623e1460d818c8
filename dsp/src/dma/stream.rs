//! Streams: each thread's share of a scratch region, filled by its DMA channel with what the thread reads next.
//!
//! A reader opens its thread's lane with the list of what it is going to read, in order: [`Feed`] pushes as much of it
//! as fits and hands out each piece when it is there, so what is read next arrives while this is worked on. What a lane
//! has in flight when a feed closes stays so: if the next feed on that lane wants it, it is there already.
//! A piece that cannot be streamed is read where it lies; the bytes are the same either way.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use heapless::Deque;
use hexloom_abi::Status;
use hexloom_abi::limits::{LINE_BYTES, MAX_THREADS};
use hexloom_abi::profile::TRACE_DMA;

use super::{DmaError, Engine, Ticket, Transfer};
use crate::pool::Fork;
use crate::tensor::Span;

/// Pieces in flight on one lane, at most: enough to hide a transfer's latency, few enough to drain quickly.
pub const DEPTH: usize = 8;

/// The share of scratch that streams take: one part in this many.
const SCRATCH_PARTS: usize = 4;

/// All lanes of a session for the length of a batch.
pub struct Streams<'a> {
    engine: &'a dyn Engine,
    /// The threads, whose waits are marked in a trace.
    threads: &'a dyn Fork,
    region: Span<'a, u8>,
    /// Bytes of a lane's part of the region.
    share: usize,
    lanes: [Lane; MAX_THREADS as usize],
    /// Whether a lane was opened since the last look.
    was_read: AtomicBool,
    /// Number of the status that the first failed transfer gave; 0 while there is none.
    failure: AtomicU32,
}

/// One thread's pieces in flight. `busy` makes a second user of it a refusal and not a data race.
struct Lane {
    busy: AtomicBool,
    in_flight: UnsafeCell<Deque<Piece, DEPTH>>,
}

// SAFETY: `in_flight` is touched only through a `Held`, of which `busy` allows one at a time.
unsafe impl Sync for Lane {}

/// A lane while one thread uses it.
struct Held<'s> {
    lane: &'s Lane,
}

/// Bytes on their way, or there.
#[derive(Clone, Copy)]
struct Piece {
    source: u64,
    /// Where in the lane's share.
    start: usize,
    bytes: usize,
    ticket: Ticket,
}

/// A thread that reads one piece after the other. Dropping it ends the reading, not the transfers.
pub struct Feed<'s, 'a, I: Iterator<Item = Span<'a, u8>>> {
    streams: &'s Streams<'a>,
    channel: usize,
    lane: Held<'s>,
    /// What is still to be pushed.
    ahead: core::iter::Peekable<I>,
    /// The piece that was handed out last: its place is not free yet.
    reading: Option<Piece>,
}

impl<'a> Streams<'a> {
    /// Lanes over `region` for `threads`.
    ///
    /// # Safety
    /// - the region is used by nobody else until [`Streams::drain`] has returned on every thread with nothing failed;
    /// - `engine` is not moved until then.
    pub unsafe fn new(engine: &'a dyn Engine, region: Span<'a, u8>, threads: &'a dyn Fork) -> Self {
        let line = LINE_BYTES as usize;
        Self {
            engine,
            threads,
            region,
            share: region.len() / threads.n_threads().max(1) as usize / line * line,
            lanes: core::array::from_fn(|_| Lane {
                busy: AtomicBool::new(false),
                in_flight: UnsafeCell::new(Deque::new()),
            }),
            was_read: AtomicBool::new(false),
            failure: AtomicU32::new(0),
        }
    }

    /// Bytes at the end of scratch that streams take of `scratch_bytes`.
    pub fn region_bytes(scratch_bytes: usize) -> usize {
        let line = LINE_BYTES as usize;
        scratch_bytes / SCRATCH_PARTS / line * line
    }

    /// Opens the lane of thread `channel` for reading `wanted` in order; `None` when it is open already.
    ///
    /// What the lane has in flight is kept if it is how `wanted` begins, and waited for and dropped otherwise.
    ///
    /// # Safety
    /// Until the lane is drained, nobody writes the bytes of `wanted`, and what was written of them before is in memory.
    pub unsafe fn feed<'s, I>(&'s self, channel: usize, wanted: I) -> Option<Feed<'s, 'a, I>>
    where
        I: Iterator<Item = Span<'a, u8>> + Clone,
    {
        let mut lane = self.hold(channel)?;
        self.was_read.store(true, Ordering::Relaxed);
        let mut ahead = wanted.clone();
        let matches = |piece: &Piece, span: Option<Span<'a, u8>>| span.is_some_and(|span| piece.is(span));
        if !lane.in_flight().iter().all(|piece| matches(piece, ahead.next())) {
            self.drop_all(channel, &mut lane);
            ahead = wanted;
        }
        let mut feed = Feed {
            streams: self,
            channel,
            lane,
            ahead: ahead.peekable(),
            reading: None,
        };
        feed.push_more();
        Some(feed)
    }

    /// Waits for everything that thread `channel` has in flight, and forgets it. To be called by that thread.
    pub fn drain(&self, channel: usize) {
        if let Some(mut lane) = self.hold(channel) {
            self.drop_all(channel, &mut lane);
        }
    }

    /// Whether any lane has something in flight. To be called while no thread reads.
    pub fn is_idle(&self) -> bool {
        (0..self.lanes.len()).all(|channel| match self.hold(channel) {
            Some(mut lane) => lane.in_flight().is_empty(),
            None => false,
        })
    }

    /// Whether a lane was opened since the last call.
    pub fn take_was_read(&self) -> bool {
        self.was_read.swap(false, Ordering::Relaxed)
    }

    /// How the first transfer that failed did; from then on nothing is streamed.
    pub fn failure(&self) -> Option<Status> {
        let number = self.failure.load(Ordering::Acquire);
        Status::ALL.iter().copied().find(|status| status.number() == number)
    }

    fn fail(&self, error: DmaError) {
        let number = Status::from(error).number();
        // The first failure is the cause; later ones follow from it.
        let _ = self
            .failure
            .compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn hold(&self, channel: usize) -> Option<Held<'_>> {
        let lane = self.lanes.get(channel)?;
        match lane.busy.swap(true, Ordering::Acquire) {
            true => None,
            false => Some(Held { lane }),
        }
    }

    fn drop_all(&self, channel: usize, lane: &mut Held<'_>) {
        while let Some(piece) = lane.in_flight().pop_front() {
            // After a failure the session ends; each thread waits for a deadline once at most.
            if self.failure().is_none()
                && let Err(error) = self.wait(channel, piece.ticket)
            {
                self.fail(error);
            }
        }
    }

    /// Waits for a transfer; a trace shows it if there is something to wait for.
    fn wait(&self, channel: usize, ticket: Ticket) -> Result<(), DmaError> {
        if self.engine.is_done(channel, ticket)? {
            return Ok(());
        }
        self.threads.mark(channel, TRACE_DMA, false);
        let result = self.engine.wait(channel, ticket);
        self.threads.mark(channel, TRACE_DMA, true);
        result
    }
}

impl Held<'_> {
    fn in_flight(&mut self) -> &mut Deque<Piece, DEPTH> {
        // SAFETY: `busy` went from false to true for this `Held` and goes back when it is dropped, so there is no other.
        unsafe { &mut *self.lane.in_flight.get() }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lane.busy.store(false, Ordering::Release);
    }
}

impl Piece {
    fn is(&self, span: Span<'_, u8>) -> bool {
        self.source == span.as_ptr() as u64 && self.bytes == span.len()
    }
}

impl<'a, I: Iterator<Item = Span<'a, u8>>> Feed<'_, 'a, I> {
    /// The bytes of the next piece, in scratch, or where they lie if they were not streamed. The piece before it is given up.
    pub fn take(&mut self, next: Span<'a, u8>) -> Span<'a, u8> {
        self.reading = None;
        self.push_more();
        let in_flight = self.lane.in_flight();
        let Some(piece) = in_flight.front().copied().filter(|piece| piece.is(next)) else {
            // Never pushed and never to be: it would come when its turn is over.
            if let Some(span) = self.ahead.peek()
                && (span.as_ptr(), span.len()) == (next.as_ptr(), next.len())
            {
                self.ahead.next();
            }
            return next;
        };
        in_flight.pop_front();
        if self.streams.failure().is_some() {
            return next;
        }
        if let Err(error) = self.streams.wait(self.channel, piece.ticket) {
            self.streams.fail(error);
            return next;
        }
        self.reading = Some(piece);
        let share = self.channel * self.streams.share;
        self.streams.region.part(share + piece.start, piece.bytes)
    }

    /// Pushes as much as there is room for.
    fn push_more(&mut self) {
        if self.streams.failure().is_some() {
            return;
        }
        while let Some(&span) = self.ahead.peek() {
            let Ok(bytes) = u32::try_from(span.len()) else {
                self.ahead.next();
                continue;
            };
            if span.len() > self.streams.share {
                self.ahead.next();
                continue;
            }
            if self.lane.in_flight().is_full() {
                return;
            }
            let Some(start) = self.place(span.len()) else { return };
            let target = self.channel * self.streams.share + start;
            let target = self.streams.region.part(target, span.len()).as_ptr() as u64;
            let transfer = Transfer::linear(span.as_ptr() as u64, target, bytes);
            // SAFETY: the caller of `feed` keeps the source as it is; the target lies in this lane's share of the region, at
            // bytes that no piece in flight or being read has; the caller of `new` keeps region and engine.
            match unsafe { self.streams.engine.push(self.channel, &transfer) } {
                Ok(ticket) => {
                    let piece = Piece {
                        source: transfer.source,
                        start,
                        bytes: span.len(),
                        ticket,
                    };
                    // There is room, as was seen above.
                    let _ = self.lane.in_flight().push_back(piece);
                    self.ahead.next();
                }
                Err(DmaError::Full) => return,
                Err(DmaError::TooLong | DmaError::Unreachable | DmaError::NoChannel) => {
                    self.ahead.next();
                }
                Err(error @ (DmaError::Fault | DmaError::Timeout)) => return self.streams.fail(error),
            }
        }
    }

    /// Where `bytes` fit behind the newest piece, or before the oldest; `None` while they do not.
    fn place(&mut self, bytes: usize) -> Option<usize> {
        let share = self.streams.share;
        let reading = self.reading;
        let in_flight = self.lane.in_flight();
        let oldest = reading.or(in_flight.front().copied());
        let newest = in_flight.back().copied().or(reading);
        let (Some(oldest), Some(newest)) = (oldest, newest) else {
            return Some(0);
        };
        let end = (newest.start + newest.bytes).next_multiple_of(LINE_BYTES as usize);
        if newest.start < oldest.start {
            return (end + bytes <= oldest.start).then_some(end);
        }
        if end + bytes <= share {
            return Some(end);
        }
        (bytes <= oldest.start).then_some(0)
    }
}

#[cfg(test)]
mod tests;
