//! ggml's ops that are a few of hexloom's: ARANGE, TIMESTEP_EMBEDDING, GROUP_NORM, ADD_ID, SWIGLU_OAI, SWIGLU_CLAMP,
//! SSM_CONV, SOLVE_TRI.
//!
//! What comes in between lies in the result itself, or in a scratch tensor whose memory the graph plans.

use hexloom::DType;
use hexloom::abi::Opcode;

use super::moves::fill;
use super::parts::{cpy, part};
use super::{Node, Why, scratch};
use crate::abi::{self, Tensor};

/// Kinds of GLU that are made of others. Parameters behind kind and order: alpha, which the second has not, and limit.
const SWIGLU_OAI: i32 = 3;
const SWIGLU_CLAMP: i32 = 6;
/// Elements of a window of SSM_CONV; two nodes each.
const MAX_WINDOW: i64 = 64;

/// Rows of a triangular system; three nodes each.
const MAX_ROWS: i64 = 256;

/// The nodes of such an op, in order; `None` for other ops.
pub(super) fn nodes(tensor: &Tensor) -> Option<Result<Vec<Node>, Why>> {
    Some(match tensor.op()? {
        abi::Op::Arange => arange(tensor),
        abi::Op::TimestepEmbedding => timestep_embedding(tensor),
        abi::Op::GroupNorm => group_norm(tensor),
        abi::Op::AddId => add_id(tensor),
        abi::Op::SsmConv => ssm_conv(tensor),
        abi::Op::SolveTri => solve_tri(tensor),
        abi::Op::Glu => match (tensor.op_params[0], floats(tensor)) {
            (SWIGLU_OAI, [_, _, alpha, limit]) => clamped_swiglu(tensor, (alpha, limit, 1.0)),
            (SWIGLU_CLAMP, [_, _, _, limit]) => clamped_swiglu(tensor, (1.0, limit, 0.0)),
            _ => return None,
        },
        _ => return None,
    })
}

/// Parameters: start, stop, step.
fn arange(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [start, _, step] = floats(out);
    Ok(vec![
        fill(out, step),
        Node::new(Opcode::Cumsum, &[], &[*out], *out),
        scale(*out, 1.0, start - step),
    ])
}

/// Cosines, then sines, of each number times falling frequencies. Parameters: dimensions, longest period.
fn timestep_embedding(out: &Tensor) -> Result<Vec<Node>, Why> {
    let steps = operand(out, 0)?;
    let [dim, period] = [0, 1].map(|idx| i64::from(out.op_params[idx]));
    let [half, n] = [dim / 2, steps.ne[0]];
    if half < 1 || period < 1 || dim > out.ne[0] || n != out.ne[1] {
        return Err("has dimensions that do not fit");
    }
    let cosines = part(out, [half, n, 1, 1], [0; 4])?;
    let sines = part(out, [half, n, 1, 1], [half, 0, 0, 0])?;
    // One number for each row.
    let steps = Tensor {
        ne: [1, n, 1, 1],
        nb: [steps.nb[0], steps.nb[0], steps.nb[1], steps.nb[2]],
        ..steps
    };
    let falls_by = -(period as f64).ln() / half as f64;
    let mut nodes = Vec::new();
    if out.ne[0] > 2 * half {
        let rest = [out.ne[0] - 2 * half, n, 1, 1];
        nodes.push(fill(&part(out, rest, [2 * half, 0, 0, 0])?, 0.0));
    }
    nodes.extend([
        fill(&sines, 1.0),
        Node::new(Opcode::Cumsum, &[], &[sines], sines),
        scale(sines, falls_by as f32, -falls_by as f32),
        Node::new(Opcode::Exp, &[], &[sines], sines),
        Node::new(Opcode::Mul, &[], &[sines, steps], sines),
        Node::new(Opcode::Cos, &[], &[sines], cosines),
        Node::new(Opcode::Sin, &[], &[sines], sines),
    ]);
    Ok(nodes)
}

