//! Messages that no host of ours would send: each gets exactly one reply with a status, and the next good batch works.

use std::sync::Arc;

use hexloom::DType;
use hexloom::abi::message::NO_OP;
use hexloom::abi::op::Shape;
use hexloom::abi::{BatchReply, BatchRequest, BufferDesc, OpDesc, Opcode, Status};
use hexloom::transport::{BlockRef, SharedMemory};
use hexloom_conformance::fill::Random;
use hexloom_conformance::raw::{Raw, RawBatch, tensor};
use hexloom_sim::{Harsh, SimOptions, SimTransport};
use zerocopy::IntoBytes;

const NE: [u32; 4] = [8, 1, 1, 1];

/// A connection with a buffer of three tensors and the batch that adds the first two.
struct Bench {
    raw: Raw,
    memory: SharedMemory,
    good: RawBatch,
}

impl Bench {
    fn new() -> Self {
        Self::with(SimOptions::default())
    }

    fn with(options: SimOptions) -> Self {
        let transport = SimTransport::new(SimOptions {
            scratch_bytes: 256 << 10,
            junk_scratch: true,
            harsh: Harsh {
                spurious_maps: 0,
                ..Harsh::all(7)
            },
            ..options
        });
        let raw = Raw::open(Arc::new(transport), 2).expect("the simulator opens");
        let (memory, desc) = raw.alloc(8192, 1).expect("memory");
        let good = RawBatch {
            buffers: vec![desc],
            tensors: [0, 128, 256].map(|offset| tensor(shape(NE), 0, offset, false)).to_vec(),
            ops: vec![op(Opcode::Add, &[0, 1], &[2])],
        };
        Self { raw, memory, good }
    }

    /// Sends a spoiled copy of the good batch, then checks that the good one works.
    fn spoiled(&mut self, spoil: impl FnOnce(&mut RawBatch)) -> BatchReply {
        let mut batch = self.good.clone();
        spoil(&mut batch);
        let seq = self.raw.next_seq() + 1;
        let reply = self.raw.run(&batch).expect("one reply");
        assert_eq!(reply.seq, seq);
        assert_eq!(reply.check().map(|_| ()), Ok(()), "a reply must be well-formed");
        self.check_good();
        reply
    }

    /// Sends any message with any block, then checks that the good batch works.
    fn message(&mut self, bytes: &[u8], block: BlockRef) -> BatchReply {
        let reply = self.raw.exchange(bytes, block).expect("one reply");
        self.check_good();
        reply
    }

    fn check_good(&mut self) {
        let seed = self.raw.next_seq() as f32;
        self.memory.write(0, [seed; 8].as_bytes());
        self.memory.write(128, [0.5f32; 8].as_bytes());
        let reply = self.raw.run(&self.good).expect("one reply");
        // The sequence number shows that it is this batch's reply and not one too many of another's.
        assert_eq!(reply.seq, seed as u64 + 1);
        assert_eq!(reply.check(), Ok(Status::Ok));
        let mut sum = [0f32; 8];
        self.memory.read(256, sum.as_mut_bytes());
        assert_eq!(sum, [seed + 0.5; 8]);
    }
}

fn shape(ne: [u32; 4]) -> Shape {
    Shape::dense(DType::F32, ne).expect("small")
}

fn op(opcode: Opcode, srcs: &[u16], dsts: &[u16]) -> OpDesc {
    let mut op = OpDesc::new(opcode.into());
    op.srcs[..srcs.len()].copy_from_slice(srcs);
    op.dsts[..dsts.len()].copy_from_slice(dsts);
    op
}

#[test]
fn garbage_of_every_length() {
    let mut bench = Bench::new();
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
        let reply = bench.raw.exchange(&bytes, block).expect("one reply");
        assert!(
            reply.check().is_ok_and(|status| status != Status::Ok),
            "{len} bytes: {reply:?}"
        );
        let seq = bytes
            .get(8..16)
            .map_or(0, |seq| u64::from_le_bytes(seq.try_into().expect("eight bytes")));
        assert_eq!(reply.seq, seq, "{len} bytes");
        if len % 64 == 0 {
            bench.check_good();
        }
    }
    bench.check_good();
    assert!(!bench.raw.has_stray_reply());
}

