//! ggml's ops that only place data: FILL, PAD, ROLL, DIAG, TRI and UPSCALE by whole factors, as a constant where nothing
//! comes to lie and a copy for each piece that does.

use hexloom::abi::Opcode;

use super::parts::{cpy, part};
use super::{Node, Why};
use crate::abi::{self, Tensor};

/// Copies of one op; more are left to the CPU. A tensor that is wrapped around in all four dimensions has 81 pieces.
const MAX_COPIES: usize = 128;

/// Kinds of TRI: what is kept of a row.
const UPPER_DIAG: i32 = 0;
const UPPER: i32 = 1;
const LOWER_DIAG: i32 = 2;
const LOWER: i32 = 3;

/// UPSCALE by the nearest element, and not along the corners.
const NEAREST: i32 = 0;

/// The nodes of such an op, in order; `None` for other ops.
pub(super) fn nodes(tensor: &Tensor) -> Option<Result<Vec<Node>, Why>> {
    let op = tensor.op()?;
    if op == abi::Op::Fill {
        return Some(Ok(vec![fill(
            tensor,
            f32::from_bits(tensor.op_params[0].cast_unsigned()),
        )]));
    }
    let place = match op {
        abi::Op::Pad => pad,
        abi::Op::Roll => roll,
        abi::Op::Diag => diag,
        abi::Op::Tri => tri,
        abi::Op::Upscale => upscale,
        _ => return None,
    };
    Some(tensor.src(0).ok_or("has no operand").and_then(|src| {
        let nodes = place(src, tensor)?;
        match nodes.len() {
            0..=MAX_COPIES => Ok(nodes),
            _ => Err("takes more copies than are worth it"),
        }
    }))
}

/// A constant everywhere.
pub(super) fn fill(tensor: &Tensor, value: f32) -> Node {
    Node::new(Opcode::Fill, &[value.to_bits()], &[*tensor], *tensor)
}

/// Parameters: for each dimension the elements before and after; then whether they go on from the other side.
fn pad(src: &Tensor, out: &Tensor) -> Result<Vec<Node>, Why> {
    let before = [0, 2, 4, 6].map(|idx| i64::from(out.op_params[idx]));
    if out.op_params[8] != 0 {
        return wrapped(src, out, before);
    }
    let inside = (0..4).all(|dim| before[dim] >= 0 && before[dim] + src.ne[dim] <= out.ne[dim]);
    if !inside {
        return Err("pads by a negative number");
    }
    Ok(vec![fill(out, 0.0), cpy(*src, part(out, src.ne, before)?)])
}

/// Parameters: how far each dimension moves up.
fn roll(src: &Tensor, out: &Tensor) -> Result<Vec<Node>, Why> {
    wrapped(src, out, [0, 1, 2, 3].map(|dim| i64::from(out.op_params[dim])))
}

/// Element i of each dimension is the source's `i - shift`, counted around its end.
fn wrapped(src: &Tensor, out: &Tensor, shift: [i64; 4]) -> Result<Vec<Node>, Why> {
    if src.is_empty() {
        return Err("has no elements");
    }
    // Start in the result, start in the source, length.
    let mut pieces = vec![[[0; 4]; 3]];
    for dim in 0..4 {
        let mut longer = Vec::new();
        let mut at = 0;
        while at < out.ne[dim] {
            let from = (at - shift[dim]).rem_euclid(src.ne[dim]);
            let len = (src.ne[dim] - from).min(out.ne[dim] - at);
            for [mut to, mut start, mut ne] in pieces.iter().copied() {
                (to[dim], start[dim], ne[dim]) = (at, from, len);
                longer.push([to, start, ne]);
            }
            at += len;
            if longer.len() > MAX_COPIES {
                return Err("takes more copies than are worth it");
            }
        }
        pieces = longer;
    }
    let copies = pieces
        .into_iter()
        .map(|[to, start, ne]| Ok(cpy(part(src, ne, start)?, part(out, ne, to)?)));
    copies.collect()
}

/// A row becomes the diagonal of a square.
fn diag(src: &Tensor, out: &Tensor) -> Result<Vec<Node>, Why> {
    let [nb0, nb1, nb2, nb3] = out.nb;
    let diagonal = Tensor {
        ne: src.ne,
        nb: [nb0 + nb1, nb1, nb2, nb3],
        ..*out
    };
    Ok(vec![fill(out, 0.0), cpy(*src, diagonal)])
}

