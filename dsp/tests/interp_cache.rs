//! Cache maintenance of the interpreter, on a machine whose caches are not coherent: the DSP works on a copy of shared
//! memory, which changes hands line by line and only when the interpreter says so.

use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

use hexloom_abi::layout::{BlockCounts, BlockLayout};
use hexloom_abi::op::Shape;
use hexloom_abi::{BatchReply, BatchRequest, BufferDesc, DType, OpDesc, Opcode, StartRequest, Status, TensorDesc};
use hexloom_dsp::interp::{BlockRef, Packet};
use hexloom_dsp::platform::Mapped;
use hexloom_dsp::pool::Pool;
use hexloom_dsp::{KernelSet, Platform, Session, SessionLimits, Span};
use zerocopy::IntoBytes;

const LINE: usize = 128;
const PINNED_FD: u32 = 7;
const DATA_FD: u32 = 8;
const DATA_BYTES: usize = 8192;
const PINNED_BYTES: usize = 8192;

#[repr(C, align(128))]
#[derive(Clone, Copy, PartialEq)]
struct Line([u8; LINE]);

/// Shared memory as the host sees it, and the DSP's copy.
struct Memory {
    host: Vec<Line>,
    /// The DSP's lines as they were when they last changed hands: what differs from them is dirty.
    clean: Vec<Line>,
    dsp: *mut Line,
    n_lines: usize,
}

// SAFETY: the pointer is followed under the lock of `Incoherent` or by the DSP session's single thread.
unsafe impl Send for Memory {}

/// A machine with one memory: pinned buffer first, then data.
struct Incoherent(Mutex<Memory>);

impl Memory {
    fn new() -> Self {
        let n_lines = (PINNED_BYTES + DATA_BYTES) / LINE;
        let lines = vec![Line([0; LINE]); n_lines];
        let dsp = Box::leak(lines.clone().into_boxed_slice()).as_mut_ptr();
        Self {
            host: lines.clone(),
            clean: lines,
            dsp,
            n_lines,
        }
    }

    fn dsp_line(&self, idx: usize) -> *mut Line {
        assert!(idx < self.n_lines);
        self.dsp.wrapping_add(idx)
    }

    fn lines(&self, address: u64, bytes: u64) -> std::ops::Range<usize> {
        let start = address as usize - self.dsp as usize;
        start / LINE..(start + bytes as usize).div_ceil(LINE)
    }
}

impl Platform for Incoherent {
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        assert_eq!(buffer.fd, DATA_FD);
        let memory = self.0.lock().unwrap();
        Ok(Mapped::window(
            memory.dsp as u64 + PINNED_BYTES as u64,
            DATA_BYTES as u64,
        ))
    }
    fn unmap(&self, _fd: u32, _mapped: Mapped) {}
    fn clean(&self, address: u64, bytes: u64) {
        let mut memory = self.0.lock().unwrap();
        for idx in memory.lines(address, bytes) {
            // SAFETY: `dsp_line` has found the line inside the leaked copy; the session's thread is the caller.
            let line = unsafe { *memory.dsp_line(idx) };
            if line != memory.clean[idx] {
                memory.host[idx] = line;
                memory.clean[idx] = line;
            }
        }
    }
    fn invalidate(&self, address: u64, bytes: u64) {
        let mut memory = self.0.lock().unwrap();
        for idx in memory.lines(address, bytes) {
            let line = memory.host[idx];
            memory.clean[idx] = line;
            // SAFETY: as in `clean`.
            unsafe { *memory.dsp_line(idx) = line };
        }
    }
    fn cycles(&self) -> u64 {
        0
    }
    fn nanos(&self) -> u64 {
        0
    }
    fn wait(&self, _word: &AtomicU32, _expected: u32, _timeout_us: u32) {}
    fn wake(&self, _word: &AtomicU32) {}
}

/// A tensor's offset and elements.
type Place = (u64, u32);
/// An op that stores `a * s + b`: a, where to, s, b.
type Step = (Place, Place, f32, f32);

/// A session on the machine, with the host's side of things.
struct Host<'a> {
    pool: &'a Pool<Incoherent>,
    session: Session<'a, Incoherent>,
    seq: u64,
}