#[test]
fn messages_and_blocks_that_contradict_each_other() {
    let mut bench = Bench::new();
    let mut check = |wanted: Status, spoil: &dyn Fn(&mut BatchRequest, &mut BlockRef)| {
        let mut request = bench.raw.put(&bench.good.clone());
        let mut block = bench.raw.block(request.block_bytes.into());
        spoil(&mut request, &mut block);
        let reply = bench.message(request.as_bytes(), block);
        assert_eq!(reply.check(), Ok(wanted), "{reply:?}");
        assert_eq!((reply.n_ops_done, reply.failed_op), (0, NO_OP));
    };
    check(Status::BadMagic, &|request, _| request.magic = 0);
    check(Status::BadVersion, &|request, _| request.version += 1);
    check(Status::BadFlags, &|request, _| request.flags = 0x40);
    check(Status::BadFlags, &|request, _| request.reserved[0] = 1);
    check(Status::TooMany, &|request, _| request.n_ops = u32::MAX);
    check(Status::TooMany, &|request, _| request.n_tensors = u32::MAX);
    check(Status::TooMany, &|request, _| request.n_buffers = 17);
    check(Status::Truncated, &|request, _| request.n_ops = 4096);
    check(Status::Truncated, &|request, block| {
        request.block_bytes = 128;
        block.bytes = 128;
    });
    check(Status::BadBlock, &|_, block| block.fd = 0);
    check(Status::BadBlock, &|_, block| block.offset = 128);
    check(Status::BadBlock, &|_, block| block.bytes += 128);
    check(Status::BadBlock, &|request, block| {
        request.block_offset = 64;
        block.offset = 64;
    });
    check(Status::BadBlock, &|request, block| {
        request.block_offset = u64::MAX - 127;
        block.offset = u64::MAX - 127;
    });
    check(Status::BadBlock, &|request, block| {
        request.block_bytes = u32::MAX;
        block.bytes = u32::MAX.into();
    });
}

#[test]
fn descriptors_that_contradict_each_other() {
    let mut bench = Bench::new();
    let mut check = |wanted: (Status, u32, u32), spoil: fn(&mut RawBatch)| {
        let reply = bench.spoiled(spoil);
        assert_eq!(
            (reply.check(), reply.failed_op, reply.detail),
            (Ok(wanted.0), wanted.1, wanted.2)
        );
    };
    check((Status::Invalid, NO_OP, 1), |batch| {
        batch.buffers.push(batch.buffers[0])
    });
    check((Status::BadFlags, NO_OP, 0), |batch| batch.buffers[0].flags = 0x80);
    check((Status::Invalid, NO_OP, 2), |batch| batch.tensors[2].buffer_idx = 1);
    check((Status::Invalid, NO_OP, 1), |batch| batch.tensors[1].offset = 1 << 40);
    check((Status::Invalid, NO_OP, 1), |batch| batch.tensors[1].nb[1] = 2);
    check((Status::Invalid, NO_OP, 0), |batch| batch.tensors[0].ne = [u32::MAX; 4]);
    check((Status::BadDType, NO_OP, 0), |batch| batch.tensors[0].dtype.0 = 99);
    check((Status::BadOpcode, 0, 4), |batch| batch.ops[0].opcode.0 = 4);
    check((Status::BadFlags, 0, 0), |batch| batch.ops[0].flags = 1);
    check((Status::Invalid, 0, 1), |batch| batch.ops[0].srcs[1] = 3);
    check((Status::Invalid, 0, 10), |batch| batch.ops[0].dsts[0] = 0x7fff);
    // What only the interpreter can see: the op is named, and those before it are done.
    check((Status::Unsupported, 1, 0x200), |batch| {
        batch.ops.push(op(Opcode::MulMatNx, &[0, 1, 0], &[2]));
    });
    check((Status::Unsupported, 0, 0x302), |batch| {
        batch.ops[0] = op(Opcode::Fence, &[], &[])
    });
    check((Status::Unsupported, 0, 0x101), |batch| batch.ops[0].srcs[1] = 0xffff);
    // Operands that the op does not know: kernels count theirs.
    check((Status::Unsupported, 0, 0x102), |batch| batch.ops[0].srcs[2] = 0);
    check((Status::Unsupported, 0, 0x109), |batch| batch.ops[0].srcs[9] = 0);
    check((Status::Unsupported, 0, 0x201), |batch| batch.ops[0].dsts[1] = 0);
    // Overlaps other than exactly in place.
    check((Status::Invalid, 0, 0x100), |batch| batch.tensors[2].offset = 16);
    check((Status::Invalid, 0, 0x100), |batch| {
        batch.ops[0] = op(Opcode::Cpy, &[0], &[0])
    });
}

