//! The simulated DSP process: a main thread that serves requests, and the pool's workers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hexloom::transport::{TransportError, aee, ends_at};
use hexloom_abi::control::CountedEvents;
use hexloom_abi::{BatchReply, StartRequest, Status};
use hexloom_dsp::interp::{BlockRef, Packet};
use hexloom_dsp::pool::{Fork, Pool};
use hexloom_dsp::{Platform as _, Session, SessionLimits, Span};
use zerocopy::IntoBytes;

use crate::calls::CallName;
use crate::channel::Event;
use crate::fault::CallFault;
use crate::platform::{Death, ScratchMemory, SimPlatform, thread_error};
use crate::process::Process;

/// Longest wait for workers before a process that ends lets go of its mappings.
const WORKER_TIMEOUT: Duration = Duration::from_secs(30);

/// Threads of one started session.
pub(crate) struct Dsp {
    process: Arc<Process>,
    pool: Arc<Pool<SimPlatform>>,
    threads: Vec<JoinHandle<()>>,
}

/// Everything the main thread needs.
struct Main {
    process: Arc<Process>,
    pool: Arc<Pool<SimPlatform>>,
    limits: SessionLimits,
    scratch: Scratch,
    descriptor_bytes: usize,
    /// Each worker has a clone while it runs.
    alive: Arc<()>,
}

/// Scratch memory on a page boundary.
struct Scratch {
    memory: Box<[Line]>,
}

#[repr(C, align(128))]
#[derive(Clone, Copy)]
struct Line([u8; 128]);

impl Dsp {
    /// Starts the threads of a process. On failure none is left.
    pub(crate) fn start(process: &Arc<Process>, start: &StartRequest) -> Result<Self, TransportError> {
        let options = &process.options;
        let hw = options.hw_info();
        let n_threads = match start.n_threads {
            0 => hw.n_threads,
            n => n,
        };
        let scratch_bytes = match start.scratch_bytes_max {
            0 => hw.scratch_bytes,
            max => max.min(hw.scratch_bytes),
        };
        let limits = SessionLimits::new(start, options.kernels_in_use()).map_err(TransportError::Refused)?;
        let mut scratch = Scratch::new(scratch_bytes as usize);
        let memory = ScratchMemory {
            address: scratch.span().as_ptr() as usize,
            bytes: scratch.span().len(),
        };
        let pinned = (start.pinned_fd, start.pinned_bytes);
        let platform = SimPlatform::new(Arc::clone(process), memory, pinned)?;
        let main = Main {
            process: Arc::clone(process),
            pool: Arc::new(Pool::new(platform, n_threads)),
            limits,
            scratch,
            descriptor_bytes: start.block_bytes_max as usize,
            alive: Arc::new(()),
        };
        let mut dsp = Self {
            process: Arc::clone(process),
            pool: Arc::clone(&main.pool),
            threads: Vec::new(),
        };
        match dsp.spawn_all(main, n_threads) {
            Ok(()) => Ok(dsp),
            Err(error) => {
                dsp.pool.stop();
                dsp.join(options.call_timeout)?;
                Err(error)
            }
        }
    }

    /// Lets the performance counters count.
    pub(crate) fn count(&self, events: &CountedEvents) -> Result<(), Status> {
        events.check()?;
        self.pool.platform().count(events)
    }

    /// Waits for all threads.
    pub(crate) fn join(self, timeout: Duration) -> Result<(), TransportError> {
        let end = ends_at(timeout);
        for thread in self.threads {
            while !thread.is_finished() {
                if Instant::now() > end {
                    return Err(TransportError::Timeout(timeout));
                }
                std::thread::sleep(Duration::from_micros(100));
            }
            // A panic has been turned into a dead channel by the main thread.
            let _ = thread.join();
        }
        Ok(())
    }

    /// The main thread comes last: if it is there, all are.
    fn spawn_all(&mut self, main: Main, n_threads: u32) -> Result<(), TransportError> {
        for idx in 1..n_threads {
            let (pool, alive) = (Arc::clone(&self.pool), Arc::clone(&main.alive));
            self.spawn(format!("dsp-worker-{idx}"), move || {
                pool.work(idx);
                drop(alive);
            })?;
        }
        self.spawn("dsp-main".to_owned(), move || main.run())
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), TransportError> {
        let call = CallName::DspThread;
        match self.process.enter(call, None) {
            None => {}
            Some(CallFault::Code(code)) => return Err(aee::failed(call.text(), code, "planned")),
            Some(CallFault::Timeout) => return Err(TransportError::Timeout(self.process.options.call_timeout)),
            Some(CallFault::Death) => {
                let why = "the simulated DSP died when it started a thread";
                self.process.kill(why.to_owned());
                return Err(TransportError::Dead(why.into()));
            }
        }
        let counted = self.process.tally.threads.take(1);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            body();
            drop(counted);
        });
        self.threads.push(thread.map_err(|error| thread_error(&error))?);
        Ok(())
    }
}