/// Channels in so many groups, each normalised as one row. Parameters: groups, epsilon.
fn group_norm(out: &Tensor) -> Result<Vec<Node>, Why> {
    let x = operand(out, 0)?;
    let groups = i64::from(out.op_params[0]);
    let [width, height, channels, n] = x.ne;
    if groups < 1 || channels % groups != 0 {
        return Err("has groups of different sizes");
    }
    let row = width * height * (channels / groups);
    let grouped = |tensor: Tensor| {
        let nb1 = tensor.nb[0] * row as usize;
        Tensor {
            ne: [row, groups, n, 1],
            nb: [tensor.nb[0], nb1, tensor.nb[3], tensor.nb[3] * n as usize],
            ..tensor
        }
    };
    if !(packed(&x) && packed(out)) {
        return Err("has rows that do not follow each other");
    }
    let eps = out.op_params[1].cast_unsigned();
    Ok(vec![Node::new(Opcode::Norm, &[eps], &[grouped(x)], grouped(*out))])
}

/// Each row plus the row of the second operand that its index names. ggml may place the result over the first operand, so
/// nothing is written there before the sum.
fn add_id(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [rows, table, ids] = [operand(out, 0)?, operand(out, 1)?, operand(out, 2)?];
    let n = ids.ne[0] * ids.ne[1];
    let numbers = [rows, *out].iter().all(|tensor| tensor.nb[0] == 4 && packed(tensor));
    if !numbers || ids.ne[2] * ids.ne[3] != 1 || n != out.ne[1] * out.ne[2] {
        return Err("has rows that do not follow each other");
    }
    let line = scratch(out, 1, DType::I32, [n, 1, 1, 1])?;
    let picked = scratch(out, 2, DType::F32, [out.ne[0], n, 1, 1])?;
    let flat = |tensor: &Tensor| Tensor {
        ne: picked.ne,
        nb: picked.nb,
        ..*tensor
    };
    Ok(vec![
        cpy(ids, line),
        Node::new(Opcode::GetRows, &[], &[table, line], picked),
        Node::new(Opcode::Add, &[], &[flat(&rows), picked], flat(out)),
    ])
}

/// `min(x, limit)` times its logistic at `alpha`, times the gate within the limit on both sides, or one more than that.
fn clamped_swiglu(out: &Tensor, (alpha, limit, more): (f32, f32, f32)) -> Result<Vec<Node>, Why> {
    let x = operand(out, 0)?;
    let (x, gate) = match out.src(1) {
        Some(gate) => (x, *gate),
        None => {
            let half = x.ne[0] / 2;
            let ne = [half, x.ne[1], x.ne[2], x.ne[3]];
            let at = |start| part(&x, ne, [start, 0, 0, 0]);
            match out.op_params[1] {
                0 => (at(0)?, at(half)?),
                _ => (at(half)?, at(0)?),
            }
        }
    };
    if alpha == 0.0 {
        return Err("has no slope");
    }
    let gated = scratch(out, 1, DType::F32, out.ne)?;
    let clamp = |from, low: f32, to| Node::new(Opcode::Clamp, &[low.to_bits(), limit.to_bits()], &[from], to);
    Ok(vec![
        clamp(x, f32::NEG_INFINITY, gated),
        scale(gated, alpha, 0.0),
        Node::new(Opcode::Silu, &[], &[gated], gated),
        scale(gated, 1.0 / alpha, 0.0),
        clamp(gate, -limit, *out),
        scale(*out, 1.0, more),
        Node::new(Opcode::Mul, &[], &[*out, gated], *out),
    ])
}

