//! The request queue of one connection: sequence numbers, order of replies, deadlines.
//!
//! Requests get sequence numbers from 1 upward in the order in which they are written; replies come back in that order.
//! Whoever waits first reads for everybody: it takes replies from the transport until its own is among them, and the
//! others sleep until theirs has arrived. A request has its deadline from when it was sent or, behind others, from the reply
//! before it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hexloom_abi::{BatchReply, BatchRequest};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::error::Fault;
use crate::transport::{BlockRef, Connection, TransportError};

/// Sequence numbers and replies of one connection.
pub(crate) struct RequestQueue {
    connection: Arc<dyn Connection>,
    state: Mutex<State>,
    arrived: Condvar,
    transport_ns: AtomicU64,
}

/// A request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) seq: u64,
    sent: Instant,
}

#[derive(Default)]
struct State {
    last_sent: u64,
    last_arrived: u64,
    arrived: VecDeque<BatchReply>,
    last_reply: Option<Instant>,
    reading: bool,
    fault: Option<Fault>,
}

impl RequestQueue {
    pub(crate) fn new(connection: Arc<dyn Connection>) -> Self {
        Self {
            connection,
            state: Mutex::new(State::default()),
            arrived: Condvar::new(),
            transport_ns: AtomicU64::new(0),
        }
    }

    /// Nanoseconds spent inside the transport's queue calls.
    pub(crate) fn transport_ns(&self) -> u64 {
        self.transport_ns.load(Ordering::Relaxed)
    }

    /// Requests sent whose reply has not arrived.
    pub(crate) fn n_in_flight(&self) -> usize {
        let state = self.lock();
        (state.last_sent - state.last_arrived) as usize
    }

    /// Sends a request, filling in its sequence number.
    pub(crate) fn submit(
        &self,
        mut request: BatchRequest,
        block: BlockRef,
        timeout: Duration,
    ) -> Result<Ticket, Fault> {
        let mut state = self.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        let seq = state.last_sent + 1;
        request.seq = seq;
        let sent = Instant::now();
        let result = self.connection.write(request.as_bytes(), block, timeout);
        self.count(sent);
        result.map_err(|error| fault_of(error, timeout))?;
        state.last_sent = seq;
        Ok(Ticket { seq, sent })
    }

    /// Waits for the reply to `ticket`, at most until `deadline` after it was sent or the last reply has come.
    pub(crate) fn wait(&self, ticket: Ticket, deadline: Duration) -> Result<BatchReply, Fault> {
        let mut state = self.lock();
        loop {
            if let Some(idx) = state.arrived.iter().position(|reply| reply.seq == ticket.seq)
                && let Some(reply) = state.arrived.remove(idx)
            {
                return Ok(reply);
            }
            if let Some(fault) = &state.fault {
                return Err(fault.clone());
            }
            let since = state.last_reply.map_or(ticket.sent, |last| last.max(ticket.sent));
            let left = deadline.saturating_sub(since.elapsed());
            if left.is_zero() {
                let fault = Fault::Stalled(deadline);
                state.fault = Some(fault.clone());
                self.arrived.notify_all();
                return Err(fault);
            }
            if state.reading {
                let waited = self.arrived.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.reading = true;
            let expected = state.last_arrived + 1;
            drop(state);
            let result = self.read_one(expected, left);
            state = self.lock();
            state.reading = false;
            match result {
                Ok(Some(reply)) => {
                    state.last_arrived = expected;
                    state.last_reply = Some(Instant::now());
                    state.arrived.push_back(reply);
                }
                Ok(None) => {}
                Err(fault) => state.fault = Some(fault),
            }
            self.arrived.notify_all();
        }
    }

    /// Reads one reply; `None` when none came in time.
    fn read_one(&self, expected: u64, timeout: Duration) -> Result<Option<BatchReply>, Fault> {
        let mut reply = BatchReply::new_zeroed();
        let start = Instant::now();
        let result = self.connection.read(reply.as_mut_bytes(), timeout);
        self.count(start);
        let len = match result {
            Ok(len) => len,
            Err(TransportError::Timeout(_)) => return Ok(None),
            Err(error) => return Err(fault_of(error, timeout)),
        };
        let garbage = |what: String| Err(Fault::Garbage(what));
        if len != size_of::<BatchReply>() {
            return garbage(format!("{len} bytes instead of {}", size_of::<BatchReply>()));
        }
        if let Err(status) = reply.check() {
            return garbage(status.to_string());
        }
        if reply.seq != expected {
            return garbage(format!("sequence number {} instead of {expected}", reply.seq));
        }
        Ok(Some(reply))
    }

    fn count(&self, start: Instant) {
        let ns = start.elapsed().as_nanos() as u64;
        self.transport_ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fault_of(error: TransportError, timeout: Duration) -> Fault {
    match error {
        TransportError::Timeout(_) => Fault::Stalled(timeout),
        TransportError::Dead(why) => Fault::Died(why),
        other => Fault::Transport(other),
    }
}

/// Reads a record out of bytes that are exactly its size.
pub(crate) fn record<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    T::read_from_bytes(bytes).ok()
}
