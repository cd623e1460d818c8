//! Sessions that wait for each other, on any transport: fences, a group of two, a reduction over two, and each alone.
//!
//! What can go wrong between sessions is tested where caches can be made as bad as can be, beside the DSP half; this is
//! the same through queues, mappings and processes.

use std::sync::Arc;

use hexloom::abi::descriptor::TENSOR_FENCE;
use hexloom::abi::limits::FENCE_SLOT_BYTES;
use hexloom::abi::op::Shape;
use hexloom::abi::{AllreduceParams, BufferDesc, DType, FenceRef, GroupParams, OpDesc, Opcode, Status, TensorDesc};
use hexloom::transport::{SessionAt, SharedMemory, Transport};
use zerocopy::IntoBytes;

use crate::raw::{PINNED_BYTES, Raw, RawBatch, tensor};

/// Elements of each tensor: 16 lines.
const N: u32 = 512;
const BYTES: u64 = N as u64 * 4;
/// Longest wait inside the DSP.
const TIMEOUT_US: u32 = 20_000_000;
/// Slots at the end of a pinned buffer, where no block of these small batches comes.
const N_SLOTS: u64 = 8;
const ROUNDS: u32 = 8;

/// Two sessions with memory that both have: tensors one behind the other.
struct Peers {
    raws: [Raw; 2],
    memory: SharedMemory,
    /// The memory, then the pinned buffers.
    buffers: [BufferDesc; 3],
}

/// What an op is made of.
type Make<'a> = &'a (dyn Fn(&mut RawBatch, u32, u32) + Sync);

/// Runs everything.
///
/// # Panics
/// When something is not as it should be.
pub fn run(transport: &Arc<dyn Transport>) {
    let mut peers = Peers::new(transport);
    peers.alone();
    peers.turns();
    peers.group();
    peers.reduction();
    peers.failure();
}

impl Drop for Peers {
    /// The first session's pinned buffer goes first.
    fn drop(&mut self) {
        let [first, second] = &self.raws;
        let unmapped = second.unshare(first.pinned());
        assert!(unmapped.is_ok() || std::thread::panicking(), "{unmapped:?}");
    }
}

impl Peers {
    fn new(transport: &Arc<dyn Transport>) -> Self {
        let open = |core| {
            let at = SessionAt { core, session: 0 };
            Raw::open_at(Arc::clone(transport), at, 2).expect("a session")
        };
        let raws = [0, 1].map(open);
        let (memory, data) = raws[0].alloc(4 * BYTES, 1).expect("memory");
        raws[1].share(&memory).expect("mapped");
        raws[1].share(raws[0].pinned()).expect("mapped");
        raws[0].share(raws[1].pinned()).expect("mapped");
        let pinned = [0, 1].map(|idx: usize| BufferDesc {
            bytes: raws[idx].pinned().bytes(),
            fd: raws[idx].pinned().fd(),
            generation: 2 + idx as u64,
            ..BufferDesc::default()
        });
        Self {
            raws,
            memory,
            buffers: [data, pinned[0], pinned[1]],
        }
    }

    fn fill(&self, tensor: u64, value: f32) {
        self.memory.write(tensor * BYTES, [value; N as usize].as_bytes());
    }

    #[track_caller]
    fn check(&self, tensor: u64, value: f32) {
        let mut found = [0f32; N as usize];
        self.memory.read(tensor * BYTES, found.as_mut_bytes());
        assert_eq!(found, [value; N as usize]);
    }

    /// Runs a batch on both sessions at once and gives how they ended.
    fn both(&mut self, round: u32, make: Make<'_>) -> [(Status, u32); 2] {
        let buffers = self.buffers;
        let run = |raw: &mut Raw, idx: u32| {
            let mut batch = RawBatch {
                buffers: buffers.to_vec(),
                tensors: tensors(),
                ops: Vec::new(),
            };
            make(&mut batch, idx, round);
            let reply = raw.run(&batch).expect("one reply");
            (reply.check().expect("a well-formed reply"), reply.detail)
        };
        let [first, second] = &mut self.raws;
        std::thread::scope(|scope| {
            let second = scope.spawn(|| run(second, 1));
            [run(first, 0), second.join().expect("no panic")]
        })
    }

    fn both_well(&mut self, round: u32, make: Make<'_>) {
        assert_eq!(self.both(round, make), [(Status::Ok, 0); 2], "round {round}");
    }

    /// Each op on its own: a signal and a wait on the own slot, a group of one, a reduction over one.
    fn alone(&mut self) {
        for round in 1..=ROUNDS {
            self.fill(0, 3.0);
            self.both_well(round, &|batch, idx, round| {
                if idx == 1 {
                    return;
                }
                batch
                    .ops
                    .push(op(Opcode::MdevGroup, group(0, 1, 100 * round), &[slot(0, 4)], &[]));
                batch
                    .ops
                    .push(op(Opcode::Fence, FenceRef::signal(round).params(), &[], &[slot(0, 5)]));
                batch.ops.push(scale(0, 1, 2.0));
                let wait = FenceRef::wait(round, TIMEOUT_US).params();
                batch.ops.push(op(Opcode::Fence, wait, &[slot(0, 5)], &[]));
                let alone = reduce(0, 1, 2 * round);
                batch
                    .ops
                    .push(op(Opcode::AllreduceAdd, alone, &[1, slot(0, 6), 0], &[2]));
                let copy = FenceRef::signal(round).params();
                batch.ops.push(op(Opcode::CpyFence, copy, &[2], &[3, slot(0, 7)]));
                let wait = FenceRef::wait(round, TIMEOUT_US).params();
                batch.ops.push(op(Opcode::Fence, wait, &[slot(0, 7)], &[]));
            });
            self.check(3, 9.0);
        }
    }