impl Main {
    /// The main thread: serves until it is stopped or the process ends, then lets go of everything. Only then does the
    /// host hear of the end.
    fn run(mut self) {
        let mut descriptors = vec![0u64; self.descriptor_bytes.div_ceil(8)];
        let scratch = self.scratch.span();
        let pool = Arc::clone(&self.pool);
        let mut session = Session::new(&*pool, self.limits, descriptors.as_mut_bytes(), scratch);
        let mut ended = caught(|| self.serve_all(&mut session));
        pool.platform().stop_dma();
        if ended.is_ok() {
            ended = caught(|| {
                session.close();
                Ok(())
            });
        }
        drop(session);
        pool.stop();
        if self.workers_end() {
            pool.platform().release();
        }
        if let Err(why) = ended {
            self.process.channel.die(why);
        }
    }

    /// Serves until the stop; fails with the reason when the process is to end.
    fn serve_all(&self, session: &mut Session<'_, SimPlatform>) -> Result<(), String> {
        loop {
            match self.process.channel.next_event() {
                Event::Stop => return Ok(()),
                Event::Forget(fd, done) => {
                    session.forget(fd);
                    // The host may have given up waiting.
                    let _ = done.send(());
                }
                Event::Packet(message, block) => self.serve(session, &message, block)?,
            }
        }
    }

    /// Serves one request.
    fn serve(
        &self,
        session: &mut Session<'_, SimPlatform>,
        message: &[u8],
        block: hexloom::transport::BlockRef,
    ) -> Result<(), String> {
        let seq = message.get(8..16).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
        self.pool.platform().begin_batch(seq.map_or(0, u64::from_le_bytes));
        let (pinned, pinned_bytes) = self.pool.platform().pinned();
        let end = block.offset.saturating_add(block.bytes);
        let inside = block.fd == self.limits.pinned_fd && end <= pinned_bytes;
        let packet = Packet {
            message,
            block: inside.then(|| BlockRef {
                fd: block.fd,
                offset: block.offset,
                bytes: block.bytes,
                address: pinned + block.offset,
            }),
        };
        let reply = session.serve(&packet);
        self.process.channel.reply(self.spoiled(&reply));
        match self.pool.is_poisoned() {
            true => Err("a worker thread panicked, or one or a transfer was stuck".to_owned()),
            false => Ok(()),
        }
    }

    fn spoiled(&self, reply: &BatchReply) -> Vec<u8> {
        let mut bytes = reply.as_bytes().to_vec();
        if let Some(garbage) = self.process.options.faults.at_reply(reply.seq) {
            garbage.spoil(&mut bytes);
        }
        bytes
    }

    /// Waits for the workers to return: they may use mappings until then. False when one does not.
    fn workers_end(&self) -> bool {
        let end = Instant::now() + WORKER_TIMEOUT;
        while Arc::strong_count(&self.alive) > 1 {
            if Instant::now() > end {
                log::error!("a DSP thread is stuck: its process keeps its mappings");
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }
}

/// Runs a part of the main thread, with a death or a panic in it as the reason of the end.
fn caught(body: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let result = catch_unwind(AssertUnwindSafe(body));
    result.unwrap_or_else(|payload| match payload.downcast::<Death>() {
        Ok(death) => Err(death.0),
        Err(payload) => Err(format!("a kernel panicked: {}", panic_text(&*payload))),
    })
}

impl Scratch {
    fn new(bytes: usize) -> Self {
        Self {
            memory: vec![Line([0x5a; 128]); bytes / 128].into_boxed_slice(),
        }
    }

    fn span(&mut self) -> Span<'static, u8> {
        let len = self.memory.len() * 128;
        // SAFETY: the box keeps its address and outlives the session, which `Main::run` ends before it returns; u8 needs
        // no alignment.
        unsafe { Span::new(self.memory.as_mut_ptr().cast(), len) }
    }
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
