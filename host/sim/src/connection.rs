//! The host's end of a simulated session: memory known to the "driver", the queue, and the DSP's threads.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use hexloom::transport::{BlockRef, Connection, HwInfo, MapKind, SharedMemory, TransportError};
use hexloom_abi::{StartRequest, Status};

use crate::SimOptions;
use crate::dsp::Dsp;
use crate::memory;
use crate::platform::{KnownMemory, lock};

/// Longest time that stopping a simulated DSP may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct SimConnection {
    options: SimOptions,
    known: KnownMemory,
    channel: Arc<Channel>,
    dsp: Mutex<Option<Dsp>>,
    closed: AtomicBool,
}

/// Both directions of the queue.
pub(crate) struct Channel {
    state: Mutex<ChannelState>,
    to_dsp: Condvar,
    to_host: Condvar,
}

#[derive(Default)]
struct ChannelState {
    requests: VecDeque<Event>,
    replies: VecDeque<Vec<u8>>,
    depth: usize,
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

impl SimConnection {
    pub(crate) fn new(options: SimOptions) -> Self {
        Self {
            options,
            known: Arc::new(Mutex::new(HashMap::new())),
            channel: Arc::new(Channel {
                state: Mutex::new(ChannelState::default()),
                to_dsp: Condvar::new(),
                to_host: Condvar::new(),
            }),
            dsp: Mutex::new(None),
            closed: AtomicBool::new(false),
        }
    }

    fn check_open(&self) -> Result<(), TransportError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(TransportError::Dead("closed".into()));
        }
        Ok(())
    }
}

impl Connection for SimConnection {
    fn hw_info(&self) -> Result<HwInfo, TransportError> {
        self.check_open()?;
        Ok(self.options.hw_info())
    }

    fn map(&self, memory: &SharedMemory, _kind: MapKind) -> Result<(), TransportError> {
        self.check_open()?;
        let fd = memory::duplicate(memory)?;
        lock(&self.known).insert(memory.fd(), (Arc::new(fd), memory.bytes()));
        Ok(())
    }

    fn unmap(&self, fd: u32, _bytes: u64) -> Result<(), TransportError> {
        lock(&self.known).remove(&fd);
        Ok(())
    }

    fn create_queue(&self, depth: u32) -> Result<u64, TransportError> {
        self.check_open()?;
        lock(&self.channel.state).depth = depth.max(1) as usize;
        Ok(1)
    }

    fn start(&self, start: &StartRequest) -> Result<(), TransportError> {
        self.check_open()?;
        start.check().map_err(TransportError::Refused)?;
        let mut dsp = lock(&self.dsp);
        if dsp.is_some() {
            return Err(TransportError::Refused(Status::AlreadyStarted));
        }
        let started = Dsp::start(&self.options, start, Arc::clone(&self.known), Arc::clone(&self.channel))?;
        *dsp = Some(started);
        Ok(())
    }

    fn stop(&self) -> Result<(), TransportError> {
        let dsp = lock(&self.dsp).take();
        let dsp = dsp.ok_or(TransportError::Refused(Status::NotStarted))?;
        dsp.request_stop();
        self.channel.send(Event::Stop);
        dsp.join(STOP_TIMEOUT)
    }

    fn forget(&self, fd: u32) -> Result<(), TransportError> {
        if lock(&self.dsp).is_none() {
            return Err(TransportError::Refused(Status::NotStarted));
        }
        let (done, wait) = sync_channel(1);
        self.channel.check_alive()?;
        self.channel.send(Event::Forget(fd, done));
        // A DSP that dies drops the sender, which ends the wait.
        wait.recv_timeout(STOP_TIMEOUT)
            .map_err(|_| TransportError::Timeout(STOP_TIMEOUT))
    }

    fn write(&self, message: &[u8], block: BlockRef, timeout: Duration) -> Result<(), TransportError> {
        self.check_open()?;
        self.channel.write(message, block, timeout)
    }

    fn read(&self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportError> {
        self.check_open()?;
        self.channel.read(message, timeout)
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            // Not started is fine; a stop that times out has been logged by the session.
            let _ = self.stop();
            lock(&self.known).clear();
        }
    }
}

impl Drop for SimConnection {
    fn drop(&mut self) {
        self.close();
    }
}

impl Channel {
    /// The next event for the DSP's main thread; sleeps until there is one, at the latest the stop.
    pub(crate) fn next_event(&self) -> Event {
        let mut state = lock(&self.state);
        loop {
            if let Some(event) = state.requests.pop_front() {
                return event;
            }
            state = self
                .to_dsp
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Hands a reply to the host.
    pub(crate) fn reply(&self, bytes: Vec<u8>) {
        lock(&self.state).replies.push_back(bytes);
        self.to_host.notify_all();
    }

    /// Marks the DSP as gone: waiting and later calls end with the reason.
    pub(crate) fn die(&self, why: String) {
        let mut state = lock(&self.state);
        state.dead.get_or_insert(why);
        state.requests.clear();
        drop(state);
        self.to_host.notify_all();
    }

    fn check_alive(&self) -> Result<(), TransportError> {
        match &lock(&self.state).dead {
            Some(why) => Err(TransportError::Dead(why.as_str().into())),
            None => Ok(()),
        }
    }

    fn send(&self, event: Event) {
        lock(&self.state).requests.push_back(event);
        self.to_dsp.notify_one();
    }

    fn write(&self, message: &[u8], block: BlockRef, timeout: Duration) -> Result<(), TransportError> {
        let end = Instant::now() + timeout;
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
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn read(&self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportError> {
        let end = Instant::now() + timeout;
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
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}
