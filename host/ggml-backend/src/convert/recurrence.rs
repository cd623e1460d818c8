//! ggml's linear attentions as LINEAR_ATTN: GATED_DELTA_NET, RWKV_WKV6, RWKV_WKV7, GATED_LINEAR_ATTN, SSM_SCAN.
//!
//! Each gives results and states in one tensor, the states behind. Which of a state's two dimensions lies side by side
//! differs: for two of them it is that of the values, and rows have a stride.

use hexloom::DType;
use hexloom::abi::Opcode;
use hexloom::abi::recurrence::{BONUS, DELTA, GROUPED, LOW_RANK, PLAIN};

use super::{Node, Why, scratch};
use crate::abi::{self, Tensor};

/// The nodes of such an op, in order; `None` for other ops.
pub(super) fn nodes(tensor: &Tensor) -> Option<Result<Vec<Node>, Why>> {
    Some(match tensor.op()? {
        abi::Op::GatedDeltaNet => gated_delta_net(tensor),
        abi::Op::RwkvWkv6 => rwkv6(tensor),
        abi::Op::RwkvWkv7 => rwkv7(tensor),
        abi::Op::GatedLinearAttn => gated_linear_attn(tensor),
        abi::Op::SsmScan => ssm_scan(tensor),
        _ => return None,
    })
}

/// Sizes of a recurrence.
#[derive(Clone, Copy)]
struct Sizes {
    /// Elements of a key.
    width: i64,
    /// Elements of a value.
    values: i64,
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
    let room = (out.ne[1] - rows).checked_div(width * seqs).unwrap_or(0);
    let sizes = Sizes {
        width,
        values: width,
        heads,
        tokens,
        seqs,
        // Where there are fewer tokens, the places of older states stay as they are.
        kept: room.min(tokens),
    };
    let decays = scratch(out, 1, DType::F32, g.ne)?;
    let scale = 1.0 / (width as f32).sqrt();
    let keys_inside = true;
    let srcs = [q, decays, k, v, sizes.states(&states, keys_inside, 1)?, beta];
    Ok(vec![
        Node::new(Opcode::Exp, &[], &[g], decays),
        sizes.node(out, &[DELTA, scale.to_bits()], &srcs, keys_inside)?,
    ])
}

/// Operands: keys, values, queries, bonus, decays, states.
fn rwkv6(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [k, v, r, bonus, decays, states] = operands(out)?;
    let sizes = Sizes::of(&v, &states)?;
    let keys_inside = false;
    let [k, v, r, decays] = sizes.by_seqs([k, v, r, decays]);
    let srcs = [r, decays, k, v, sizes.states(&states, keys_inside, 1)?, bonus];
    Ok(vec![sizes.node(out, &[BONUS, 1f32.to_bits()], &srcs, keys_inside)?])
}

/// Operands: queries, decays, keys, values, two vectors of the matrix of rank one, states.
fn rwkv7(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [r, decays, k, v, a, b, states] = operands(out)?;
    let sizes = Sizes::of(&v, &states)?;
    let keys_inside = true;
    let [r, decays, k, v] = sizes.by_seqs([r, decays, k, v]);
    let [a, b] = sizes.by_seqs([a, b]);
    let srcs = [r, decays, k, v, sizes.states(&states, keys_inside, 1)?, a, b];
    Ok(vec![sizes.node(
        out,
        &[LOW_RANK, 1f32.to_bits()],
        &srcs,
        keys_inside,
    )?])
}

/// Operands: keys, values, queries, decays, states; parameter: the scale.
fn gated_linear_attn(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [k, v, q, decays, states] = operands(out)?;
    let sizes = Sizes::of(&v, &states)?;
    let keys_inside = false;
    let [k, v, q, decays] = sizes.by_seqs([k, v, q, decays]);
    let scale = out.op_params[0].cast_unsigned();
    let srcs = [q, decays, k, v, sizes.states(&states, keys_inside, 1)?];
    Ok(vec![sizes.node(out, &[PLAIN, scale], &srcs, keys_inside)?])
}