/// A window over the tokens of each channel, with weights of its own for each.
fn ssm_conv(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [x, weights] = [operand(out, 0)?, operand(out, 1)?];
    let [window, channels] = [weights.ne[0], weights.ne[1]];
    let [n_channels, n_tokens, n_seqs, _] = out.ne;
    let fits = x.ne[0] == window - 1 + n_tokens && x.ne[1] == channels && n_channels == channels;
    if !fits || !(1..=MAX_WINDOW).contains(&window) {
        return Err("has a window that does not fit");
    }
    let product = scratch(out, 1, DType::F32, out.ne)?;
    let mut nodes = Vec::new();
    for at in 0..window {
        let seen = part(&x, out.ne, [at, 0, 0, 0])?;
        let seen = Tensor {
            ne: [channels, n_tokens, n_seqs, 1],
            nb: [x.nb[1], x.nb[0], x.nb[2], x.nb[3]],
            ..seen
        };
        let weight = part(&weights, [channels, 1, 1, 1], [at, 0, 0, 0])?;
        let weight = Tensor {
            nb: [weights.nb[1], weights.nb[2], weights.nb[2], weights.nb[3]],
            ..weight
        };
        let to = if at == 0 { *out } else { product };
        nodes.push(Node::new(Opcode::Mul, &[], &[seen, weight], to));
        if at > 0 {
            nodes.push(Node::new(Opcode::Add, &[], &[*out, product], *out));
        }
    }
    Ok(nodes)
}

/// Solves A x = b for a lower triangle A: each row, once divided, is taken out of all that follow.
fn solve_tri(out: &Tensor) -> Result<Vec<Node>, Why> {
    let [a, b] = [operand(out, 0)?, operand(out, 1)?];
    let [n, rows, n2, n3] = a.ne;
    let [width, ..] = out.ne;
    if n != rows || rows != out.ne[1] || rows > MAX_ROWS {
        return Err("has a system that does not fit");
    }
    let mut nodes = vec![cpy(b, *out)];
    for row in 0..rows {
        let solved = part(out, [width, 1, n2, n3], [0, row, 0, 0])?;
        let pivot = part(&a, [1, 1, n2, n3], [row, row, 0, 0])?;
        nodes.push(Node::new(Opcode::Div, &[], &[solved, pivot], solved));
        let below = rows - row - 1;
        if below == 0 {
            continue;
        }
        let product = scratch(out, 1, DType::F32, [width, below, n2, n3])?;
        let column = part(&a, [below, 1, n2, n3], [row, row + 1, 0, 0])?;
        let column = Tensor {
            nb: [a.nb[1], a.nb[1], a.nb[2], a.nb[3]],
            ..column
        };
        let rest = part(out, [width, below, n2, n3], [0, row + 1, 0, 0])?;
        nodes.push(Node::new(Opcode::OutProd, &[], &[solved, column], product));
        nodes.push(Node::new(Opcode::Sub, &[], &[rest, product], rest));
    }
    Ok(nodes)
}

fn operand(out: &Tensor, idx: usize) -> Result<Tensor, Why> {
    out.src(idx).copied().ok_or("lacks an operand")
}

fn floats<const N: usize>(out: &Tensor) -> [f32; N] {
    std::array::from_fn(|idx| f32::from_bits(out.op_params[idx].cast_unsigned()))
}

/// s * x + b over itself.
fn scale(x: Tensor, s: f32, b: f32) -> Node {
    Node::new(Opcode::Scale, &[s.to_bits(), b.to_bits()], &[x], x)
}

/// Whether all elements follow each other.
fn packed(tensor: &Tensor) -> bool {
    let mut next = tensor.nb[0];
    tensor.ne.iter().zip(tensor.nb).all(|(&n, stride)| {
        let fits = n == 1 || stride == next;
        next = next.saturating_mul(n as usize);
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::super::is_scratch;
    use super::*;
    use crate::abi::test_tensor as f32;

    /// Its result may lie over the first operand.
    #[test]
    fn add_id_writes_its_result_last() {
        let (mut rows, mut table) = (f32([32, 2, 3, 1], abi::Op::None), f32([32, 4, 1, 1], abi::Op::None));
        let mut ids = Tensor {
            dtype: DType::I32.number(),
            ..f32([2, 3, 1, 1], abi::Op::None)
        };
        let mut out = f32([32, 2, 3, 1], abi::Op::AddId);
        out.src[..3].copy_from_slice(&[&raw mut rows, &raw mut table, &raw mut ids]);
        let nodes = nodes(&out).unwrap().unwrap();
        let (last, before) = nodes.split_last().unwrap();
        assert!(before.iter().all(|node| is_scratch(&node.dst)));
        assert_eq!(last.dst.data, out.data);
    }
}