/// Parameter: which triangle stays.
fn tri(src: &Tensor, out: &Tensor) -> Result<Vec<Node>, Why> {
    let [n, rows, n2, n3] = src.ne;
    if usize::try_from(rows).is_ok_and(|rows| rows >= MAX_COPIES) {
        return Err("takes more copies than are worth it");
    }
    let mut nodes = vec![fill(out, 0.0)];
    for row in 0..rows {
        let (start, end) = match out.op_params[0] {
            UPPER_DIAG => (row, n),
            UPPER => (row + 1, n),
            LOWER_DIAG => (0, row + 1),
            LOWER => (0, row),
            _ => return Err("keeps a triangle that hexloom does not know"),
        };
        let (start, end) = (start.min(n), end.min(n));
        if start < end {
            let (ne, at) = ([end - start, 1, n2, n3], [start, row, 0, 0]);
            nodes.push(cpy(part(src, ne, at)?, part(out, ne, at)?));
        }
    }
    Ok(nodes)
}

/// Parameter: how elements in between are made. Each copy is every n-th element of each dimension.
fn upscale(src: &Tensor, out: &Tensor) -> Result<Vec<Node>, Why> {
    if out.op_params[0] != NEAREST {
        return Err("is made between elements");
    }
    if src.is_empty() || (0..4).any(|dim| out.ne[dim] % src.ne[dim] != 0) {
        return Err("is not by whole factors");
    }
    let times = [0, 1, 2, 3].map(|dim| out.ne[dim] / src.ne[dim]);
    if times.iter().product::<i64>() > MAX_COPIES as i64 {
        return Err("takes more copies than are worth it");
    }
    let mut nb = out.nb;
    for (stride, times) in nb.iter_mut().zip(times) {
        *stride *= times as usize;
    }
    let mut nodes = Vec::new();
    for copy in 0..times.iter().product() {
        let mut rest: i64 = copy;
        let at = times.map(|times| {
            let at = rest % times;
            rest /= times;
            at
        });
        // The place is counted in the result's own strides, the view goes on in the longer ones.
        let first = part(out, src.ne, at)?;
        nodes.push(cpy(*src, Tensor { nb, ..first }));
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::abi::test_tensor as f32;

    /// The bytes' distances of all elements of a tensor from `base`.
    fn places(tensor: &Tensor, base: &Tensor) -> Vec<usize> {
        let first = tensor.data as usize - base.data as usize;
        let counts = tensor.ne.map(|n| n as usize);
        let all = (0..counts.iter().product()).map(|idx: usize| {
            let mut rest = idx;
            let along = counts.iter().zip(tensor.nb).map(|(&n, stride)| {
                let at = rest % n * stride;
                rest /= n;
                at
            });
            first + along.sum::<usize>()
        });
        all.collect()
    }

    /// Which element of the source each element of the result is a copy of.
    fn moved(nodes: &[Node], src: &Tensor, out: &Tensor) -> BTreeMap<usize, usize> {
        let mut from = BTreeMap::new();
        for node in nodes.iter().filter(|node| node.opcode == Opcode::Cpy) {
            let read = node.srcs[0].as_ref().expect("a copy has an operand");
            from.extend(places(&node.dst, out).into_iter().zip(places(read, src)));
        }
        from
    }

    #[test]
    fn what_is_wrapped_comes_from_the_other_side() {
        let (src, out) = (f32([3, 2, 1, 1], abi::Op::None), f32([8, 3, 1, 1], abi::Op::Pad));
        let moved = moved(&wrapped(&src, &out, [2, -1, 0, 0]).unwrap(), &src, &out);
        for x in 0..8usize {
            for y in 0..3usize {
                let wanted = (x + 1) % 3 + 3 * ((y + 1) % 2);
                assert_eq!(moved[&(4 * (x + 8 * y))], 4 * wanted, "{x} {y}");
            }
        }
        assert_eq!(moved.len(), 24);
    }

    #[test]
    fn enlarged_elements_are_blocks() {
        let (src, out) = (f32([2, 2, 1, 1], abi::Op::None), f32([6, 4, 1, 1], abi::Op::Upscale));
        let moved = moved(&upscale(&src, &out).unwrap(), &src, &out);
        for x in 0..6usize {
            for y in 0..4usize {
                assert_eq!(moved[&(4 * (x + 6 * y))], 4 * (x / 3 + 2 * (y / 2)), "{x} {y}");
            }
        }
    }

    #[test]
    fn what_would_take_too_many_copies_is_refused() {
        let src = f32([1, 1, 1, 1], abi::Op::None);
        assert!(wrapped(&src, &f32([1000, 1, 1, 1], abi::Op::Pad), [0; 4]).is_err());
        assert!(upscale(&src, &f32([1000, 1, 1, 1], abi::Op::Upscale)).is_err());
        assert!(
            tri(
                &f32([200, 200, 1, 1], abi::Op::None),
                &f32([200, 200, 1, 1], abi::Op::Tri)
            )
            .is_err()
        );
    }
}
