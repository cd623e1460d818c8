//! A transport without the host's checks: batches encoded by hand, for messages that the host would never send.

use std::sync::Arc;
use std::time::Duration;

use hexloom::abi::descriptor::{TENSOR_TILED, TENSOR_WEIGHT};
use hexloom::abi::layout::{BlockCounts, BlockLayout};
use hexloom::abi::op::Shape;
use hexloom::abi::{BatchReply, BatchRequest, BufferDesc, OpDesc, StartRequest, TensorDesc};
use hexloom::transport::{BlockRef, Connection, MapKind, SessionAt, SharedMemory, Transport, TransportError};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the pinned buffer.
pub const PINNED_BYTES: u64 = 1 << 20;
/// Those of them that a block can have; the rest is for fences.
pub const BLOCK_BYTES: u64 = PINNED_BYTES - 4096;
/// Longest wait for a reply.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A started connection.
pub struct Raw {
    transport: Arc<dyn Transport>,
    connection: Arc<dyn Connection>,
    pinned: SharedMemory,
    seq: u64,
}

/// Descriptors of a batch, unchecked.
#[derive(Clone, Debug, Default)]
pub struct RawBatch {
    /// Buffers.
    pub buffers: Vec<BufferDesc>,
    /// Tensors.
    pub tensors: Vec<TensorDesc>,
    /// Ops.
    pub ops: Vec<OpDesc>,
}

impl Raw {
    /// Opens and starts a connection with `n_threads` threads and all scratch memory.
    pub fn open(transport: Arc<dyn Transport>, n_threads: u32) -> Result<Self, TransportError> {
        Self::open_at(transport, SessionAt::default(), n_threads)
    }

    /// The same at a place.
    pub fn open_at(transport: Arc<dyn Transport>, at: SessionAt, n_threads: u32) -> Result<Self, TransportError> {
        let connection = transport.open(at)?;
        let pinned = transport.alloc(PINNED_BYTES)?;
        connection.map(&pinned, MapKind::Pinned)?;
        let start = StartRequest {
            n_threads,
            queue_id: connection.create_queue(4)?,
            pinned_fd: pinned.fd(),
            pinned_bytes: pinned.bytes(),
            block_bytes_max: BLOCK_BYTES as u32,
            ..StartRequest::new(0)
        };
        connection.start(&start)?;
        Ok(Self {
            transport,
            connection,
            pinned,
            seq: 0,
        })
    }

    /// Allocates and maps memory; gives it with its descriptor.
    pub fn alloc(&self, bytes: u64, generation: u64) -> Result<(SharedMemory, BufferDesc), TransportError> {
        let memory = self.transport.alloc(bytes)?;
        let desc = self.map(&memory, generation)?;
        Ok((memory, desc))
    }

    /// Maps memory, of another session perhaps; gives its descriptor.
    pub fn map(&self, memory: &SharedMemory, generation: u64) -> Result<BufferDesc, TransportError> {
        self.connection.map(memory, MapKind::Lazy)?;
        Ok(buffer(memory, generation))
    }

    /// Takes back the map of memory that this gave, and nothing on the DSP side.
    pub fn unmap(&self, memory: &SharedMemory) -> Result<(), TransportError> {
        self.connection.unmap(memory.fd(), memory.bytes())
    }

    /// Makes memory of another connection known to this one.
    pub fn share(&self, memory: &SharedMemory) -> Result<(), TransportError> {
        self.connection.map(memory, MapKind::Lazy)
    }

    /// Takes that back, which must be done before the memory is freed.
    pub fn unshare(&self, memory: &SharedMemory) -> Result<(), TransportError> {
        self.connection.forget(memory.fd())?;
        self.connection.unmap(memory.fd(), memory.bytes())
    }

    /// The pinned buffer, in which blocks lie.
    pub fn pinned(&self) -> &SharedMemory {
        &self.pinned
    }

    /// The next sequence number.
    pub fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Where `bytes` bytes at the start of the pinned buffer lie.
    pub fn block(&self, bytes: u64) -> BlockRef {
        BlockRef {
            fd: self.pinned.fd(),
            offset: 0,
            bytes,
        }
    }

    /// Sends any bytes and reads the one reply.
    pub fn exchange(&self, message: &[u8], block: BlockRef) -> Result<BatchReply, TransportError> {
        self.connection.write(message, block, TIMEOUT)?;
        let mut reply = [0; size_of::<BatchReply>()];
        let len = self.connection.read(&mut reply, TIMEOUT)?;
        let whole = BatchReply::read_from_bytes(&reply).ok().filter(|_| len == reply.len());
        whole.ok_or(TransportError::Call {
            call: "read",
            reason: format!("a reply of {len} bytes"),
            code: 0,
        })
    }

    /// Writes a batch's block at the start of the pinned buffer and gives its request.
    pub fn put(&mut self, batch: &RawBatch) -> BatchRequest {
        let counts = BlockCounts {
            n_buffers: batch.buffers.len() as u32,
            n_tensors: batch.tensors.len() as u32,
            n_ops: batch.ops.len() as u32,
            ..BlockCounts::default()
        };
        let layout = BlockLayout::new(&counts).expect("a few descriptors do not overflow");
        self.pinned.write(0, batch.buffers.as_bytes());
        self.pinned.write(layout.tensors_offset, batch.tensors.as_bytes());
        self.pinned.write(layout.ops_offset, batch.ops.as_bytes());
        BatchRequest {
            block_bytes: layout.bytes as u32,
            ..BatchRequest::new(self.next_seq(), counts.n_buffers, counts.n_tensors, counts.n_ops)
        }
    }

    /// Runs a batch that may be anything.
    pub fn run(&mut self, batch: &RawBatch) -> Result<BatchReply, TransportError> {
        let request = self.put(batch);
        let block = self.block(request.block_bytes.into());
        self.exchange(request.as_bytes(), block)
    }

    /// Whether a reply lies in the queue that nothing asked for.
    pub fn has_stray_reply(&self) -> bool {
        let mut reply = [0; size_of::<BatchReply>()];
        self.connection.read(&mut reply, Duration::from_millis(20)).is_ok()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.connection.close();
    }
}

/// The descriptor of a buffer.
pub fn buffer(memory: &SharedMemory, generation: u64) -> BufferDesc {
    BufferDesc {
        bytes: memory.bytes(),
        generation,
        fd: memory.fd(),
        ..BufferDesc::default()
    }
}

/// The descriptor of a tensor in a buffer.
pub fn tensor(shape: Shape, buffer_idx: u16, offset: u64, weight: bool) -> TensorDesc {
    let tiled = if shape.tiled { TENSOR_TILED } else { 0 };
    TensorDesc {
        offset,
        bytes: shape.extent_bytes().unwrap_or(u64::MAX),
        dtype: shape.dtype.into(),
        flags: tiled | if weight { TENSOR_WEIGHT } else { 0 },
        buffer_idx,
        ne: shape.ne,
        nb: shape.nb,
        ..TensorDesc::default()
    }
}