impl Host<'_> {
    fn write(&self, offset: usize, values: &[f32]) {
        self.write_bytes(PINNED_BYTES + offset, values.as_bytes());
    }

    fn write_bytes(&self, at: usize, bytes: &[u8]) {
        let mut memory = self.pool.platform().0.lock().unwrap();
        for (at, byte) in (at..).zip(bytes) {
            memory.host[at / LINE].0[at % LINE] = *byte;
        }
    }

    fn read(&self, offset: usize, n: usize) -> Vec<f32> {
        let memory = self.pool.platform().0.lock().unwrap();
        let byte = |at: usize| memory.host[at / LINE].0[at % LINE];
        let word = |idx: usize| [0, 1, 2, 3].map(|byte_idx| byte(PINNED_BYTES + offset + 4 * idx + byte_idx));
        (0..n).map(|idx| f32::from_le_bytes(word(idx))).collect()
    }

    /// Runs the steps as one batch.
    fn run(&mut self, ops: &[Step]) -> BatchReply {
        let tensor = |(offset, n): Place| {
            let shape = Shape::dense(DType::F32, [n, 1, 1, 1]).unwrap();
            TensorDesc {
                offset,
                bytes: u64::from(n) * 4,
                ne: shape.ne,
                nb: shape.nb,
                ..TensorDesc::default()
            }
        };
        let tensors: Vec<TensorDesc> = ops.iter().flat_map(|op| [tensor(op.0), tensor(op.1)]).collect();
        let scale = |(idx, op): (u16, &Step)| {
            let mut desc = OpDesc::new(Opcode::Scale.into());
            (desc.srcs[0], desc.dsts[0]) = (2 * idx, 2 * idx + 1);
            (desc.params[0], desc.params[1]) = (op.2.to_bits(), op.3.to_bits());
            desc
        };
        let ops: Vec<OpDesc> = (0..).zip(ops).map(scale).collect();
        let buffer = BufferDesc {
            bytes: DATA_BYTES as u64,
            generation: 1,
            fd: DATA_FD,
            ..BufferDesc::default()
        };
        let (n_tensors, n_ops) = (tensors.len() as u32, ops.len() as u32);
        let counts = BlockCounts {
            n_buffers: 1,
            n_tensors,
            n_ops,
            ..BlockCounts::default()
        };
        let layout = BlockLayout::new(&counts).unwrap();
        self.write_bytes(0, buffer.as_bytes());
        self.write_bytes(layout.tensors_offset as usize, tensors.as_bytes());
        self.write_bytes(layout.ops_offset as usize, ops.as_bytes());
        self.seq += 1;
        let mut request = BatchRequest::new(self.seq, 1, n_tensors, n_ops);
        request.block_bytes = layout.bytes as u32;
        let address = self.pool.platform().0.lock().unwrap().dsp as u64;
        let block = BlockRef {
            fd: PINNED_FD,
            offset: 0,
            bytes: layout.bytes,
            address,
        };
        self.session.serve(&Packet {
            message: request.as_bytes(),
            block: Some(block),
        })
    }

    fn check(&mut self, ops: &[Step]) {
        assert_eq!(self.run(ops).check(), Ok(Status::Ok));
    }
}

fn with_host(body: impl FnOnce(&mut Host<'_>)) {
    let pool = Pool::new(Incoherent(Mutex::new(Memory::new())), 1);
    let start = StartRequest {
        pinned_fd: PINNED_FD,
        pinned_bytes: PINNED_BYTES as u64,
        block_bytes_max: PINNED_BYTES as u32,
        ..StartRequest::new(0)
    };
    let mut descriptors = vec![0u64; PINNED_BYTES / 8];
    let mut scratch = vec![Line([0; LINE]); 64];
    // SAFETY: the scratch memory outlives the session, which `body` uses and this function ends; bytes need no alignment.
    let scratch = unsafe { Span::new(scratch.as_mut_ptr().cast::<u8>(), 64 * LINE) };
    let limits = SessionLimits::new(&start, KernelSet::Plain).unwrap();
    let session = Session::new(&pool, limits, descriptors.as_mut_bytes(), scratch);
    body(&mut Host {
        pool: &pool,
        session,
        seq: 0,
    });
}

#[test]
fn inputs_are_seen_and_outputs_come_back() {
    with_host(|host| {
        for value in [1.0, 2.0, 3.0] {
            host.write(0, &[value; 40]);
            host.check(&[((0, 40), (1024, 40), 2.0, 1.0)]);
            assert_eq!(host.read(1024, 40), [2.0 * value + 1.0; 40]);
        }
    });
}

#[test]
fn results_of_the_same_batch_are_not_dropped() {
    with_host(|host| {
        host.write(0, &[3.0; 64]);
        host.check(&[
            ((0, 64), (512, 64), 2.0, 0.0),
            ((512, 64), (1024, 64), 1.0, 1.0),
            ((512, 64), (512, 64), 10.0, 0.0),
            ((512, 64), (2048, 64), 1.0, 0.0),
        ]);
        assert_eq!(host.read(1024, 64), [7.0; 64]);
        assert_eq!(host.read(512, 64), [60.0; 64]);
        assert_eq!(host.read(2048, 64), [60.0; 64]);
    });
}

/// A range of which this batch wrote a part and the host the rest.
#[test]
fn a_range_of_two_writers() {
    with_host(|host| {
        for value in [1.0, 5.0] {
            host.write(0, &[value; 96]);
            host.write(512, &[value; 32]);
            host.check(&[((512, 32), (128, 32), 10.0, 0.0), ((0, 96), (1024, 96), 1.0, 0.0)]);
            let wanted = [[value; 32], [10.0 * value; 32], [value; 32]].concat();
            assert_eq!(host.read(1024, 96), wanted);
        }
    });
}

/// The host writes one half of a line, the DSP, which had the line before, the other: neither undoes the other.
#[test]
fn a_line_of_two_writers() {
    with_host(|host| {
        for value in [1.0, 2.0, 3.0] {
            host.write(0, &[value; 16]);
            host.write(512, &[value; 16]);
            host.check(&[((512, 16), (64, 16), 10.0, 0.0)]);
            assert_eq!(host.read(0, 32), [[value; 16], [10.0 * value; 16]].concat());
        }
    });
}

/// What was written before an op that fails is there, too.
#[test]
fn a_failed_batch_gives_back_what_it_did() {
    with_host(|host| {
        host.write(0, &[1.0; 32]);
        let reply = host.run(&[((0, 32), (512, 32), 4.0, 0.0), ((0, 32), (64, 32), 1.0, 0.0)]);
        assert_eq!((reply.check(), reply.failed_op), (Ok(Status::Invalid), 1));
        assert_eq!(host.read(512, 32), [4.0; 32]);
    });
}
