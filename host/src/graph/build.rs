//! One method per op: infers the result's shape, records the node, gives the result.
//!
//! Dimensions are ggml's: `ne[0]` is innermost; `MUL_MAT` of weight `[k, n]` and activation `[k, m]` is `[n, m]`.

use hexloom_abi::limits::MAX_PARAMS;
use hexloom_abi::{DType, Opcode};

use super::{Graph, Role, Storage, TensorId, dense};
use crate::error::GraphError;

/// Parameters of `ROPE`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RopeParams {
    /// Leading elements of a row that are rotated; even.
    pub n_dims: u32,
    /// 0: pairs (2i, 2i+1); 2: pairs (i, i + n/2).
    pub mode: u32,
    /// Context length the model was trained with, for YaRN.
    pub n_ctx_orig: u32,
    /// Base of the frequencies.
    pub freq_base: f32,
    /// Factor on every angle.
    pub freq_scale: f32,
    /// YaRN's mix of extrapolation; 0 turns YaRN off.
    pub ext_factor: f32,
    /// Factor on the result.
    pub attn_factor: f32,
    /// YaRN's fast corner.
    pub beta_fast: f32,
    /// YaRN's slow corner.
    pub beta_slow: f32,
}

/// Parameters of `FLASH_ATTN_EXT`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AttentionParams {
    /// Factor on every score, usually 1/sqrt(head size).
    pub scale: f32,
    /// Largest ALiBi bias; 0 = none.
    pub max_bias: f32,
    /// Soft cap of the scores; 0 = none.
    pub softcap: f32,
}

impl Default for RopeParams {
    fn default() -> Self {
        Self {
            n_dims: 0,
            mode: 0,
            n_ctx_orig: 0,
            freq_base: 10_000.0,
            freq_scale: 1.0,
            ext_factor: 0.0,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
        }
    }
}

type Id = Result<TensorId, GraphError>;

impl Graph {
    /// weight `[k, n, a, b]` times x `[k, m, c, d]`, giving F32 `[n, m, c, d]`; a divides c, b divides d.
    pub fn mul_mat(&mut self, name: &str, weight: TensorId, x: TensorId) -> Id {
        let [_, n, ..] = self.shape(weight).ne;
        let [_, m, c, d] = self.shape(x).ne;
        self.op(name, Opcode::MulMat, &[], &[weight, x], DType::F32, [n, m, c, d])
    }

    /// a + b, b repeated.
    pub fn add(&mut self, name: &str, a: TensorId, b: TensorId) -> Id {
        self.like(name, Opcode::Add, &[], &[a, b])
    }

    /// a - b, b repeated.
    pub fn sub(&mut self, name: &str, a: TensorId, b: TensorId) -> Id {
        self.like(name, Opcode::Sub, &[], &[a, b])
    }

    /// a * b, b repeated.
    pub fn mul(&mut self, name: &str, a: TensorId, b: TensorId) -> Id {
        self.like(name, Opcode::Mul, &[], &[a, b])
    }

    /// a / b, b repeated.
    pub fn div(&mut self, name: &str, a: TensorId, b: TensorId) -> Id {
        self.like(name, Opcode::Div, &[], &[a, b])
    }

    /// x / sqrt(mean(x^2) + eps) per row.
    pub fn rms_norm(&mut self, name: &str, x: TensorId, eps: f32) -> Id {
        self.like(name, Opcode::RmsNorm, &[eps.to_bits()], &[x])
    }

    /// (x - mean) / sqrt(variance + eps) per row.
    pub fn norm(&mut self, name: &str, x: TensorId, eps: f32) -> Id {
        self.like(name, Opcode::Norm, &[eps.to_bits()], &[x])
    }

    /// An op without parameters on each element: SILU, GELU, GELU_ERF, GELU_QUICK.
    pub fn unary(&mut self, name: &str, opcode: Opcode, x: TensorId) -> Id {
        self.like(name, opcode, &[], &[x])
    }

    /// activation(x) * gate: SWIGLU, GEGLU, GEGLU_ERF, GEGLU_QUICK.
    pub fn gated(&mut self, name: &str, opcode: Opcode, x: TensorId, gate: TensorId) -> Id {
        self.like(name, opcode, &[], &[x, gate])
    }

    /// The same with both halves in one tensor; `swapped` takes the second half as x.
    pub fn gated_halves(&mut self, name: &str, opcode: Opcode, x: TensorId, swapped: bool) -> Id {
        let shape = *self.shape(x);
        let [n0, n1, n2, n3] = shape.ne;
        let params = [u32::from(swapped)];
        self.op(name, opcode, &params, &[x], shape.dtype, [n0 / 2, n1, n2, n3])
    }

    /// x * s + b.
    pub fn scale(&mut self, name: &str, x: TensorId, s: f32, b: f32) -> Id {
        self.like(name, Opcode::Scale, &[s.to_bits(), b.to_bits()], &[x])
    }

    /// min(max(x, low), high).
    pub fn clamp(&mut self, name: &str, x: TensorId, low: f32, high: f32) -> Id {
        self.like(name, Opcode::Clamp, &[low.to_bits(), high.to_bits()], &[x])
    }

