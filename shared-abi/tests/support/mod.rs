//! What tests of messages and the fuzz target share: the independent check of an accepted block, and sample messages.
#![allow(dead_code, reason = "each test binary uses its part")]

use hexloom_abi::descriptor::{TENSOR_TILED, TENSOR_WEIGHT};
use hexloom_abi::layout::{BlockCounts, BlockLayout};
use hexloom_abi::{
    BatchRequest, BatchView, BufferDesc, DType, NO_TENSOR, OpCode, OpDesc, Opcode, Status, TensorDesc, scratch, support,
};
use zerocopy::{FromBytes, IntoBytes};

/// Parses any message: 64 bytes of request, then the block. What is accepted is checked again in 128-bit arithmetic.
pub(crate) fn check_message(bytes: &[u8]) -> Result<(), Status> {
    let Ok((request, block)) = BatchRequest::read_from_prefix(bytes) else {
        return Err(Status::Truncated);
    };
    // On the DSP the copy is 8-byte aligned; a parser that is given less must refuse it, not fault.
    let aligned: Vec<u64> = block
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        })
        .collect();
    let block = &aligned.as_bytes()[..block.len()];
    if let Some(shifted) = block.get(1..) {
        let misaligned = BatchView::parse(shifted, &request).is_ok();
        assert!(!misaligned || request.n_buffers + request.n_tensors + request.n_ops == 0);
    }
    let view = BatchView::parse(block, &request).map_err(|error| error.status)?;
    check_view(&view, &request);
    Ok(())
}

/// # Panics
/// When the view holds anything that a kernel could not trust.
fn check_view(view: &BatchView<'_>, request: &BatchRequest) {
    assert_eq!(view.buffers().len(), request.n_buffers as usize);
    assert_eq!(view.tensors().len(), request.n_tensors as usize);
    assert_eq!(view.ops().len(), request.n_ops as usize);
    assert!(view.buffers().len() <= 16 && view.tensors().len() <= 8192 && view.ops().len() <= 4096);
    for (idx, buffer) in view.buffers().iter().enumerate() {
        assert!(view.buffers()[..idx].iter().all(|other| other.fd != buffer.fd));
    }
    for tensor in view.tensors() {
        let buffer = &view.buffers()[usize::from(tensor.buffer_idx)];
        let end = u128::from(tensor.offset) + reach(tensor);
        assert!(
            end <= u128::from(buffer.bytes),
            "{tensor:?} reaches {end} of {buffer:?}"
        );
        assert!(u128::from(tensor.offset) + u128::from(tensor.bytes) <= u128::from(buffer.bytes));
    }
    for desc in view.ops() {
        for &idx in desc.srcs.iter().chain(&desc.dsts) {
            assert!(idx == NO_TENSOR || usize::from(idx) < view.tensors().len());
        }
        let op = view.op(desc).expect("a parsed op has a known opcode");
        // Neither rule may panic on anything that parses.
        if support::check(&op).is_ok() {
            let need = scratch::need(&op, 10);
            assert!(need.least <= need.full || need.full == 0);
        }
    }
}

/// Bytes from a tensor's first to one past its last, without the crate's own arithmetic.
fn reach(tensor: &TensorDesc) -> u128 {
    let [n0, n1, n2, n3] = tensor.ne.map(u128::from);
    if n0 * n1 * n2 * n3 == 0 {
        return 0;
    }
    let (elems, bytes) = match tensor.dtype.0 {
        0 | 26 => (1, 4),
        1 => (1, 2),
        2 => (32, 18),
        3 => (32, 20),
        8 => (32, 34),
        24 => (1, 1),
        27 => (1, 8),
        other => panic!("data type {other} was accepted"),
    };
    if tensor.flags & TENSOR_TILED != 0 {
        let (codes, scales) = match tensor.dtype.0 {
            2 => (512, 64),
            3 => (512, 128),
            8 => (1024, 64),
            other => panic!("tiles of data type {other} were accepted"),
        };
        let group = (n0 / 32 * (codes + scales)).div_ceil(128) * 128;
        return n1.div_ceil(32) * n2 * n3 * group;
    }
    let counts = [n0 / elems, n1, n2, n3];
    let steps = counts.iter().zip(tensor.nb.map(u128::from));
    steps.map(|(count, stride)| (count - 1) * stride).sum::<u128>() + bytes
}

