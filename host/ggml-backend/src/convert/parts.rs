//! ggml's ops that write a result part by part: copies, and an addition, into views of it.

use hexloom::abi::Opcode;

use super::{Node, Why};
use crate::abi::{self, Tensor};

/// Copies of a REPEAT; more are left to the CPU.
const MAX_COPIES: i64 = 64;

/// The nodes of such an op, in order; `None` for other ops.
pub(super) fn nodes(tensor: &Tensor) -> Option<Result<Vec<Node>, Why>> {
    Some(match tensor.op()? {
        abi::Op::Concat => concat(tensor),
        abi::Op::Repeat => repeat(tensor),
        abi::Op::Set => set(tensor, Opcode::Cpy),
        abi::Op::Acc => set(tensor, Opcode::Add),
        _ => return None,
    })
}

fn concat(tensor: &Tensor) -> Result<Vec<Node>, Why> {
    let dim = usize::try_from(tensor.op_params[0]).ok().filter(|&dim| dim < 4);
    let dim = dim.ok_or("is along a dimension that does not exist")?;
    let mut at = [0; 4];
    let mut nodes = Vec::new();
    for src in (0..10).map_while(|idx| tensor.src(idx)) {
        nodes.push(cpy(*src, part(tensor, src.ne, at)?));
        at[dim] += src.ne[dim];
    }
    Ok(nodes)
}

fn repeat(tensor: &Tensor) -> Result<Vec<Node>, Why> {
    let src = tensor.src(0).ok_or("has no operand")?;
    let times = |dim: usize| tensor.ne[dim].checked_div(src.ne[dim]).unwrap_or(0);
    let times = [times(0), times(1), times(2), times(3)];
    let copies: i64 = times.iter().product();
    if copies > MAX_COPIES {
        return Err("repeats more often than copies are worth");
    }
    let place = |copy: i64| {
        let mut rest = copy;
        let mut at = [0; 4];
        for dim in 0..4 {
            at[dim] = rest % times[dim] * src.ne[dim];
            rest /= times[dim];
        }
        at
    };
    let all = (0..copies).map(|copy| Ok(cpy(*src, part(tensor, src.ne, place(copy))?)));
    all.collect()
}

/// The first operand with the second stored, or added, at an offset; parameters: three strides, the offset, in place.
fn set(tensor: &Tensor, opcode: Opcode) -> Result<Vec<Node>, Why> {
    let (whole, piece) = (tensor.src(0), tensor.src(1));
    let (whole, piece) = whole.zip(piece).ok_or("lacks an operand")?;
    let number = |idx: usize| usize::try_from(tensor.op_params[idx]).map_err(|_| "has a negative stride or offset");
    let nb = [tensor.nb[0], number(0)?, number(1)?, number(2)?];
    let to = Tensor {
        ne: piece.ne,
        nb,
        data: tensor.data.wrapping_byte_add(number(3)?),
        ..*tensor
    };
    let mut nodes = Vec::new();
    if whole.data != tensor.data || tensor.data.is_null() {
        nodes.push(cpy(*whole, *tensor));
    }
    nodes.push(match opcode {
        Opcode::Add => Node::new(opcode, &[], &[to, *piece], to),
        _ => cpy(*piece, to),
    });
    Ok(nodes)
}

pub(super) fn cpy(from: Tensor, to: Tensor) -> Node {
    Node::new(Opcode::Cpy, &[], &[from], to)
}

/// A view of `ne` elements whose first one is at `at`.
pub(super) fn part(tensor: &Tensor, ne: [i64; 4], at: [i64; 4]) -> Result<Tensor, Why> {
    let block = super::block_elems(tensor).ok_or("hexloom does not know a data type")?;
    if at[0] % block != 0 {
        return Err("begins within a block");
    }
    let places = [at[0] / block, at[1], at[2], at[3]];
    let offset = places
        .iter()
        .zip(tensor.nb)
        .map(|(&place, stride)| place as usize * stride)
        .sum();
    Ok(Tensor {
        ne,
        data: tensor.data.wrapping_byte_add(offset),
        ..*tensor
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::test_tensor as f32;

    #[test]
    fn parts_lie_behind_each_other() {
        let (mut a, mut b) = (f32([4, 2, 1, 1], abi::Op::None), f32([4, 3, 1, 1], abi::Op::None));
        let mut whole = f32([4, 5, 1, 1], abi::Op::Concat);
        whole.op_params[0] = 1;
        (whole.src[0], whole.src[1]) = (&raw mut a, &raw mut b);
        let nodes = nodes(&whole).unwrap().unwrap();
        let places: Vec<usize> = nodes.iter().map(|node| node.dst.data as usize).collect();
        assert_eq!(places, [0x1000, 0x1000 + 2 * 16]);
        assert_eq!(nodes[1].dst.ne, [4, 3, 1, 1]);
    }

    #[test]
    fn a_repeat_is_a_copy_for_each_place() {
        let mut a = f32([2, 1, 1, 1], abi::Op::None);
        let mut whole = f32([4, 3, 1, 1], abi::Op::Repeat);
        whole.src[0] = &raw mut a;
        let places = nodes(&whole).unwrap().unwrap();
        let places: Vec<usize> = places.iter().map(|node| node.dst.data as usize - 0x1000).collect();
        assert_eq!(places, [0, 8, 16, 24, 32, 40]);
        whole.ne = [4, 300, 1, 1];
        assert!(nodes(&whole).unwrap().is_err());
    }
}