/// Operands: states, values, steps, rates of decay, keys, queries, which states are the sequences'. A step's softplus says
/// how much of the value is taken in, and times the rate how much the state decays.
fn ssm_scan(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [states, x, dt, rates, k, q, ids] = operands(out)?;
    let [values, heads, tokens, seqs] = x.ne;
    let width = states.ne[0];
    let state = width * values * heads;
    let room = (out.ne[0] - x.ne.iter().product::<i64>()).checked_div(state * seqs);
    let sizes = Sizes {
        width,
        values,
        heads,
        tokens,
        seqs,
        kept: room.unwrap_or(0).min(tokens),
    };
    let of_heads = [1, heads, tokens, seqs];
    let dt = Tensor {
        ne: of_heads,
        nb: [4, dt.nb[0], dt.nb[1], dt.nb[2]],
        ..dt
    };
    // The same for every token.
    let rates = Tensor {
        ne: [rates.ne[0], heads, tokens, seqs],
        nb: [rates.nb[0], rates.nb[1], 0, 0],
        ..rates
    };
    let steps = scratch(out, 1, DType::F32, of_heads)?;
    let decays = scratch(out, 2, DType::F32, rates.ne)?;
    // The states begin as the chosen ones, where they end.
    let behind = sizes.behind(out)?;
    let rows = |tensor: &Tensor, n: i64| Tensor {
        ne: [state, n, 1, 1],
        nb: [
            4,
            4 * state as usize,
            4 * (state * n) as usize,
            4 * (state * n) as usize,
        ],
        ..*tensor
    };
    let keys_inside = true;
    let before = sizes.states(&behind, keys_inside, 1)?;
    Ok(vec![
        Node::new(Opcode::Softplus, &[], &[dt], steps),
        Node::new(Opcode::Mul, &[], &[rates, steps], decays),
        Node::new(Opcode::Exp, &[], &[decays], decays),
        Node::new(
            Opcode::GetRows,
            &[],
            &[rows(&states, states.ne[3]), ids],
            rows(&behind, seqs),
        ),
        sizes.node(
            out,
            &[PLAIN, 1f32.to_bits(), GROUPED],
            &[q, decays, k, x, before, steps],
            keys_inside,
        )?,
    ])
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
            values: width,
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
        let [width, values, heads] = self.counts([self.width, self.values, self.heads])?;
        let [inside, outside] = if keys_inside { [4, 4 * width] } else { [4 * values, 4] };
        let head = 4 * width * values;
        Ok(Tensor {
            ne: [self.width, self.values, self.heads, self.seqs * kept],
            nb: [inside, outside, head, head * heads],
            ..*tensor
        })
    }

    /// The op itself: results first in `out`, states behind them.
    fn node(&self, out: &Tensor, params: &[u32], srcs: &[Tensor], keys_inside: bool) -> Result<Node, Why> {
        let [values, heads, tokens] = self.counts([self.values, self.heads, self.tokens])?;
        let results = Tensor {
            ne: [self.values, self.heads, self.tokens, self.seqs],
            nb: [4, 4 * values, 4 * values * heads, 4 * values * heads * tokens],
            ..*out
        };
        let states = self.states(&self.behind(out)?, keys_inside, self.kept)?;
        Ok(Node {
            dst_2: Some(states),
            ..Node::new(Opcode::LinearAttn, params, srcs, results)
        })
    }

    /// What lies behind the results.
    fn behind(&self, out: &Tensor) -> Result<Tensor, Why> {
        let sizes = self.counts([self.values, self.heads, self.tokens, self.seqs])?;
        Ok(Tensor {
            data: out.data.wrapping_byte_add(4 * sizes.iter().product::<usize>()),
            ..*out
        })
    }

    fn counts<const N: usize>(&self, sizes: [i64; N]) -> Result<[usize; N], Why> {
        match sizes.iter().all(|&n| n >= 0) {
            true => Ok(sizes.map(|n| n as usize)),
            false => Err("has a negative dimension"),
        }
    }
}

fn operands<const N: usize>(out: &Tensor) -> Result<[Tensor; N], Why> {
    let all: Option<Vec<Tensor>> = (0..N).map(|idx| out.src(idx).copied()).collect();
    let all = all.and_then(|all| all.try_into().ok());
    all.ok_or("lacks an operand")
}
