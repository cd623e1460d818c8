//! From a node of ggml's graph to an op of hexloom's: code, parameters, operands, shapes.
//!
//! Whether the op has a kernel is not decided here: the session's own rules are asked, so that nothing is claimed that
//! the DSP would refuse.

mod compose;
mod moves;
mod parts;
mod recurrence;
mod window;

use hexloom::DType;
use hexloom::abi::Opcode;
use hexloom::abi::limits::{MAX_DSTS, MAX_PARAMS, MAX_SRCS};
use hexloom::abi::op::{Op, Shape};
use hexloom::abi::support::ROPE_BACK;
use hexloom::abi::tile::TileLayout;

use crate::abi::{self, Tensor};
use crate::buffer::is_host_tensor;

/// Data types that hexloom has, with ggml's names; numbers are the same on both sides.
pub(crate) const TYPES: &[(DType, &str)] = &[
    (DType::F32, "f32"),
    (DType::F16, "f16"),
    (DType::Q4_0, "q4_0"),
    (DType::Q4_1, "q4_1"),
    (DType::Q5_0, "q5_0"),
    (DType::Q5_1, "q5_1"),
    (DType::Q8_0, "q8_0"),
    (DType::Q2K, "q2_K"),
    (DType::Q3K, "q3_K"),
    (DType::Q4K, "q4_K"),
    (DType::Q5K, "q5_K"),
    (DType::Q6K, "q6_K"),
    (DType::Iq4Nl, "iq4_nl"),
    (DType::Iq4Xs, "iq4_xs"),
    (DType::I8, "i8"),
    (DType::I32, "i32"),
    (DType::I64, "i64"),
    (DType::Bf16, "bf16"),
    (DType::Mxfp4, "mxfp4"),
];

/// Kinds of `UNARY`: ggml's number and name, and the op.
pub(crate) const UNARY_OPS: &[(u32, &str, Opcode)] = &[
    (0, "ABS", Opcode::Abs),
    (1, "SGN", Opcode::Sgn),
    (2, "NEG", Opcode::Neg),
    (3, "STEP", Opcode::Step),
    (4, "TANH", Opcode::Tanh),
    (5, "ELU", Opcode::Elu),
    (6, "RELU", Opcode::Relu),
    (7, "SIGMOID", Opcode::Sigmoid),
    (8, "GELU", Opcode::Gelu),
    (9, "GELU_QUICK", Opcode::GeluQuick),
    (10, "SILU", Opcode::Silu),
    (11, "HARDSWISH", Opcode::HardSwish),
    (12, "HARDSIGMOID", Opcode::HardSigmoid),
    (13, "EXP", Opcode::Exp),
    (14, "EXPM1", Opcode::Expm1),
    (15, "SOFTPLUS", Opcode::Softplus),
    (16, "GELU_ERF", Opcode::GeluErf),
    (17, "XIELU", Opcode::Xielu),
    (18, "FLOOR", Opcode::Floor),
    (19, "CEIL", Opcode::Ceil),
    (20, "ROUND", Opcode::Round),
    (21, "TRUNC", Opcode::Trunc),
];

/// Kinds of `GLU`: ggml's number and name, and the op.
pub(crate) const GLU_OPS: &[(u32, &str, Opcode)] = &[
    (0, "REGLU", Opcode::Reglu),
    (1, "GEGLU", Opcode::Geglu),
    (2, "SWIGLU", Opcode::Swiglu),
    (4, "GEGLU_ERF", Opcode::GegluErf),
    (5, "GEGLU_QUICK", Opcode::GegluQuick),
];

/// A node as hexloom would compute it. Operands are copies: some are parts of what ggml names.
pub(crate) struct Node {
    pub(crate) opcode: Opcode,
    pub(crate) params: [u32; MAX_PARAMS],
    pub(crate) srcs: Vec<Option<Tensor>>,
    pub(crate) dst: Tensor,
    /// A second result.
    pub(crate) dst_2: Option<Tensor>,
}