#[test]
fn ops_before_the_failing_one_are_done() {
    let mut bench = Bench::new();
    let reply = bench.spoiled(|batch| {
        batch.ops.push(batch.ops[0]);
        batch.ops.push(op(Opcode::Silu, &[0], &[]));
        batch.ops.push(batch.ops[0]);
    });
    assert_eq!(
        (reply.check(), reply.failed_op, reply.n_ops_done),
        (Ok(Status::Unsupported), 2, 2)
    );
}

#[test]
fn buffers_that_cannot_be_mapped() {
    let mut bench = Bench::with(SimOptions {
        // The first without a limit of one mapping.
        arch: 75,
        window_bytes: 8 << 20,
        ..SimOptions::default()
    });
    let unknown = BufferDesc {
        fd: 900,
        generation: 77,
        bytes: 4096,
        ..BufferDesc::default()
    };
    let check = |bench: &mut Bench, status, buffer: BufferDesc| {
        let reply = bench.spoiled(|batch| batch.buffers.push(buffer));
        assert_eq!((reply.check(), reply.failed_op, reply.detail), (Ok(status), NO_OP, 1));
    };
    check(&mut bench, Status::MapFailed, unknown);
    // Larger than the descriptor is; larger than the simulator's window; larger than what the session may map.
    let (kept, desc) = bench.raw.alloc(4096, 78).expect("memory");
    check(&mut bench, Status::MapFailed, BufferDesc { bytes: 1 << 16, ..desc });
    let (large, desc) = bench.raw.alloc(16 << 20, 79).expect("memory");
    check(&mut bench, Status::WindowFull, desc);
    check(&mut bench, Status::WindowFull, BufferDesc { bytes: 1 << 40, ..desc });
    // More of the pinned buffer than there is.
    let pinned = bench.raw.pinned();
    let pinned = BufferDesc {
        fd: pinned.fd(),
        bytes: pinned.bytes() + 1,
        ..BufferDesc::default()
    };
    check(&mut bench, Status::Invalid, pinned);
    drop((kept, large));
}

/// The same fd with a new generation is mapped anew although nobody told the DSP to forget the old mapping.
#[test]
fn a_recycled_fd_with_a_new_generation_is_mapped_again() {
    let mut bench = Bench::with(SimOptions {
        lax_unmaps: true,
        ..SimOptions::default()
    });
    bench.check_good();
    let mut recycled = 0;
    for generation in 2..40 {
        let old = bench.memory.fd();
        // Closing the descriptor frees its number, which the next allocation usually gets.
        let (placeholder, _) = bench.raw.alloc(4096, 1000 + generation).expect("memory");
        bench.raw.unmap(&bench.memory).expect("a lax driver takes it");
        drop(std::mem::replace(&mut bench.memory, placeholder));
        let (memory, desc) = bench.raw.alloc(8192, generation).expect("memory");
        recycled += usize::from(memory.fd() == old);
        bench.raw.unmap(&bench.memory).expect("it is mapped");
        bench.memory = memory;
        bench.good.buffers = vec![desc];
        bench.check_good();
    }
    assert!(recycled > 0, "no fd came back: nothing was tested");
}

/// An op that needs more scratch memory than there is ends with the status that the shared table gives.
#[test]
fn too_little_scratch_memory_is_told() {
    let mut bench = Bench::new();
    let k = 70_000;
    let (memory, desc) = bench.raw.alloc(4 << 20, 5).expect("memory");
    let reply = bench.spoiled(|batch| {
        batch.buffers.push(desc);
        batch.tensors = [(k, 2, 0), (k, 1, 1 << 20), (2, 1, 2 << 20)]
            .map(|(n0, n1, offset)| tensor(shape([n0, n1, 1, 1]), 1, offset, false))
            .to_vec();
        batch.ops = vec![op(Opcode::MulMat, &[0, 1], &[2])];
    });
    assert_eq!((reply.check(), reply.failed_op), (Ok(Status::ScratchTooSmall), 0));
    drop(memory);
}

