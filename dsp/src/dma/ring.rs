//! An engine out of descriptors: a ring of them for each channel, which [`Hardware`] follows.
//!
//! A descriptor is written while the engine knows nothing of it, then linked behind the last one, and its place is used
//! again only after its done bit was seen: nobody changes what the engine may read. Places are retired in order, so a
//! transfer is reported done only when all before it are, whatever order the engine works in.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hexloom_abi::limits::MAX_THREADS;

use super::descriptor::{Arch, Place};
use super::split::pieces;
use super::{DmaError, Engine, Ticket, Transfer};

/// Descriptors of a channel; one is kept as the tail that the next is linked to.
pub const PLACES: usize = 64;

/// Looks at the done bit this often between two looks at the clock.
const LOOKS: u32 = 64;

/// What follows descriptors: the device's instructions, or a thread that plays them.
pub trait Hardware: Sync {
    /// Which descriptors it reads.
    fn arch(&self) -> Arch;

    /// The address by which it knows memory; `None` for memory that it does not reach.
    fn address(&self, memory: u64) -> Option<u64>;

    /// Begins at a descriptor; the channel has never run.
    ///
    /// # Safety
    /// As for [`Hardware::link`].
    unsafe fn start(&self, channel: usize, first: &Place);

    /// Goes on with `next` after `tail`, at once if `tail` is done.
    ///
    /// # Safety
    /// - until `next` is done it stays where it is and is not written, and its source and target are as
    ///   [`Engine::push`] demands;
    /// - `tail` is the last one linked on this channel.
    unsafe fn link(&self, channel: usize, tail: &Place, next: &Place);

    /// Lets the engine show its progress; fails when it has stopped with an error.
    fn poll(&self, channel: usize) -> Result<(), DmaError>;

    /// Nanoseconds since some fixed point.
    fn nanos(&self) -> u64;

    /// Longest wait for a transfer.
    fn deadline_ns(&self) -> u64;
}

/// An [`Engine`] on some hardware.
pub struct RingEngine<H> {
    // Dropped before the descriptors that it may still read.
    hardware: H,
    channels: [Channel; MAX_THREADS as usize],
}

/// One thread's descriptors: those from `retired` to `pushed`, modulo the ring, are the engine's.
struct Channel {
    places: [Place; PLACES],
    pushed: AtomicU32,
    retired: AtomicU32,
    started: AtomicBool,
}

impl<H: Hardware> RingEngine<H> {
    /// An engine with nothing in flight.
    pub const fn new(hardware: H) -> Self {
        Self {
            hardware,
            channels: [const { Channel::new() }; MAX_THREADS as usize],
        }
    }

    /// The hardware underneath.
    pub fn hardware(&self) -> &H {
        &self.hardware
    }

    fn channel(&self, channel: usize) -> Result<&Channel, DmaError> {
        self.channels.get(channel).ok_or(DmaError::NoChannel)
    }
}

impl<H: Hardware> Engine for RingEngine<H> {
    unsafe fn push(&self, channel: usize, transfer: &Transfer) -> Result<Ticket, DmaError> {
        let ring = self.channel(channel)?;
        let reach = |memory| self.hardware.address(memory).ok_or(DmaError::Unreachable);
        let empty = transfer.is_empty();
        let transfer = Transfer {
            source: if empty { 0 } else { reach(transfer.source)? },
            target: if empty { 0 } else { reach(transfer.target)? },
            ..*transfer
        };
        let pieces = pieces(self.hardware.arch(), &transfer)?;
        let needed = pieces.clone().take(PLACES).count();
        if needed > PLACES - 1 {
            return Err(DmaError::TooLong);
        }
        if needed > ring.room() {
            return Err(DmaError::Full);
        }
        for piece in pieces {
            let pushed = ring.pushed.load(Ordering::Relaxed);
            let next = ring.place(pushed);
            next.store(&piece);
            if ring.started.swap(true, Ordering::Relaxed) {
                // SAFETY: `next` is not the engine's yet and, being counted below, is not written before it is done;
                // the caller keeps engine, source and target; the place before it was linked last.
                unsafe { self.hardware.link(channel, ring.place(pushed.wrapping_sub(1)), next) };
            } else {
                // SAFETY: as above, and nothing was started on this channel.
                unsafe { self.hardware.start(channel, next) };
            }
            ring.pushed.store(pushed.wrapping_add(1), Ordering::Relaxed);
        }
        Ok(Ticket(ring.pushed.load(Ordering::Relaxed).wrapping_sub(1)))
    }

    fn is_done(&self, channel: usize, ticket: Ticket) -> Result<bool, DmaError> {
        let ring = self.channel(channel)?;
        self.hardware.poll(channel)?;
        ring.room();
        Ok(ring.has_retired(ticket))
    }

    fn wait(&self, channel: usize, ticket: Ticket) -> Result<(), DmaError> {
        let mut end = None;
        let mut looks = 0u32;
        while !self.is_done(channel, ticket)? {
            core::hint::spin_loop();
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) {
                let now = self.hardware.nanos();
                if now > *end.get_or_insert(now.saturating_add(self.hardware.deadline_ns())) {
                    return Err(DmaError::Timeout);
                }
            }
        }
        Ok(())
    }
}

impl Channel {
    const fn new() -> Self {
        Self {
            places: [const { Place::new() }; PLACES],
            pushed: AtomicU32::new(0),
            retired: AtomicU32::new(0),
            started: AtomicBool::new(false),
        }
    }

    fn place(&self, number: u32) -> &Place {
        &self.places[number as usize % PLACES]
    }

    /// Retires what is done; gives how many descriptors can be pushed.
    fn room(&self) -> usize {
        let pushed = self.pushed.load(Ordering::Relaxed);
        let mut retired = self.retired.load(Ordering::Relaxed);
        while retired != pushed && self.place(retired).is_done() {
            retired = retired.wrapping_add(1);
        }
        self.retired.store(retired, Ordering::Relaxed);
        (PLACES - 1).saturating_sub(pushed.wrapping_sub(retired) as usize)
    }

    fn has_retired(&self, ticket: Ticket) -> bool {
        let retired = self.retired.load(Ordering::Relaxed);
        retired.wrapping_sub(ticket.0).cast_signed() > 0
    }
}

// Numbers wrap at 2^32, where places must go on in step.
const _: () = assert!(PLACES.is_power_of_two());

#[cfg(test)]
mod tests;