/// Why a node has no op, in words that follow its name.
pub(crate) type Why = &'static str;

impl Node {
    /// The nodes of a tensor that is computed: one, or for ops without a kernel of their own a few that come to the same.
    pub(crate) fn list(tensor: &Tensor) -> Result<Vec<Self>, Why> {
        let several = [parts::nodes, moves::nodes, compose::nodes, recurrence::nodes];
        match several.into_iter().find_map(|nodes| nodes(tensor)) {
            Some(nodes) => nodes,
            None => Ok(vec![Self::of(tensor)?]),
        }
    }

    /// A node with all operands present.
    fn new(opcode: Opcode, given: &[u32], srcs: &[Tensor], dst: Tensor) -> Self {
        let mut params = [0; MAX_PARAMS];
        params[..given.len()].copy_from_slice(given);
        Self {
            opcode,
            params,
            srcs: srcs.iter().copied().map(Some).collect(),
            dst,
            dst_2: None,
        }
    }

    fn of(tensor: &Tensor) -> Result<Self, Why> {
        let given = tensor.op_params.map(i32::cast_unsigned);
        let first = |n: usize| {
            let mut params = [0; MAX_PARAMS];
            params[..n].copy_from_slice(&given[..n]);
            params
        };
        let kind = |kinds: &[(u32, &str, Opcode)]| {
            let found = kinds.iter().find(|&&(number, ..)| number == given[0]);
            found
                .map(|&(.., opcode)| opcode)
                .ok_or("hexloom has no kernel for this kind")
        };
        if tensor.op() == Some(abi::Op::Sum)
            && !tensor
                .src(0)
                .is_some_and(|x| shape(x, false).is_ok_and(|x| x.rows_dense()))
        {
            return Err("sums rows whose elements lie apart, which ggml's own back end does not do right");
        }
        if let Some(node) = window::node(tensor) {
            return node;
        }
        let (opcode, params, n_srcs) = match tensor.op().ok_or("hexloom does not know the op")? {
            abi::Op::Add | abi::Op::Add1 => (Opcode::Add, first(0), 2),
            abi::Op::Sub => (Opcode::Sub, first(0), 2),
            abi::Op::Mul => (Opcode::Mul, first(0), 2),
            abi::Op::Div => (Opcode::Div, first(0), 2),
            abi::Op::MulMat => (Opcode::MulMat, first(0), 2),
            abi::Op::Norm => (Opcode::Norm, first(1), 1),
            abi::Op::RmsNorm => (Opcode::RmsNorm, first(1), 1),
            abi::Op::Scale => (Opcode::Scale, first(2), 1),
            abi::Op::Clamp => (Opcode::Clamp, first(2), 1),
            abi::Op::Unary => {
                // The kind stands before the kind's own parameters.
                let mut params = first(0);
                params[..4].copy_from_slice(&given[1..5]);
                (kind(UNARY_OPS)?, params, 1)
            }
            abi::Op::Sqr => (Opcode::Sqr, first(0), 1),
            abi::Op::Sqrt => (Opcode::Sqrt, first(0), 1),
            abi::Op::Log => (Opcode::Log, first(0), 1),
            abi::Op::Sin => (Opcode::Sin, first(0), 1),
            abi::Op::Cos => (Opcode::Cos, first(0), 1),
            abi::Op::LeakyRelu => (Opcode::LeakyRelu, first(1), 1),
            abi::Op::MulMatId => (Opcode::MulMatId, first(0), 3),
            abi::Op::Sum => (Opcode::Sum, first(0), 1),
            abi::Op::SumRows => (Opcode::SumRows, first(0), 1),
            abi::Op::Mean => (Opcode::Mean, first(0), 1),
            abi::Op::L2Norm => (Opcode::L2Norm, first(1), 1),
            abi::Op::Cumsum => (Opcode::Cumsum, first(0), 1),
            abi::Op::OutProd => (Opcode::OutProd, first(0), 2),
            abi::Op::Glu => {
                let mut params = first(0);
                params[0] = given[1];
                (kind(GLU_OPS)?, params, 2)
            }
            op @ (abi::Op::Rope | abi::Op::RopeBack) => {
                let mut params = first(11);
                params[3] = if op == abi::Op::RopeBack { ROPE_BACK } else { 0 };
                params[15] = given[15];
                (Opcode::Rope, params, 3)
            }
            abi::Op::SoftMax => (Opcode::SoftMax, first(2), 3),
            abi::Op::FlashAttnExt => (Opcode::FlashAttnExt, first(3), 5),
            abi::Op::GetRows => (Opcode::GetRows, first(0), 2),
            abi::Op::SetRows => (Opcode::SetRows, first(0), 2),
            abi::Op::Cpy | abi::Op::Cont | abi::Op::Dup => (Opcode::Cpy, first(0), 1),
            abi::Op::Argmax => (Opcode::Argmax, first(0), 1),
            abi::Op::Argsort => (Opcode::Argsort, first(1), 1),
            abi::Op::CountEqual => (Opcode::CountEqual, first(0), 2),
            abi::Op::TopK => {
                let mut params = first(0);
                params[0] = 1;
                (Opcode::Argsort, params, 1)
            }
            abi::Op::Im2col
            | abi::Op::Im2col3d
            | abi::Op::Conv2d
            | abi::Op::Conv3d
            | abi::Op::Pool1d
            | abi::Op::Pool2d
            | abi::Op::Concat
            | abi::Op::Set
            | abi::Op::Acc
            | abi::Op::Repeat
            | abi::Op::Fill
            | abi::Op::Pad
            | abi::Op::Roll
            | abi::Op::Diag
            | abi::Op::Tri
            | abi::Op::Upscale
            | abi::Op::Arange
            | abi::Op::TimestepEmbedding
            | abi::Op::GroupNorm
            | abi::Op::AddId
            | abi::Op::SsmConv
            | abi::Op::SsmScan
            | abi::Op::SolveTri
            | abi::Op::RwkvWkv6
            | abi::Op::RwkvWkv7
            | abi::Op::GatedLinearAttn
            | abi::Op::GatedDeltaNet => return Err("has a form that hexloom does not know"),
            abi::Op::None | abi::Op::View | abi::Op::Reshape | abi::Op::Permute | abi::Op::Transpose => {
                return Err("computes nothing");
            }
        };
        Ok(Self {
            opcode,
            params,
            srcs: (0..n_srcs).map(|idx| tensor.src(idx).copied()).collect(),
            dst: *tensor,
            dst_2: None,
        })
    }