/// A batch of one op on operands of these shapes, each on a line of its own.
fn lone(opcode: Opcode, params: [u32; 16], srcs: &[Shape], dsts: &[Shape]) -> impl FnOnce(&mut RawBatch) {
    let shapes: Vec<Shape> = srcs.iter().chain(dsts).copied().collect();
    let (n_srcs, n) = (srcs.len() as u16, shapes.len() as u16);
    move |batch| {
        let places = shapes.iter().zip(0..);
        batch.tensors = places
            .map(|(&shape, idx)| tensor(shape, 0, idx * 1024, false))
            .collect();
        let srcs: Vec<u16> = (0..n_srcs).collect();
        let dsts: Vec<u16> = (n_srcs..n).collect();
        batch.ops[0] = OpDesc {
            params,
            ..op(opcode, &srcs, &dsts)
        };
    }
}

/// Dimensions of nothing, operands one too many, elements on each other: what kernels would count wrongly.
#[test]
fn operands_that_no_kernel_expects() {
    let mut bench = Bench::new();
    let of = |dtype, ne| Shape::dense(dtype, ne).expect("small");
    let (f32s, i32s) = (|ne| of(DType::F32, ne), |ne| of(DType::I32, ne));
    let tiles = |dtype, ne| Shape {
        tiled: true,
        nb: [0; 4],
        ..of(dtype, ne)
    };
    let mut check = |wanted: Status, opcode, params, srcs: &[Shape], dsts: &[Shape]| {
        let reply = bench.spoiled(lone(opcode, params, srcs, dsts));
        assert_eq!(
            reply.check(),
            Ok(wanted),
            "{opcode:?} of {srcs:?} into {dsts:?}: {reply:?}"
        );
    };
    let none = [0; 16];
    let product = |more: &[Shape]| [&[f32s([8, 4, 1, 1]), f32s([8, 1, 1, 1])], more].concat();
    let dsts = [f32s([4, 1, 1, 1]), f32s([1, 1, 1, 1])];
    let one_more = product(&[f32s([64, 1, 1, 1])]);
    check(Status::Unsupported, Opcode::MulMat, none, &one_more, &dsts);
    check(Status::Unsupported, Opcode::MulMat, none, &one_more, &dsts[..1]);
    // Nothing wide, with weights of no rows.
    let empty = f32s([0, 5, 1, 1]);
    let weight = f32s([0, 0, 1, 1]);
    check(
        Status::Unsupported,
        Opcode::RmsNormMul,
        none,
        &[empty, weight],
        &[empty],
    );
    check(Status::Unsupported, Opcode::Add, none, &[empty, weight], &[empty]);
    let mut rope = none;
    (rope[1], rope[5], rope[6]) = (8, 1e4f32.to_bits(), 1f32.to_bits());
    let x = f32s([8, 1, 2, 1]);
    for (positions, factors) in [
        (i32s([2, 0, 1, 1]), f32s([4, 1, 1, 1])),
        (i32s([2, 1, 1, 1]), f32s([4, 0, 1, 1])),
    ] {
        check(Status::Unsupported, Opcode::Rope, rope, &[x, positions, factors], &[x]);
    }
    // Tiles of nothing.
    let rows = [tiles(DType::F32, [0, 3, 1, 1]), i32s([2, 1, 1, 1])];
    check(Status::Invalid, Opcode::GetRows, none, &rows, &[f32s([0, 2, 1, 1])]);
    let rows = [f32s([0, 3, 1, 1]), i32s([2, 1, 1, 1])];
    check(
        Status::Invalid,
        Opcode::GetRows,
        none,
        &rows,
        &[tiles(DType::F32, [0, 2, 1, 1])],
    );
    let product = [tiles(DType::F16, [40, 0, 1, 1]), f32s([40, 1, 1, 1])];
    check(Status::Invalid, Opcode::MulMat, none, &product, &[f32s([0, 1, 1, 1])]);
    // Far more elements than bytes.
    let same = |ne| Shape {
        ne,
        nb: [4, 0, 0, 0],
        ..f32s([1, 1, 1, 1])
    };
    let huge = same([1, 65535, 65535, 65535]);
    check(Status::Unsupported, Opcode::Add, none, &[huge, huge], &[huge]);
    let twice = same([1, 2, 1, 1]);
    check(Status::Unsupported, Opcode::Add, none, &[twice, twice], &[twice]);
    check(Status::Ok, Opcode::Add, none, &[twice, twice], &[f32s([1, 2, 1, 1])]);
}
