//! The simulated DSP process: a main thread that serves requests, and the pool's workers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hexloom::transport::TransportError;
use hexloom_abi::{BatchReply, StartRequest};
use hexloom_dsp::interp::{BlockRef, Packet};
use hexloom_dsp::pool::{Fork, Pool};
use hexloom_dsp::{Session, SessionLimits, Span};
use zerocopy::IntoBytes;

use crate::SimOptions;
use crate::connection::{Channel, Event};
use crate::memory::DspMapping;
use crate::platform::{Death, KnownMemory, ScratchMemory, SimPlatform, lock};

/// Threads of one started session.
pub(crate) struct Dsp {
    pool: Arc<Pool<SimPlatform>>,
    threads: Vec<JoinHandle<()>>,
}

/// Everything the main thread needs.
struct Main {
    pool: Arc<Pool<SimPlatform>>,
    channel: Arc<Channel>,
    limits: SessionLimits,
    pinned: DspMapping,
    options: SimOptions,
    scratch: Scratch,
    descriptor_bytes: usize,
}

/// Scratch memory on a page boundary.
struct Scratch {
    memory: Box<[Line]>,
}

#[repr(C, align(128))]
#[derive(Clone, Copy)]
struct Line([u8; 128]);

impl Dsp {
    pub(crate) fn start(
        options: &SimOptions,
        start: &StartRequest,
        known: KnownMemory,
        channel: Arc<Channel>,
    ) -> Result<Self, TransportError> {
        let refused = |reason: &str| TransportError::Call {
            call: "start",
            reason: reason.to_owned(),
            code: 0,
        };
        let (fd, bytes) = lock(&known)
            .get(&start.pinned_fd)
            .cloned()
            .filter(|(_, bytes)| *bytes >= start.pinned_bytes)
            .ok_or_else(|| refused("the pinned buffer is not mapped"))?;
        let pinned = DspMapping::new(&fd, bytes)?;
        let hw = options.hw_info();
        let n_threads = match start.n_threads {
            0 => hw.n_threads,
            n => n,
        };
        let scratch_bytes = match start.scratch_bytes_max {
            0 => hw.scratch_bytes,
            max => max.min(hw.scratch_bytes),
        };
        let mut scratch = Scratch::new(scratch_bytes as usize);
        let memory = ScratchMemory {
            address: scratch.span().as_ptr() as usize,
            bytes: scratch.span().len(),
        };
        let platform = SimPlatform::new(known, options, memory)?;
        let pool = Arc::new(Pool::new(platform, n_threads));
        let main = Main {
            pool: Arc::clone(&pool),
            channel,
            limits: SessionLimits::new(start, options.kernels_in_use()),
            pinned,
            options: options.clone(),
            scratch,
            descriptor_bytes: start.block_bytes_max as usize,
        };
        let mut dsp = Self {
            pool: Arc::clone(&pool),
            threads: Vec::new(),
        };
        for idx in 1..n_threads {
            let pool = Arc::clone(&pool);
            dsp.spawn(format!("dsp-worker-{idx}"), move || pool.work(idx))?;
        }
        dsp.spawn("dsp-main".to_owned(), move || main.run())?;
        Ok(dsp)
    }

    /// Ends stalls, so that the main thread can see its stop event.
    pub(crate) fn request_stop(&self) {
        self.pool.platform().stopping.store(true, Ordering::Release);
    }

    /// Waits for all threads.
    pub(crate) fn join(self, timeout: Duration) -> Result<(), TransportError> {
        let end = Instant::now() + timeout;
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

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), TransportError> {
        let thread = std::thread::Builder::new().name(name).spawn(body);
        let thread = thread.map_err(|error| TransportError::Call {
            call: "thread",
            reason: error.to_string(),
            code: error.raw_os_error().unwrap_or(0),
        });
        match thread {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                self.pool.stop();
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Main {
    fn run(mut self) {
        let pool = Arc::clone(&self.pool);
        let mut descriptors = vec![0u64; self.descriptor_bytes.div_ceil(8)];
        let scratch = self.scratch.span();
        let mut session = Session::new(&*pool, self.limits, descriptors.as_mut_bytes(), scratch);
        loop {
            match self.channel.next_event() {
                Event::Stop => break,
                Event::Forget(fd, done) => {
                    session.forget(fd);
                    // The host may have given up waiting.
                    let _ = done.send(());
                }
                Event::Packet(message, block) => {
                    if let Err(why) = self.serve(&mut session, &message, block) {
                        self.channel.die(why);
                        break;
                    }
                }
            }
        }
        pool.platform().stop_dma();
        session.close();
        pool.stop();
    }

    /// Serves one request; fails with the reason when the DSP process is to end.
    fn serve(
        &self,
        session: &mut Session<'_, SimPlatform>,
        message: &[u8],
        block: hexloom::transport::BlockRef,
    ) -> Result<(), String> {
        let seq = message.get(8..16).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
        self.pool.platform().begin_batch(seq.map_or(0, u64::from_le_bytes));
        let end = block.offset.saturating_add(block.bytes);
        let inside = block.fd == self.limits.pinned_fd && end <= self.pinned.bytes();
        let packet = Packet {
            message,
            block: inside.then(|| BlockRef {
                fd: block.fd,
                offset: block.offset,
                bytes: block.bytes,
                address: self.pinned.address() + block.offset,
            }),
        };
        let served = catch_unwind(AssertUnwindSafe(|| session.serve(&packet)));
        let reply = served.map_err(|payload| match payload.downcast::<Death>() {
            Ok(death) => death.0,
            Err(payload) => format!("a kernel panicked: {}", panic_text(&*payload)),
        })?;
        if self.pool.is_poisoned() {
            self.channel.reply(reply.as_bytes().to_vec());
            return Err("a worker thread panicked, or one or a transfer was stuck".to_owned());
        }
        self.channel.reply(self.spoiled(&reply));
        Ok(())
    }

    fn spoiled(&self, reply: &BatchReply) -> Vec<u8> {
        let mut bytes = reply.as_bytes().to_vec();
        if let Some(garbage) = self.options.faults.at_reply(reply.seq) {
            garbage.spoil(&mut bytes);
        }
        bytes
    }
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
