//! The host's end of a simulated session: each call is counted, may be made to fail, and then does its work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hexloom::transport::{BlockRef, Connection, HwInfo, MapKind, SharedMemory, TransportError, aee};
use hexloom_abi::control::CountedEvents;
use hexloom_abi::{StartRequest, Status};

use crate::calls::CallName;
use crate::channel::Event;
use crate::driver::Driver;
use crate::dsp::Dsp;
use crate::fault::CallFault;
use crate::platform::lock;
use crate::process::Process;
use crate::tally::Counted;

pub(crate) struct SimConnection {
    driver: Arc<Driver>,
    process: Arc<Process>,
    dsp: Mutex<Option<Dsp>>,
    held: Mutex<Held>,
    closed: AtomicBool,
}

/// What closing gives back.
#[derive(Default)]
struct Held {
    _session: Option<Counted>,
    _reserved: Option<Counted>,
    queue: Option<Counted>,
}

impl SimConnection {
    pub(crate) fn new(driver: Arc<Driver>, process: Arc<Process>) -> Self {
        let tally = &driver.tally;
        let held = Held {
            _session: Some(tally.sessions.take(1)),
            _reserved: (process.at.session > 0).then(|| tally.reserved.take(1)),
            queue: None,
        };
        Self {
            driver,
            process,
            dsp: Mutex::new(None),
            held: Mutex::new(held),
            closed: AtomicBool::new(false),
        }
    }

    /// Counts a call and lets it meet its fault. `Ok(false)`: it gives something back that is gone with the process or the
    /// session, and has no more to do.
    fn enter(&self, name: CallName, fd: Option<u32>, timeout: Duration) -> Result<bool, TransportError> {
        let fault = self.process.enter(name, fd);
        if self.closed.load(Ordering::Acquire) {
            return match name.gives_back() {
                true => Ok(false),
                false => Err(TransportError::Dead("closed".into())),
            };
        }
        match fault {
            Some(CallFault::Death) => self.kill(format!("the simulated DSP died at a call of {}", name.text())),
            Some(CallFault::Timeout) => {
                if matches!(name, CallName::Write | CallName::Read) {
                    std::thread::sleep(timeout);
                }
                return Err(TransportError::Timeout(timeout));
            }
            Some(CallFault::Code(code)) => return Err(aee::failed(name.text(), code, "planned")),
            None => {}
        }
        // The queue gives the replies that came before the end.
        let is_queue = matches!(name, CallName::Write | CallName::Read);
        match self.process.channel.dead() {
            Some(why) if !is_queue && !name.gives_back() => Err(TransportError::Dead(why.into())),
            _ => Ok(true),
        }
    }

    /// Ends the DSP process and waits for its threads.
    fn kill(&self, why: String) {
        self.process.kill(why);
        self.join_dead();
    }

    /// Waits for the threads of a process that is ending; they hold mappings until then.
    fn join_dead(&self) {
        let dsp = lock(&self.dsp).take();
        if let Some(Err(error)) = dsp.map(|dsp| dsp.join(self.limit())) {
            log::error!("threads of a dead DSP process go on: {error}");
        }
    }

    fn is_dead(&self) -> bool {
        self.process.channel.dead().is_some()
    }

    fn limit(&self) -> Duration {
        self.process.options.call_timeout
    }
}

impl Connection for SimConnection {
    fn hw_info(&self) -> Result<HwInfo, TransportError> {
        self.enter(CallName::HwInfo, None, self.limit())?;
        Ok(self.process.options.hw_info())
    }

    fn map(&self, memory: &SharedMemory, kind: MapKind) -> Result<(), TransportError> {
        self.enter(CallName::Map, Some(memory.fd()), self.limit())?;
        self.process.map(memory, kind)
    }

    fn unmap(&self, fd: u32, _bytes: u64) -> Result<(), TransportError> {
        let entered = self.enter(CallName::Unmap, Some(fd), self.limit());
        match entered {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => {
                self.process.unmap_failed(fd);
                return Err(error);
            }
        }
        if self.is_dead() {
            self.join_dead();
        }
        self.process.unmap(fd)
    }

    fn create_queue(&self, depth: u32) -> Result<u64, TransportError> {
        self.enter(CallName::CreateQueue, None, self.limit())?;
        self.process.channel.create(depth)?;
        lock(&self.held).queue = Some(self.driver.tally.queues.take(1));
        Ok(1)
    }

    fn start(&self, start: &StartRequest) -> Result<(), TransportError> {
        self.enter(CallName::Start, Some(start.pinned_fd), self.limit())?;
        start.check().map_err(TransportError::Refused)?;
        let mut dsp = lock(&self.dsp);
        if dsp.is_some() {
            return Err(TransportError::Refused(Status::AlreadyStarted));
        }
        *dsp = Some(Dsp::start(&self.process, start)?);
        Ok(())
    }

    fn stop(&self) -> Result<(), TransportError> {
        if !self.enter(CallName::Stop, None, self.limit())? {
            return Ok(());
        }
        let dsp = lock(&self.dsp).take();
        match dsp {
            Some(dsp) => {
                self.process.stop_stalls();
                self.process.channel.send(Event::Stop);
                dsp.join(self.limit())
            }
            None if self.is_dead() => Ok(()),
            None => Err(TransportError::Refused(Status::NotStarted)),
        }
    }

    fn forget(&self, fd: u32) -> Result<(), TransportError> {
        if !self.enter(CallName::Forget, Some(fd), self.limit())? || self.is_dead() {
            return Ok(());
        }
        if lock(&self.dsp).is_none() {
            return Err(TransportError::Refused(Status::NotStarted));
        }
        let (done, wait) = sync_channel(1);
        self.process.channel.send(Event::Forget(fd, done));
        match wait.recv_timeout(self.limit()) {
            // A process that ends drops the sender, and its mappings.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
            Err(RecvTimeoutError::Timeout) => Err(TransportError::Timeout(self.limit())),
        }
    }

    fn count(&self, events: &CountedEvents) -> Result<(), TransportError> {
        self.enter(CallName::Count, None, self.limit())?;
        let dsp = lock(&self.dsp);
        let counted = dsp.as_ref().map_or(Err(Status::NotStarted), |dsp| dsp.count(events));
        counted.map_err(TransportError::Refused)
    }

    fn write(&self, message: &[u8], block: BlockRef, timeout: Duration) -> Result<(), TransportError> {
        self.enter(CallName::Write, Some(block.fd), timeout)?;
        if let Some(room) = self.process.options.faults.deaf(self.process.at) {
            self.process.channel.deafen(room);
        }
        self.process.channel.write(message, block, timeout)
    }

    fn read(&self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportError> {
        self.enter(CallName::Read, None, timeout)?;
        self.process.channel.read(message, timeout)
    }

    fn close(&self) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = self.enter(CallName::Close, None, self.limit()) {
            // A close that fails leaves nothing to the caller: the driver ends the process as it would at the caller's end.
            log::warn!("close: {error}");
        }
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.kill("closed".to_owned());
        self.process.clear();
        *lock(&self.held) = Held::default();
        self.driver.leave(self.process.at);
    }
}

impl Drop for SimConnection {
    fn drop(&mut self) {
        self.close();
    }
}