    /// One after the other, over the same memory.
    fn turns(&mut self) {
        self.fill(0, 1.0);
        for round in 1..=ROUNDS {
            self.both_well(round, &|batch, idx, round| {
                let (own, other) = (slot(idx, 0), slot(1 - idx, 0));
                let wait = op(Opcode::Fence, FenceRef::wait(round, TIMEOUT_US).params(), &[other], &[]);
                let signal = op(Opcode::Fence, FenceRef::signal(round).params(), &[], &[own]);
                match idx {
                    0 => batch.ops.extend([scale(0, 1, 3.0), signal, wait, scale(2, 0, 1.0)]),
                    _ => batch.ops.extend([wait, scale(1, 2, 0.5), signal]),
                }
            });
        }
        self.check(0, 1.5f32.powi(ROUNDS as i32));
    }

    /// Both do a part of every op.
    fn group(&mut self) {
        self.fill(0, 1.0);
        for round in 1..=ROUNDS {
            self.both_well(round, &|batch, member, round| {
                let both = batch.tensors.len() as u16;
                let slots = Shape::dense(DType::I32, [32, 2, 1, 1]).expect("small");
                let first = batch.tensors[usize::from(slot(0, 1))].offset;
                batch.tensors.push(fence_tensor(slots, 1, first));
                batch
                    .ops
                    .push(op(Opcode::MdevGroup, group(member, 2, 10 * round), &[both], &[]));
                batch.ops.extend([scale(0, 1, 4.0), scale(1, 2, 0.5), scale(2, 0, 1.0)]);
            });
        }
        self.check(0, 2f32.powi(ROUNDS as i32));
    }

    /// Both get the sum of what each has.
    fn reduction(&mut self) {
        self.fill(0, 1.0);
        self.fill(1, 2.0);
        for round in 1..=ROUNDS {
            self.both_well(round, &|batch, rank, round| {
                let srcs = [0, 1, slot(0, 3), slot(1, 3)];
                batch
                    .ops
                    .push(op(Opcode::Allreduce, reduce(rank, 2, 2 * round), &srcs, &[0, 1]));
            });
        }
        let sum = 1.5 * 2f32.powi(ROUNDS as i32);
        self.check(0, sum);
        self.check(1, sum);
    }

    /// One fails, and the other hears of it.
    fn failure(&mut self) {
        let ended = self.both(100, &|batch, idx, round| {
            if idx == 0 {
                batch.ops.push(op(Opcode::Argmax, [0; 16], &[], &[]));
                batch
                    .ops
                    .push(op(Opcode::Fence, FenceRef::signal(round).params(), &[], &[slot(0, 0)]));
            } else {
                let wait = FenceRef::wait(round, TIMEOUT_US).params();
                batch.ops.push(op(Opcode::Fence, wait, &[slot(0, 0)], &[]));
            }
        });
        let [(first, _), second] = ended;
        assert_eq!(first, Status::Unsupported);
        assert_eq!(second, (Status::PeerFailed, Status::Unsupported.number()));
    }
}

/// Four tensors of the memory, then the slots of the first session, then those of the second.
fn tensors() -> Vec<TensorDesc> {
    let shape = Shape::dense(DType::F32, [N, 1, 1, 1]).expect("small");
    let data = (0..4).map(|idx| tensor(shape, 0, idx * BYTES, false));
    let slots = (1..3u16).flat_map(|buffer| {
        let first = PINNED_BYTES - N_SLOTS * FENCE_SLOT_BYTES;
        let shape = Shape::dense(DType::I32, [32, 1, 1, 1]).expect("small");
        (0..N_SLOTS).map(move |idx| fence_tensor(shape, buffer, first + idx * FENCE_SLOT_BYTES))
    });
    data.chain(slots).collect()
}

fn fence_tensor(shape: Shape, buffer_idx: u16, offset: u64) -> TensorDesc {
    TensorDesc {
        flags: TENSOR_FENCE,
        ..tensor(shape, buffer_idx, offset, false)
    }
}

/// The tensor of a session's slot.
fn slot(owner: u32, idx: u16) -> u16 {
    4 + owner as u16 * N_SLOTS as u16 + idx
}

fn op(opcode: Opcode, params: [u32; 16], srcs: &[u16], dsts: &[u16]) -> OpDesc {
    let mut desc = OpDesc::new(opcode.into());
    desc.params = params;
    desc.srcs[..srcs.len()].copy_from_slice(srcs);
    desc.dsts[..dsts.len()].copy_from_slice(dsts);
    desc
}

fn scale(from: u16, to: u16, s: f32) -> OpDesc {
    let mut params = [0; 16];
    params[0] = s.to_bits();
    op(Opcode::Scale, params, &[from], &[to])
}

fn group(member: u32, n_members: u32, base_seq: u32) -> [u32; 16] {
    let params = GroupParams {
        member,
        n_members,
        base_seq,
        timeout_us: TIMEOUT_US,
    };
    params.params()
}

fn reduce(rank: u32, n_ranks: u32, seq: u32) -> [u32; 16] {
    let params = AllreduceParams {
        rank,
        n_ranks,
        entry_seq: seq,
        exit_seq: seq + 1,
        timeout_us: TIMEOUT_US,
    };
    params.params()
}