    /// The op for the rules, with tiles where `tiled` says so.
    pub(crate) fn op(&self, tiled: impl Fn(usize, &Tensor) -> bool) -> Result<Op, Why> {
        let mut op = Op {
            opcode: self.opcode,
            params: self.params,
            srcs: [None; MAX_SRCS],
            dsts: [None; MAX_DSTS],
        };
        for (idx, (to, src)) in op.srcs.iter_mut().zip(&self.srcs).enumerate() {
            *to = src.as_ref().map(|src| shape(src, tiled(idx, src))).transpose()?;
        }
        op.dsts[0] = Some(shape(&self.dst, false)?);
        op.dsts[1] = self.dst_2.as_ref().map(|dst| shape(dst, false)).transpose()?;
        Ok(op)
    }

    /// Whether operand `idx` is read as tiles when it can be.
    pub(crate) fn wants_tiles(&self, idx: usize) -> bool {
        idx == 0 && self.opcode == Opcode::MulMat
    }
}

/// Scratch tensors are said to lie at their own numbers, where no memory is.
const MAX_SCRATCH: usize = 16;

/// A dense tensor whose place is the graph's to decide, called as the op is: number `idx`, from 1, of the op's.
fn scratch(op: &Tensor, idx: usize, dtype: DType, ne: [i64; 4]) -> Result<Tensor, Why> {
    let bytes = usize::try_from(dtype.block_bytes()).map_err(|_| "has blocks without end")?;
    let mut nb = [bytes; 4];
    for dim in 1..4 {
        let n = usize::try_from(ne[dim - 1]).ok();
        let stride = n.and_then(|n| nb[dim - 1].checked_mul(n));
        nb[dim] = stride.ok_or("a stride does not fit")?;
    }
    Ok(Tensor {
        ne,
        nb,
        dtype: dtype.number(),
        op: abi::Op::None as u32,
        buffer: std::ptr::null_mut(),
        view_src: std::ptr::null_mut(),
        data: std::ptr::without_provenance_mut(idx),
        ..*op
    })
}

