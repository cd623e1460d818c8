//! From a node of ggml's graph to an op of hexloom's: code, parameters, operands, shapes.
//!
//! Whether the op has a kernel is not decided here: the session's own rules are asked, so that nothing is claimed that
//! the DSP would refuse.

use hexloom::DType;
use hexloom::abi::Opcode;
use hexloom::abi::limits::{MAX_DSTS, MAX_PARAMS, MAX_SRCS};
use hexloom::abi::op::{Op, Shape};
use hexloom::abi::tile::TileLayout;

use crate::abi::{self, Tensor};

/// Data types that hexloom has, with ggml's names; numbers are the same on both sides.
pub(crate) const TYPES: &[(DType, &str)] = &[
    (DType::F32, "f32"),
    (DType::F16, "f16"),
    (DType::Q4_0, "q4_0"),
    (DType::Q4_1, "q4_1"),
    (DType::Q8_0, "q8_0"),
    (DType::I8, "i8"),
    (DType::I32, "i32"),
    (DType::I64, "i64"),
];

/// Kinds of `UNARY`: ggml's number and name, and the op.
pub(crate) const UNARY_OPS: &[(u32, &str, Opcode)] = &[
    (8, "GELU", Opcode::Gelu),
    (9, "GELU_QUICK", Opcode::GeluQuick),
    (10, "SILU", Opcode::Silu),
    (16, "GELU_ERF", Opcode::GeluErf),
];

/// Kinds of `GLU`: ggml's number and name, and the op.
pub(crate) const GLU_OPS: &[(u32, &str, Opcode)] = &[
    (1, "GEGLU", Opcode::Geglu),
    (2, "SWIGLU", Opcode::Swiglu),
    (4, "GEGLU_ERF", Opcode::GegluErf),
    (5, "GEGLU_QUICK", Opcode::GegluQuick),
];

/// A node as hexloom would compute it.
pub(crate) struct Node<'a> {
    pub(crate) opcode: Opcode,
    pub(crate) params: [u32; MAX_PARAMS],
    pub(crate) srcs: Vec<Option<&'a Tensor>>,
    pub(crate) dst: &'a Tensor,
}

/// Why a node has no op, in words that follow its name.
pub(crate) type Why = &'static str;

impl<'a> Node<'a> {
    /// The node of a tensor that is computed.
    pub(crate) fn of(tensor: &'a Tensor) -> Result<Self, Why> {
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
        let (opcode, params, n_srcs) = match tensor.op().ok_or("hexloom does not know the op")? {
            abi::Op::Add => (Opcode::Add, first(0), 2),
            abi::Op::Sub => (Opcode::Sub, first(0), 2),
            abi::Op::Mul => (Opcode::Mul, first(0), 2),
            abi::Op::Div => (Opcode::Div, first(0), 2),
            abi::Op::MulMat => (Opcode::MulMat, first(0), 2),
            abi::Op::Norm => (Opcode::Norm, first(1), 1),
            abi::Op::RmsNorm => (Opcode::RmsNorm, first(1), 1),
            abi::Op::Scale => (Opcode::Scale, first(2), 1),
            abi::Op::Clamp => (Opcode::Clamp, first(2), 1),
            abi::Op::Unary => (kind(UNARY_OPS)?, first(0), 1),
            abi::Op::Glu => {
                let mut params = first(0);
                params[0] = given[1];
                (kind(GLU_OPS)?, params, 2)
            }
            abi::Op::Rope => {
                if given[15] != 0 {
                    return Err("rotates elements that are not the first of a row");
                }
                (Opcode::Rope, first(11), 3)
            }
            abi::Op::SoftMax => (Opcode::SoftMax, first(2), 3),
            abi::Op::FlashAttnExt => (Opcode::FlashAttnExt, first(3), 5),
            abi::Op::GetRows => (Opcode::GetRows, first(0), 2),
            abi::Op::SetRows => (Opcode::SetRows, first(0), 2),
            abi::Op::Cpy | abi::Op::Cont | abi::Op::Dup => (Opcode::Cpy, first(0), 1),
            abi::Op::Argmax => (Opcode::Argmax, first(0), 1),
            abi::Op::None | abi::Op::View | abi::Op::Reshape | abi::Op::Permute | abi::Op::Transpose => {
                return Err("computes nothing");
            }
        };
        Ok(Self {
            opcode,
            params,
            srcs: (0..n_srcs).map(|idx| tensor.src(idx)).collect(),
            dst: tensor,
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
            *to = src.map(|src| shape(src, tiled(idx, src))).transpose()?;
        }
        op.dsts[0] = Some(shape(self.dst, false)?);
        Ok(op)
    }

    /// Whether operand `idx` is read as tiles when it can be.
    pub(crate) fn wants_tiles(&self, idx: usize) -> bool {
        idx == 0 && self.opcode == Opcode::MulMat
    }
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

/// Whether a tensor's values come in blocks with a scale.
pub(crate) fn is_quantized(tensor: &Tensor) -> bool {
    let mut types = TYPES.iter().filter(|(dtype, _)| dtype.is_quantized());
    types.any(|(dtype, _)| dtype.number() == tensor.dtype)
}

/// Whether a tensor's bytes may be turned into tiles: a whole quantised leaf, its rows side by side.
pub(crate) fn can_tile(tensor: &Tensor) -> bool {
    let leaf = tensor.op() == Some(abi::Op::None) && tensor.view_src.is_null();
    leaf && tile_bytes(tensor).is_some()
}

/// Bytes of a tensor as tiles, if it can have them.
pub(crate) fn tile_bytes(tensor: &Tensor) -> Option<u64> {
    let rows = shape(tensor, false).ok()?;
    let dense = rows.dense_everywhere() && rows.elems() > 0;
    let layout = TileLayout::new(rows.dtype, rows.ne[0])?;
    layout.strides(rows.dtype, rows.ne)?;
    layout.tensor_bytes(rows.ne).filter(|_| dense)
}
