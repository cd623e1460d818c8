//! The cheap part of the case list, and messages that no host would send, on the emulated Hexagon.

use std::sync::Arc;
use std::time::Instant;

use hexloom::MatrixUnit;
use hexloom::abi::op::Shape;
use hexloom::abi::{BatchReply, BatchRequest, DType, OpDesc, Opcode, Status};
use hexloom::transport::{BlockRef, SharedMemory};
use hexloom_conformance::fill::Random;
use hexloom_conformance::raw::{Raw, RawBatch, tensor};
use hexloom_conformance::{cases, runners};
use hexloom_emu::{EmuOptions, EmuTransport};
use zerocopy::IntoBytes;

/// Largest [`hexloom_conformance::Case::work`] of the cases that run here.
const WORK: u64 = 4000;
/// The same with the matrix unit, which serves no small ones.
const UNIT_WORK: u64 = 50_000;

fn options() -> Option<EmuOptions> {
    EmuOptions::find().map_err(|error| eprintln!("SKIPPED: {error}")).ok()
}

#[test]
fn cheap_cases_equal_the_simulator() {
    let Some(options) = options() else { return };
    let suite = runners::emu(&options, MatrixUnit::Auto).expect("simulator and emulator open");
    let cases = cases::cheap(WORK);
    let start = Instant::now();
    suite.check(&cases, 500);
    println!("{} of {} cases, {:?}", cases.len(), cases::all().len(), start.elapsed());
}

/// Matmul and attention with the matrix unit's model in the image.
#[test]
fn cheap_cases_on_the_matrix_unit_equal_the_simulator() {
    let Some(options) = options() else { return };
    let suite = runners::emu(&options, MatrixUnit::Model).expect("simulator and emulator open");
    let mut cases = cases::cheap(UNIT_WORK);
    cases.retain(|case| {
        let opcodes = [
            Opcode::MulMat,
            Opcode::MulMatAdd,
            Opcode::MulMatNx,
            Opcode::FlashAttnExt,
        ];
        opcodes.contains(&case.opcode)
    });
    let start = Instant::now();
    suite.check(&cases, 40);
    println!("{} cases, {:?}", cases.len(), start.elapsed());
}

/// Two guests that wait for each other over memory that both have.
#[test]
fn sessions_that_wait_for_each_other() {
    let Some(options) = options() else { return };
    let transport: Arc<dyn hexloom::Transport> = Arc::new(EmuTransport::new(options));
    hexloom_conformance::peers::run(&transport);
}

/// A connection with a buffer of three tensors and the batch that adds the first two.
struct Bench {
    raw: Raw,
    memory: SharedMemory,
    good: RawBatch,
}

impl Bench {
    fn new(options: EmuOptions) -> Self {
        let raw = Raw::open(Arc::new(EmuTransport::new(options)), 2).expect("the emulator opens");
        let (memory, desc) = raw.alloc(8192, 1).expect("memory");
        let shape = Shape::dense(DType::F32, [8, 1, 1, 1]).expect("small");
        let mut op = OpDesc::new(Opcode::Add.into());
        op.srcs[..2].copy_from_slice(&[0, 1]);
        op.dsts[0] = 2;
        let good = RawBatch {
            buffers: vec![desc],
            tensors: [0, 128, 256].map(|offset| tensor(shape, 0, offset, false)).to_vec(),
            ops: vec![op],
        };
        Self { raw, memory, good }
    }

    /// Sends any message with any block and gives its reply, which must be well-formed.
    fn message(&mut self, bytes: &[u8], block: BlockRef) -> (BatchReply, Status) {
        let reply = self.raw.exchange(bytes, block).expect("one reply");
        let status = reply.check().expect("a well-formed reply");
        (reply, status)
    }

    /// Checks that a spoiled good batch is refused with `wanted` and that the good one works afterwards.
    fn refused(&mut self, wanted: Status, spoil: impl FnOnce(&mut RawBatch, &mut BatchRequest, &mut BlockRef)) {
        let mut batch = self.good.clone();
        let mut request = self.raw.put(&batch);
        let mut block = self.raw.block(request.block_bytes.into());
        spoil(&mut batch, &mut request, &mut block);
        let spoiled = self.raw.put(&batch);
        request.seq = spoiled.seq;
        let (reply, status) = self.message(request.as_bytes(), block);
        assert_eq!((reply.seq, status), (request.seq, wanted), "{reply:?}");
        self.check_good();
    }

    fn check_good(&mut self) {
        let seed = self.raw.next_seq() as f32;
        self.memory.write(0, [seed; 8].as_bytes());
        self.memory.write(128, [0.5f32; 8].as_bytes());
        let reply = self.raw.run(&self.good.clone()).expect("one reply");
        // The sequence number shows that it is this batch's reply and not one too many of another's.
        assert_eq!((reply.seq, reply.check()), (seed as u64 + 1, Ok(Status::Ok)));
        let mut sum = [0f32; 8];
        self.memory.read(256, sum.as_mut_bytes());
        assert_eq!(sum, [seed + 0.5; 8]);
    }
}

#[test]
fn garbage_of_every_length_gets_one_reply() {
    let Some(options) = options() else { return };
    let mut bench = Bench::new(options);
    let mut random = Random::new(1);
    let good = bench.raw.put(&bench.good.clone());
    for len in 0..=4096 {
        let mut bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        // Every other message begins like a good one.
        if len % 2 == 1 {
            let head = len.min(8);
            bytes[..head].copy_from_slice(&good.as_bytes()[..head]);
        }
        let block = bench.raw.block(random.bits() % 8192);
        let (reply, status) = bench.message(&bytes, block);
        assert_ne!(status, Status::Ok, "{len} bytes: {reply:?}");
        if len % 256 == 0 {
            bench.check_good();
        }
    }
    bench.check_good();
    assert!(!bench.raw.has_stray_reply());
}

#[test]
fn hostile_batches_are_refused_and_the_next_one_works() {
    let Some(options) = options() else { return };
    let mut bench = Bench::new(options);
    bench.refused(Status::TooMany, |_, request, _| request.n_ops = u32::MAX);
    bench.refused(Status::TooMany, |_, request, _| request.n_tensors = u32::MAX);
    bench.refused(Status::TooMany, |_, request, _| request.n_buffers = 17);
    bench.refused(Status::BadBlock, |_, _, block| block.bytes = u64::MAX);
    bench.refused(Status::BadBlock, |_, _, block| block.offset = u64::MAX - 127);
    bench.refused(Status::Invalid, |batch, _, _| batch.tensors[1].buffer_idx = 9);
    bench.refused(Status::MapFailed, |batch, _, _| batch.buffers[0].fd = 999);
    bench.refused(Status::MapFailed, |batch, _, _| batch.buffers[0].bytes = 1 << 30);
    bench.refused(Status::WindowFull, |batch, _, _| batch.buffers[0].bytes = 1 << 40);
    assert!(!bench.raw.has_stray_reply());
}