/// Whether a tensor's place is the graph's to decide.
pub(crate) fn is_scratch(tensor: &Tensor) -> bool {
    tensor.buffer.is_null() && (1..MAX_SCRATCH).contains(&(tensor.data as usize))
}

/// Type, dimensions and strides of a tensor, as rows or as the tiles that its bytes become.
pub(crate) fn shape(tensor: &Tensor, tiled: bool) -> Result<Shape, Why> {
    let dtype = TYPES.iter().map(|&(dtype, _)| dtype);
    let dtype = dtype.into_iter().find(|dtype| dtype.number() == tensor.dtype);
    let dtype = dtype.ok_or("hexloom does not know a data type")?;
    let small = |n: i64| u32::try_from(n).map_err(|_| "a dimension does not fit 32 bits");
    let [n0, n1, n2, n3] = tensor.ne;
    let ne = [small(n0)?, small(n1)?, small(n2)?, small(n3)?];
    let nb = if tiled {
        let layout = TileLayout::new(dtype, ne[0]);
        let strides = layout.and_then(|layout| layout.strides(dtype, ne));
        strides.ok_or("cannot be tiled")?
    } else {
        let mut nb = [0; 4];
        for (to, &from) in nb.iter_mut().zip(&tensor.nb) {
            *to = u32::try_from(from).map_err(|_| "a stride does not fit 32 bits")?;
        }
        nb
    };
    Ok(Shape { dtype, tiled, ne, nb })
}

/// Elements of a block of a tensor's type.
fn block_elems(tensor: &Tensor) -> Option<i64> {
    let (dtype, _) = TYPES.iter().find(|(dtype, _)| dtype.number() == tensor.dtype)?;
    i64::try_from(dtype.block_elems()).ok()
}

/// Whether a tensor's values come in blocks with a scale.
pub(crate) fn is_quantized(tensor: &Tensor) -> bool {
    let mut types = TYPES.iter().filter(|(dtype, _)| dtype.is_quantized());
    types.any(|(dtype, _)| dtype.number() == tensor.dtype)
}

/// Whether a tensor's bytes may be turned into tiles: a whole quantised leaf, its rows side by side, that the CPU does not
/// read.
pub(crate) fn can_tile(tensor: &Tensor) -> bool {
    let leaf = tensor.op() == Some(abi::Op::None) && tensor.view_src.is_null();
    leaf && !is_host_tensor(tensor) && tile_bytes(tensor).is_some()
}

/// Bytes of a tensor as tiles, if it can have them.
pub(crate) fn tile_bytes(tensor: &Tensor) -> Option<u64> {
    let rows = shape(tensor, false).ok()?;
    let dense = rows.dense_everywhere() && rows.elems() > 0;
    let layout = TileLayout::new(rows.dtype, rows.ne[0])?;
    layout.strides(rows.dtype, rows.ne)?;
    layout.tensor_bytes(rows.ne).filter(|_| dense)
}