/// A request with its block, as one piece of bytes.
pub(crate) fn message(buffers: &[BufferDesc], tensors: &[TensorDesc], ops: &[OpDesc]) -> Vec<u8> {
    let counts = BlockCounts {
        n_buffers: buffers.len() as u32,
        n_tensors: tensors.len() as u32,
        n_ops: ops.len() as u32,
        ..BlockCounts::default()
    };
    let layout = BlockLayout::new(&counts).expect("a few records");
    let mut request = BatchRequest::new(7, counts.n_buffers, counts.n_tensors, counts.n_ops);
    request.block_offset = 0x2_0000;
    request.block_bytes = layout.bytes as u32;
    let mut block = vec![0; layout.progress_offset as usize];
    for (offset, records) in [
        (0, buffers.as_bytes()),
        (layout.tensors_offset, tensors.as_bytes()),
        (layout.ops_offset, ops.as_bytes()),
    ] {
        block[offset as usize..][..records.len()].copy_from_slice(records);
    }
    [request.as_bytes(), &block].concat()
}

/// A dense tensor at an offset of a buffer.
pub(crate) fn dense(dtype: DType, ne: [u32; 4], buffer_idx: u16, offset: u64) -> TensorDesc {
    let shape = hexloom_abi::op::Shape::dense(dtype, ne).expect("whole blocks");
    TensorDesc {
        offset,
        bytes: shape.extent_bytes().expect("small"),
        dtype: dtype.into(),
        buffer_idx,
        ne,
        nb: shape.nb,
        ..TensorDesc::default()
    }
}

/// A buffer descriptor.
pub(crate) fn buffer(fd: u32, bytes: u64) -> BufferDesc {
    BufferDesc {
        bytes,
        generation: 0x0102_0304_0506_0708 + u64::from(fd),
        fd,
        ..BufferDesc::default()
    }
}

/// An op over the tensors with these indices.
pub(crate) fn op(opcode: Opcode, srcs: &[u16], dsts: &[u16]) -> OpDesc {
    let mut op = OpDesc::new(OpCode(opcode.number()));
    op.srcs[..srcs.len()].copy_from_slice(srcs);
    op.dsts[..dsts.len()].copy_from_slice(dsts);
    op
}

/// `ADD` of two small tensors, one of them in a buffer of its own.
pub(crate) fn add_message() -> Vec<u8> {
    let ne = [4, 2, 1, 1];
    message(
        &[buffer(5, 8192), buffer(6, 4096)],
        &[
            dense(DType::F32, ne, 0, 0),
            dense(DType::F32, [4, 1, 1, 1], 1, 128),
            dense(DType::F32, ne, 0, 256),
        ],
        &[op(Opcode::Add, &[0, 1], &[2])],
    )
}

/// Three ops over a tiled weight, a view with padding, a rotation with parameters.
pub(crate) fn layer_message() -> Vec<u8> {
    let ne = [64, 40, 1, 1];
    let tile = hexloom_abi::tile::TileLayout::new(DType::Q4_0, 64).expect("whole tiles");
    let weight = TensorDesc {
        bytes: tile.tensor_bytes(ne).expect("small"),
        dtype: DType::Q4_0.into(),
        flags: TENSOR_WEIGHT | TENSOR_TILED,
        ne,
        nb: tile.strides(DType::Q4_0, ne).expect("small"),
        ..TensorDesc::default()
    };
    let mut padded = dense(DType::F32, [64, 3, 1, 1], 1, 0x400);
    padded.nb = [4, 512, 1536, 1536];
    padded.bytes = 1024 + 256;
    let mut rope = op(Opcode::Rope, &[2, 3], &[4]);
    rope.params[1] = 20;
    for (idx, value) in [(5, 1e4f32), (6, 1.0), (8, 1.0), (9, 32.0), (10, 1.0)] {
        rope.params[idx] = value.to_bits();
    }
    message(
        &[buffer(40, 1 << 20), buffer(41, 1 << 16)],
        &[
            weight,
            padded,
            dense(DType::F32, [40, 3, 1, 1], 1, 0x2000),
            dense(DType::I32, [3, 1, 1, 1], 1, 0x3000),
            dense(DType::F32, [40, 3, 1, 1], 1, 0x4000),
            dense(DType::F16, [40, 3, 1, 1], 1, 0x5000),
        ],
        &[op(Opcode::MulMat, &[0, 1], &[2]), rope, op(Opcode::Cpy, &[4], &[5])],
    )
}
