//! Both directions of a session's queue, and the calls that reach the DSP process beside it.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hexloom::transport::{BlockRef, TransportError, aee, ends_at};

use crate::platform::lock;

/// Packets to the DSP and replies from it.
#[derive(Default)]
pub(crate) struct Channel {
    state: Mutex<State>,
    to_dsp: Condvar,
    to_host: Condvar,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Event>,
    replies: VecDeque<Vec<u8>>,
    /// Packets that fit; 0 = there is no queue.
    depth: usize,
    /// Packets wait and are not taken.
    deaf: bool,
    dead: Option<String>,
}

/// What reaches the DSP's main thread.
pub(crate) enum Event {
    /// A request with its block.
    Packet(Vec<u8>, BlockRef),
    /// Drop the mappings of an fd, then answer.
    Forget(u32, SyncSender<()>),
    /// End.
    Stop,
}

impl Channel {
    /// Creates the queue, if there is none.
    pub(crate) fn create(&self, depth: u32) -> Result<(), TransportError> {
        let mut state = lock(&self.state);
        if state.depth > 0 {
            return Err(aee::failed("create_queue", aee::EALREADY, "the session has a queue"));
        }
        state.depth = depth.max(1) as usize;
        Ok(())
    }

    /// No packet is taken from now on, and no more than `room` fit.
    pub(crate) fn deafen(&self, room: u32) {
        let mut state = lock(&self.state);
        state.deaf = true;
        state.depth = state.depth.min(room as usize);
    }

    /// The next event for the DSP's main thread; sleeps until there is one, at the latest the stop. A process that is
    /// gone stops.
    pub(crate) fn next_event(&self) -> Event {
        let mut state = lock(&self.state);
        loop {
            if state.dead.is_some() {
                return Event::Stop;
            }
            let deaf = state.deaf;
            let takes = |event: &Event| !(deaf && matches!(event, Event::Packet(..)));
            let next = state.requests.iter().position(takes);
            if let Some(event) = next.and_then(|idx| state.requests.remove(idx)) {
                return event;
            }
            state = self.to_dsp.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hands a reply to the host.
    pub(crate) fn reply(&self, bytes: Vec<u8>) {
        lock(&self.state).replies.push_back(bytes);
        self.to_host.notify_all();
    }

    /// Marks the DSP process as gone: waiting and later calls end with the reason.
    pub(crate) fn die(&self, why: String) {
        let mut state = lock(&self.state);
        state.dead.get_or_insert(why);
        state.requests.clear();
        drop(state);
        self.to_dsp.notify_all();
        self.to_host.notify_all();
    }

    /// Why the DSP process is gone, if it is.
    pub(crate) fn dead(&self) -> Option<String> {
        lock(&self.state).dead.clone()
    }

    /// Sends what is no packet and needs no room.
    pub(crate) fn send(&self, event: Event) {
        lock(&self.state).requests.push_back(event);
        self.to_dsp.notify_one();
    }

    /// Sends a packet, once there is room.
    pub(crate) fn write(&self, message: &[u8], block: BlockRef, timeout: Duration) -> Result<(), TransportError> {
        let end = ends_at(timeout);
        let mut state = lock(&self.state);
        loop {
            if let Some(why) = &state.dead {
                return Err(TransportError::Dead(why.as_str().into()));
            }
            if state.requests.len() < state.depth {
                state.requests.push_back(Event::Packet(message.to_vec(), block));
                drop(state);
                self.to_dsp.notify_one();
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TransportError::Timeout(timeout));
            }
            let waited = self.to_host.wait_timeout(state, left.min(Duration::from_millis(1)));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Receives one reply.
    pub(crate) fn read(&self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportError> {
        let end = ends_at(timeout);
        let mut state = lock(&self.state);
        loop {
            if let Some(reply) = state.replies.pop_front() {
                let len = reply.len().min(message.len());
                message[..len].copy_from_slice(&reply[..len]);
                return Ok(reply.len());
            }
            if let Some(why) = &state.dead {
                return Err(TransportError::Dead(why.as_str().into()));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TransportError::Timeout(timeout));
            }
            let waited = self.to_host.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
