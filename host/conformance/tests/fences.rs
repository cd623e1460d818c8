//! Fences between sessions whose caches are not coherent, with and without chance: what one session wrote before its signal
//! is what the other reads after its wait, and the host sees the slot.

use std::sync::Arc;
use std::thread;

use hexloom::DType;
use hexloom::abi::descriptor::TENSOR_FENCE;
use hexloom::abi::fence::{FenceRef, SLOT_WORDS};
use hexloom::abi::op::Shape;
use hexloom::abi::{BufferDesc, OpDesc, Opcode, Status, TensorDesc};
use hexloom::transport::{SessionAt, SharedMemory, Transport};
use hexloom_conformance::raw::{BLOCK_BYTES, Raw, RawBatch, buffer, tensor};
use hexloom_sim::{Counts, Harsh, SimOptions, SimTransport};
use zerocopy::IntoBytes;

/// Elements of each tensor: not a multiple of a line's.
const N: u32 = 100;
const ROUNDS: u32 = 100;
const TIMEOUT_US: u32 = 10_000_000;

/// Offsets of what is handed from the first session to the second and on to the host.
const X: u64 = 0;
const Y: u64 = 1024;
const Z: u64 = 2048;

fn dense(offset: u64) -> TensorDesc {
    tensor(Shape::dense(DType::F32, [N, 1, 1, 1]).expect("small"), 0, offset, false)
}

fn slot() -> TensorDesc {
    let shape = Shape::dense(DType::I32, [SLOT_WORDS, 1, 1, 1]).expect("small");
    TensorDesc {
        flags: TENSOR_FENCE,
        ..tensor(shape, 1, BLOCK_BYTES, false)
    }
}

fn scale(from: u16, to: u16, by: f32) -> OpDesc {
    let mut op = OpDesc::new(Opcode::Scale.into());
    (op.srcs[0], op.dsts[0]) = (from, to);
    op.params[0] = by.to_bits();
    op
}

/// A batch of the second session: waits, then scales; of the first: scales, then signals.
fn batch(buffers: [BufferDesc; 2], (from, to): (u64, u64), by: f32, fence: FenceRef, waits: bool) -> RawBatch {
    let mut fence_op = OpDesc::new(Opcode::Fence.into());
    fence_op.params = fence.params();
    if waits {
        fence_op.srcs[0] = 2
    } else {
        fence_op.dsts[0] = 2
    }
    let scale = scale(0, 1, by);
    RawBatch {
        buffers: buffers.into(),
        tensors: vec![dense(from), dense(to), slot()],
        ops: if waits {
            vec![fence_op, scale]
        } else {
            vec![scale, fence_op]
        },
    }
}

fn ok(raw: &mut Raw, batch: &RawBatch) {
    let reply = raw.run(batch).expect("a reply");
    assert_eq!(reply.check(), Ok(Status::Ok), "op {}", reply.failed_op);
}

fn check(harsh: Harsh, second: SessionAt) {
    let what = format!("{harsh:?}, {second:?}");
    let transport = Arc::new(SimTransport::new(SimOptions {
        scratch_bytes: 256 << 10,
        harsh,
        ..SimOptions::default()
    }));
    let open = |at| Raw::open_at(Arc::clone(&transport) as _, at, 2).expect("the simulator opens");
    let (mut a, mut b) = (open(SessionAt::default()), open(second));
    let data: SharedMemory = transport.alloc(4096).expect("there is memory");
    let map = |raw: &Raw, memory| {
        raw.map(memory, 1)
            .or_else(|_| raw.map(memory, 1))
            .expect("the second time at the latest")
    };
    let for_a = [map(&a, &data), buffer(a.pinned(), 1)];
    let for_b = [map(&b, &data), map(&b, a.pinned())];
    for round in 1..=ROUNDS {
        data.write(X, [round as f32; N as usize].as_bytes());
        let signals = batch(for_a, (X, Y), 3.0, FenceRef::signal(round), false);
        let waits = batch(for_b, (Y, Z), 2.0, FenceRef::wait(round, TIMEOUT_US), true);
        thread::scope(|scope| {
            // Now the one, now the other is first.
            let waiting = scope.spawn(|| ok(&mut b, &waits));
            if round % 3 == 0 {
                thread::sleep(std::time::Duration::from_micros(200));
            }
            ok(&mut a, &signals);
            waiting.join().expect("the waiter ends well");
        });
        let mut seq = [0u8; 4];
        a.pinned().read(BLOCK_BYTES, &mut seq);
        assert_eq!(u32::from_le_bytes(seq), round, "{what}");
        let mut z = [0f32; N as usize];
        data.read(Z, z.as_mut_bytes());
        assert_eq!(z, [6.0 * round as f32; N as usize], "{what}, round {round}");
    }
    // The first session's memory is mapped in the second, which so goes first.
    drop(b);
    drop(a);
    drop(data);
    assert_eq!(transport.counts(), Counts::default());
    assert_eq!(transport.breaches(), [""; 0]);
}

#[test]
fn two_sessions_hand_over() {
    let places = [SessionAt { core: 0, session: 1 }, SessionAt { core: 2, session: 0 }];
    for second in places {
        check(Harsh::default(), second);
        for seed in 0..4 {
            check(Harsh::all(seed), second);
        }
    }
}
