//! Events: fence slots with a name, on which the host and other sessions wait for a session.
//!
//! A graph that signals an event promises the next number each time it is started and signals it on the DSP; a graph that
//! waits is given the number promised last when it is started, so it waits for what was started before it. A session
//! that is lost signals what it had promised as failed. Fence slots lie in the pinned buffer of a connection: after a
//! re-opening an event has a new slot and begins anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hexloom_abi::Status;

use super::{FenceRun, Session};
use crate::error::{SubmitError, WaitError};
use crate::memory::Buffer;
use crate::transport::ends_at;

/// Longest pause between two looks at a fence slot.
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// Something that a session's graphs signal. Clones are the same event.
#[derive(Clone)]
pub struct Event {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    session: Session,
    place: Mutex<Place>,
}

/// The slot in the pinned buffer of one connection.
struct Place {
    run: Arc<FenceRun>,
    epoch: u64,
    promised: u32,
}

impl Event {
    pub(crate) fn new(session: &Session, name: &str) -> Result<Self, SubmitError> {
        Ok(Self {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                session: session.clone(),
                place: Mutex::new(Place::new(session)?),
            }),
        })
    }

    /// Its name, in messages.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The session whose graphs signal it.
    pub fn session(&self) -> &Session {
        &self.inner.session
    }

    /// Whether the signal promised last has come, or nothing was promised.
    ///
    /// # Errors
    /// [`WaitError::Peer`] when it came with a failure.
    pub fn is_reached(&self) -> Result<bool, WaitError> {
        let place = self.lock();
        match place.outcome() {
            None => Ok(false),
            Some(Status::Ok) => Ok(true),
            Some(status) => Err(WaitError::Peer {
                event: self.inner.name.clone(),
                status,
            }),
        }
    }

    /// Waits for the signal promised last.
    ///
    /// # Errors
    /// [`WaitError::Peer`] when it came with a failure, [`WaitError::Fence`] when it has not come within `timeout`.
    pub fn wait(&self, timeout: Duration) -> Result<(), WaitError> {
        let end = ends_at(timeout);
        let mut pause = Duration::from_micros(1);
        while !self.is_reached()? {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WaitError::Fence {
                    event: self.inner.name.clone(),
                    timeout,
                });
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Ok(())
    }

    /// Buffer and byte offset of its slot: a new one after its session was opened again.
    pub(crate) fn place(&self) -> Result<(Buffer, u64), SubmitError> {
        let epoch = self.inner.session.links()?.epoch();
        let mut place = self.lock();
        if place.epoch != epoch {
            *place = Place::new(&self.inner.session)?;
        }
        Ok((place.run.buffer().clone(), place.run.offset(0)))
    }

    /// The connection of its session that the slot belongs to.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// The number for a signal about to be sent.
    pub(crate) fn promise(&self) -> u32 {
        let mut place = self.lock();
        place.promised = next_seq(place.promised);
        place.run.promise(0, place.promised);
        place.promised
    }

    /// Promises a number that the caller counts.
    pub(crate) fn promise_number(&self, seq: u32) {
        let mut place = self.lock();
        place.promised = seq;
        place.run.promise(0, seq);
    }

    /// The number promised last; 0 when none was, which every slot has reached.
    pub(crate) fn promised(&self) -> u32 {
        self.lock().promised
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.inner.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn new(session: &Session) -> Result<Self, SubmitError> {
        let links = session.links()?;
        Ok(Self {
            run: Arc::new(links.lead().take_fences(1)?),
            epoch: links.epoch(),
            promised: 0,
        })
    }

    fn outcome(&self) -> Option<Status> {
        match self.promised {
            0 => Some(Status::Ok),
            seq => self.run.read(0).outcome(seq),
        }
    }
}

/// The number after `seq`; 0 means that nothing was promised, so it is left out.
pub(crate) fn next_seq(seq: u32) -> u32 {
    seq.wrapping_add(1).max(1)
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({})", self.inner.name)
    }
}
