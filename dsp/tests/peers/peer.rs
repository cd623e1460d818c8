//! A session on a node of the world, and batches for it.

use std::sync::atomic::Ordering;

use hexloom_abi::descriptor::{TENSOR_FENCE, TENSOR_TILED, TENSOR_WEIGHT};
use hexloom_abi::layout::{BlockCounts, BlockLayout};
use hexloom_abi::limits::FENCE_SLOT_BYTES;
use hexloom_abi::op::Shape;
use hexloom_abi::tile::TileLayout;
use hexloom_abi::{
    BatchReply, BatchRequest, BufferDesc, DType, FenceRef, OpDesc, Opcode, StartRequest, Status, TensorDesc,
};
use hexloom_dsp::interp::{BlockRef, Packet};
use hexloom_dsp::pool::Pool;
use hexloom_dsp::{KernelSet, Platform, Session, SessionLimits, Span};
use zerocopy::IntoBytes;

use super::world::{LINE, Line, Node, World};

/// fd of peer 0's pinned buffer; the others follow.
pub(crate) const PINNED: u32 = 100;
/// Bytes for blocks in a pinned buffer, before its slots.
pub(crate) const BLOCK_BYTES: usize = 32 << 10;
pub(crate) const PINNED_BYTES: usize = BLOCK_BYTES + 16 * LINE;
/// Longest wait of ops that must not wait so long.
pub(crate) const LONG_US: u32 = 20_000_000;

/// A started session.
pub(crate) struct Peer<'a, 'w> {
    pub(crate) world: &'w World,
    pool: &'a Pool<Node<'w>>,
    session: Session<'a, Node<'w>>,
    idx: u32,
    seq: u64,
}

/// How a session is set up.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) window_bytes: u64,
    pub(crate) scratch_bytes: usize,
    pub(crate) has_extended: bool,
    pub(crate) n_threads: u32,
    pub(crate) kernels: KernelSet,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            window_bytes: 1 << 30,
            scratch_bytes: 64 << 10,
            has_extended: false,
            n_threads: 1,
            kernels: KernelSet::Plain,
        }
    }
}

/// A batch that is being put together.
#[derive(Clone, Default)]
pub(crate) struct Batch {
    pub(crate) buffers: Vec<BufferDesc>,
    pub(crate) tensors: Vec<TensorDesc>,
    pub(crate) ops: Vec<OpDesc>,
}

impl Batch {
    /// A tensor's index.
    pub(crate) fn tensor(&mut self, buffer: BufferDesc, offset: usize, shape: Shape, flags: u32) -> u16 {
        let known = self.buffers.iter().position(|known| known.fd == buffer.fd);
        let buffer_idx = known.unwrap_or_else(|| {
            self.buffers.push(buffer);
            self.buffers.len() - 1
        });
        let tiled = if shape.tiled { TENSOR_TILED | TENSOR_WEIGHT } else { 0 };
        self.tensors.push(TensorDesc {
            offset: offset as u64,
            bytes: shape.extent_bytes().unwrap(),
            dtype: shape.dtype.into(),
            flags: flags | tiled,
            buffer_idx: buffer_idx as u16,
            ne: shape.ne,
            nb: shape.nb,
            ..TensorDesc::default()
        });
        self.tensors.len() as u16 - 1
    }

    /// Slots of peer `owner` from `first`.
    pub(crate) fn slots(&mut self, world: &World, owner: u32, first: usize, n: u32) -> u16 {
        let shape = Shape::dense(DType::I32, [32, n, 1, 1]).unwrap();
        let offset = BLOCK_BYTES + first * FENCE_SLOT_BYTES as usize;
        self.tensor(world.desc(PINNED + owner, 0), offset, shape, TENSOR_FENCE)
    }

    pub(crate) fn op(&mut self, opcode: Opcode, params: [u32; 16], srcs: &[u16], dsts: &[u16]) {
        let mut desc = OpDesc::new(opcode.into());
        desc.params = params;
        desc.srcs[..srcs.len()].copy_from_slice(srcs);
        desc.dsts[..dsts.len()].copy_from_slice(dsts);
        self.ops.push(desc);
    }

    pub(crate) fn signal(&mut self, slot: u16, seq: u32) {
        self.op(Opcode::Fence, FenceRef::signal(seq).params(), &[], &[slot]);
    }

    pub(crate) fn wait(&mut self, slot: u16, seq: u32, timeout_us: u32) {
        self.op(Opcode::Fence, FenceRef::wait(seq, timeout_us).params(), &[slot], &[]);
    }
}