    /// Rotary embedding of x `[size, heads, tokens, sequences]` at I32 positions `[tokens]`.
    pub fn rope(
        &mut self,
        name: &str,
        x: TensorId,
        positions: TensorId,
        factors: Option<TensorId>,
        rope: &RopeParams,
    ) -> Id {
        let mut params = [0; MAX_PARAMS];
        params[1] = rope.n_dims;
        params[2] = rope.mode;
        params[4] = rope.n_ctx_orig;
        let floats = [
            rope.freq_base,
            rope.freq_scale,
            rope.ext_factor,
            rope.attn_factor,
            rope.beta_fast,
            rope.beta_slow,
        ];
        for (to, from) in params[5..].iter_mut().zip(floats) {
            *to = from.to_bits();
        }
        let srcs = [Some(x), Some(positions), factors];
        let shape = *self.shape(x);
        self.op_with(name, Opcode::Rope, &params, &srcs, shape.dtype, shape.ne)
    }

    /// softmax(x * scale + slope * mask) per row, with optional sinks `[heads]`.
    pub fn soft_max(
        &mut self,
        name: &str,
        x: TensorId,
        mask: Option<TensorId>,
        sinks: Option<TensorId>,
        scale: f32,
        max_bias: f32,
    ) -> Id {
        let shape = *self.shape(x);
        let params = [scale.to_bits(), max_bias.to_bits()];
        let srcs = [Some(x), mask, sinks];
        self.op_with(name, Opcode::SoftMax, &params, &srcs, shape.dtype, shape.ne)
    }

    /// Attention of q `[dk, tokens, heads, seqs]` over k `[dk, kv, kv heads, seqs]` and v `[dv, kv, kv heads, seqs]`,
    /// giving F32 `[dv, heads, tokens, seqs]`.
    #[expect(clippy::too_many_arguments, reason = "the op's operands, in ggml's order")]
    pub fn flash_attn(
        &mut self,
        name: &str,
        q: TensorId,
        k: TensorId,
        v: TensorId,
        mask: Option<TensorId>,
        sinks: Option<TensorId>,
        attention: &AttentionParams,
    ) -> Id {
        let [_, tokens, heads, seqs] = self.shape(q).ne;
        let [dv, ..] = self.shape(v).ne;
        let params = [attention.scale, attention.max_bias, attention.softcap].map(f32::to_bits);
        let srcs = [Some(q), Some(k), Some(v), mask, sinks];
        let ne = [dv, heads, tokens, seqs];
        self.op_with(name, Opcode::FlashAttnExt, &params, &srcs, DType::F32, ne)
    }

    /// Rows of `table` at I32 or I64 indices, as F32 (I32 stays I32).
    pub fn get_rows(&mut self, name: &str, table: TensorId, indices: TensorId) -> Id {
        let table_shape = *self.shape(table);
        let [i0, i1, i2, _] = self.shape(indices).ne;
        let dtype = match table_shape.dtype {
            DType::I32 => DType::I32,
            _ => DType::F32,
        };
        let ne = [table_shape.ne[0], i0, i1, i2];
        self.op(name, Opcode::GetRows, &[], &[table, indices], dtype, ne)
    }

    /// Stores the rows of `rows` into `into` at I32 or I64 indices; gives `into`.
    pub fn set_rows(&mut self, name: &str, into: TensorId, rows: TensorId, indices: TensorId) -> Id {
        let srcs = vec![Some(rows), Some(indices)];
        self.node(name, Opcode::SetRows, [0; MAX_PARAMS], srcs, vec![into])?;
        Ok(into)
    }

    /// Copies `from` into `into`, converting; gives `into`.
    pub fn cpy(&mut self, name: &str, from: TensorId, into: TensorId) -> Id {
        self.node(name, Opcode::Cpy, [0; MAX_PARAMS], vec![Some(from)], vec![into])?;
        Ok(into)
    }

    /// A dense copy.
    pub fn cont(&mut self, name: &str, x: TensorId) -> Id {
        self.like(name, Opcode::Cpy, &[], &[x])
    }

    /// Index of the first maximum of each row, I32.
    pub fn argmax(&mut self, name: &str, x: TensorId) -> Id {
        let [_, n1, n2, n3] = self.shape(x).ne;
        self.op(name, Opcode::Argmax, &[], &[x], DType::I32, [n1, n2, n3, 1])
    }

    /// An op whose result has the type and dimensions of its first operand.
    fn like(&mut self, name: &str, opcode: Opcode, params: &[u32], srcs: &[TensorId]) -> Id {
        let shape = *self.shape(srcs[0]);
        self.op(name, opcode, params, srcs, shape.dtype, shape.ne)
    }

    fn op(&mut self, name: &str, opcode: Opcode, params: &[u32], srcs: &[TensorId], dtype: DType, ne: [u32; 4]) -> Id {
        let srcs: Vec<Option<TensorId>> = srcs.iter().copied().map(Some).collect();
        self.op_with(name, opcode, params, &srcs, dtype, ne)
    }

    fn op_with(
        &mut self,
        name: &str,
        opcode: Opcode,
        params: &[u32],
        srcs: &[Option<TensorId>],
        dtype: DType,
        ne: [u32; 4],
    ) -> Id {
        let shape = dense(name, dtype, ne)?;
        let dst = self.add_tensor(name, shape, Storage::Computed, Role::Inner);
        let mut all = [0; MAX_PARAMS];
        for (to, from) in all.iter_mut().zip(params) {
            *to = *from;
        }
        match self.node(name, opcode, all, srcs.to_vec(), vec![dst]) {
            Ok(()) => Ok(dst),
            Err(error) => {
                self.tensors.pop();
                Err(error)
            }
        }
    }
}
