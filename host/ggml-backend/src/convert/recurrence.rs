//! ggml's linear attentions as LINEAR_ATTN: GATED_DELTA_NET, RWKV_WKV6, RWKV_WKV7, GATED_LINEAR_ATTN.
//!
//! Each gives results and states in one tensor, the states behind. Which of a state's two dimensions lies side by side
//! differs: for two of them it is that of the values, and rows have a stride.

use hexloom::DType;
use hexloom::abi::Opcode;
use hexloom::abi::limits::MAX_PARAMS;
use hexloom::abi::recurrence::{BONUS, DELTA, LOW_RANK, PLAIN};

use super::{Node, Why, scratch};
use crate::abi::{self, Tensor};

/// The nodes of such an op, in order; `None` for other ops.
pub(super) fn nodes(tensor: &Tensor) -> Option<Result<Vec<Node>, Why>> {
    Some(match tensor.op()? {
        abi::Op::GatedDeltaNet => gated_delta_net(tensor),
        abi::Op::RwkvWkv6 => rwkv6(tensor),
        abi::Op::RwkvWkv7 => rwkv7(tensor),
        abi::Op::GatedLinearAttn => gated_linear_attn(tensor),
        _ => return None,
    })
}

/// Sizes of a recurrence whose keys are as wide as its values.
#[derive(Clone, Copy)]
struct Sizes {
    width: i64,
    heads: i64,
    tokens: i64,
    seqs: i64,
    /// Tokens after which states are kept.
    kept: i64,
}

/// Operands: queries, keys, values, logarithms of decays, betas, states.
fn gated_delta_net(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [q, k, v, g, beta, states] = operands(out)?;
    let [width, heads, tokens, seqs] = v.ne;
    let rows = tokens * seqs;
    let sizes = Sizes {
        width,
        heads,
        tokens,
        seqs,
        kept: (out.ne[1] - rows).checked_div(width * seqs).unwrap_or(0),
    };
    let decays = scratch(out, DType::F32, g.ne)?;
    let exp = Node {
        opcode: Opcode::Exp,
        params: [0; MAX_PARAMS],
        srcs: vec![Some(g)],
        dst: decays,
        dst_2: None,
    };
    let scale = 1.0 / (width as f32).sqrt();
    let keys_inside = true;
    let srcs = [q, decays, k, v, sizes.states(&states, keys_inside, 1)?, beta];
    Ok(vec![exp, sizes.node(out, (DELTA, scale), &srcs, keys_inside)?])
}

/// Operands: keys, values, queries, bonus, decays, states.
fn rwkv6(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [k, v, r, bonus, decays, states] = operands(out)?;
    let sizes = Sizes::of(&v, &states)?;
    let keys_inside = false;
    let [k, v, r, decays] = sizes.by_seqs([k, v, r, decays]);
    let srcs = [r, decays, k, v, sizes.states(&states, keys_inside, 1)?, bonus];
    Ok(vec![sizes.node(out, (BONUS, 1.0), &srcs, keys_inside)?])
}

/// Operands: queries, decays, keys, values, two vectors of the matrix of rank one, states.
fn rwkv7(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [r, decays, k, v, a, b, states] = operands(out)?;
    let sizes = Sizes::of(&v, &states)?;
    let keys_inside = true;
    let [r, decays, k, v] = sizes.by_seqs([r, decays, k, v]);
    let [a, b] = sizes.by_seqs([a, b]);
    let srcs = [r, decays, k, v, sizes.states(&states, keys_inside, 1)?, a, b];
    Ok(vec![sizes.node(out, (LOW_RANK, 1.0), &srcs, keys_inside)?])
}

/// Operands: keys, values, queries, decays, states; parameter: the scale.
fn gated_linear_attn(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [k, v, q, decays, states] = operands(out)?;
    let sizes = Sizes::of(&v, &states)?;
    let keys_inside = false;
    let [k, v, q, decays] = sizes.by_seqs([k, v, q, decays]);
    let scale = f32::from_bits(out.op_params[0].cast_unsigned());
    let srcs = [q, decays, k, v, sizes.states(&states, keys_inside, 1)?];
    Ok(vec![sizes.node(out, (PLAIN, scale), &srcs, keys_inside)?])
}

impl Sizes {
    /// Those of operands that have the tokens of all sequences one after the other.
    fn of(values: &Tensor, states: &Tensor) -> Result<Self, Why> {
        let [width, heads, all, _] = values.ne;
        let seqs = states.ne[1];
        if seqs < 1 || all % seqs != 0 {
            return Err("has sequences of different lengths");
        }
        Ok(Self {
            width,
            heads,
            tokens: all / seqs,
            seqs,
            kept: 1,
        })
    }

    /// Operands with a dimension for the sequences.
    fn by_seqs<const N: usize>(&self, operands: [Tensor; N]) -> [Tensor; N] {
        operands.map(|tensor| Tensor {
            ne: [tensor.ne[0], tensor.ne[1], self.tokens, self.seqs],
            nb: [
                tensor.nb[0],
                tensor.nb[1],
                tensor.nb[2],
                tensor.nb[2] * self.tokens as usize,
            ],
            ..tensor
        })
    }

    /// States that lie side by side from where `tensor` begins, so many for each sequence.
    fn states(&self, tensor: &Tensor, keys_inside: bool, kept: i64) -> Result<Tensor, Why> {
        let n = usize::try_from(self.width).map_err(|_| "has a negative dimension")?;
        let heads = usize::try_from(self.heads).map_err(|_| "has a negative dimension")?;
        let [inside, outside] = if keys_inside { [4, 4 * n] } else { [4 * n, 4] };
        Ok(Tensor {
            ne: [self.width, self.width, self.heads, self.seqs * kept],
            nb: [inside, outside, 4 * n * n, 4 * n * n * heads],
            ..*tensor
        })
    }

    /// The op itself: results first in `out`, states behind them.
    fn node(&self, out: &Tensor, (rule, scale): (u32, f32), srcs: &[Tensor], keys_inside: bool) -> Result<Node, Why> {
        let row = usize::try_from(4 * self.width).map_err(|_| "has a negative dimension")?;
        let token = row * self.heads as usize;
        let results = Tensor {
            ne: [self.width, self.heads, self.tokens, self.seqs],
            nb: [4, row, token, token * self.tokens as usize],
            ..*out
        };
        let bytes = token * (self.tokens * self.seqs) as usize;
        let behind = Tensor {
            data: out.data.wrapping_byte_add(bytes),
            ..*out
        };
        let mut params = [0; MAX_PARAMS];
        (params[0], params[1]) = (rule, scale.to_bits());
        Ok(Node {
            opcode: Opcode::LinearAttn,
            params,
            srcs: srcs.iter().copied().map(Some).collect(),
            dst: results,
            dst_2: Some(self.states(&behind, keys_inside, self.kept)?),
        })
    }
}

fn operands<const N: usize>(out: &Tensor) -> Result<[Tensor; N], Why> {
    let all: Option<Vec<Tensor>> = (0..N).map(|idx| out.src(idx).copied()).collect();
    let all = all.and_then(|all| all.try_into().ok());
    all.ok_or("lacks an operand")
}