pub(crate) fn dense(dtype: DType, ne: [u32; 4]) -> Shape {
    Shape::dense(dtype, ne).unwrap()
}

pub(crate) fn row(n: u32) -> Shape {
    dense(DType::F32, [n, 1, 1, 1])
}

pub(crate) fn tiled(dtype: DType, ne: [u32; 4]) -> Shape {
    let nb = TileLayout::new(dtype, ne[0]).unwrap().strides(dtype, ne).unwrap();
    Shape {
        dtype,
        tiled: true,
        ne,
        nb,
    }
}

impl Peer<'_, '_> {
    pub(crate) fn run(&mut self, batch: &Batch) -> BatchReply {
        let fd = PINNED + self.idx;
        let counts = BlockCounts {
            n_buffers: batch.buffers.len() as u32,
            n_tensors: batch.tensors.len() as u32,
            n_ops: batch.ops.len() as u32,
            ..BlockCounts::default()
        };
        let layout = BlockLayout::new(&counts).unwrap();
        assert!(layout.bytes <= BLOCK_BYTES as u64);
        self.world.write(fd, 0, batch.buffers.as_bytes());
        self.world
            .write(fd, layout.tensors_offset as usize, batch.tensors.as_bytes());
        self.world.write(fd, layout.ops_offset as usize, batch.ops.as_bytes());
        self.seq += 1;
        let mut request = BatchRequest::new(self.seq, counts.n_buffers, counts.n_tensors, counts.n_ops);
        request.block_bytes = layout.bytes as u32;
        let block = BlockRef {
            fd,
            offset: 0,
            bytes: layout.bytes,
            address: self.pool.platform().address(fd),
        };
        self.session.serve(&Packet {
            message: request.as_bytes(),
            block: Some(block),
        })
    }

    #[track_caller]
    pub(crate) fn check(&mut self, batch: &Batch) -> BatchReply {
        let reply = self.run(batch);
        assert_eq!(
            (reply.check(), reply.failed_op, reply.detail),
            (Ok(Status::Ok), u32::MAX, 0)
        );
        reply
    }

    /// Lines that the session has invalidated so far.
    pub(crate) fn n_invalidated(&self) -> u32 {
        self.pool.platform().n_invalidated.load(Ordering::Relaxed)
    }

    pub(crate) fn n_mappings(&self) -> usize {
        self.session.n_mappings()
    }
}

/// Runs `body` with session `idx`.
pub(crate) fn with_peer<R>(world: &World, idx: u32, setup: Setup, body: impl FnOnce(&mut Peer<'_, '_>) -> R) -> R {
    let pool = Pool::new(
        Node::new(world, setup.window_bytes, setup.has_extended),
        setup.n_threads,
    );
    struct Stop<'a, P: Platform>(&'a Pool<P>);
    impl<P: Platform> Drop for Stop<'_, P> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    std::thread::scope(|scope| {
        let _stop = Stop(&pool);
        for worker in 1..setup.n_threads {
            let pool = &pool;
            scope.spawn(move || pool.work(worker));
        }
        let start = StartRequest {
            pinned_fd: PINNED + idx,
            pinned_bytes: PINNED_BYTES as u64,
            block_bytes_max: BLOCK_BYTES as u32,
            window_bytes: 1 << 30,
            ..StartRequest::new(idx)
        };
        let mut descriptors = vec![0u64; BLOCK_BYTES / 8];
        let mut scratch = vec![Line([0; LINE]); setup.scratch_bytes / LINE];
        // SAFETY: the scratch memory outlives the session, which `body` uses and this function ends; bytes need no alignment.
        let scratch = unsafe { Span::new(scratch.as_mut_ptr().cast::<u8>(), setup.scratch_bytes) };
        let limits = SessionLimits::new(&start, setup.kernels).unwrap();
        let session = Session::new(&pool, limits, descriptors.as_mut_bytes(), scratch);
        let mut peer = Peer {
            world,
            pool: &pool,
            session,
            idx,
            seq: 0,
        };
        let result = body(&mut peer);
        peer.session.close();
        result
    })
}

/// Runs `body` on `n` sessions at the same time.
pub(crate) fn on_peers<R: Send>(
    world: &World,
    n: u32,
    setup: impl Fn(u32) -> Setup + Sync,
    body: impl Fn(u32, &mut Peer<'_, '_>) -> R + Sync,
) -> Vec<R> {
    std::thread::scope(|scope| {
        let (setup, body) = (&setup, &body);
        let threads: Vec<_> = (0..n)
            .map(|idx| scope.spawn(move || with_peer(world, idx, setup(idx), |peer| body(idx, peer))))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
