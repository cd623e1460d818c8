//! The order of nodes before ggml plans their memory: products of one activation side by side.
//!
//! They become one op, which reads the activation once. Where they lie apart, ggml gives the later ones memory that is still
//! read in between, and they must stay where they are; so their order is changed before it decides.

use crate::abi::{Graph, Op, Tensor};

/// Moves each product of a weight up behind the first one with the same activation.
pub(crate) fn optimize(graph: &mut Graph) {
    let nodes = graph.nodes_mut();
    let mut next = 0;
    while let Some(&node) = nodes.get(next) {
        next += 1;
        if let Some(x) = activation(node) {
            next = gather(nodes, next, x);
        }
    }
}

/// Moves the products with `x` up to `end` and on; gives the place behind them.
fn gather(nodes: &mut [*mut Tensor], mut end: usize, x: *const Tensor) -> usize {
    let mut at = end;
    while let Some(&node) = nodes.get(at) {
        if writes(node, x) {
            break;
        }
        if activation(node) == Some(x) {
            nodes[end..=at].rotate_right(1);
            end += 1;
        }
        at += 1;
    }
    end
}

/// What a product of a weight, which is nobody's result, multiplies it by.
fn activation(node: *mut Tensor) -> Option<*const Tensor> {
    // SAFETY: ggml keeps the nodes of a graph alive.
    let node = unsafe { node.as_ref() }?;
    let weight = node.src(0)?;
    let product = node.op() == Some(Op::MulMat) && weight.op() == Some(Op::None) && weight.view_src.is_null();
    product.then(|| node.src(1).map(std::ptr::from_ref)).flatten()
}

/// Whether a node writes into the bytes of `x`, whose result it is not.
fn writes(node: *mut Tensor, x: *const Tensor) -> bool {
    // SAFETY: as in `activation`.
    let (Some(node), Some(x)) = (unsafe { node.as_ref() }, unsafe { x.as_ref() }) else {
        return true;
    };
    !node.is_view_only() && !node.view_src.is_null() && std::ptr::eq(node.owner(), x.owner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::test_tensor;

    #[test]
    fn products_of_one_activation_meet() {
        let mut weights: Vec<Tensor> = (0..3).map(|_| test_tensor([4, 4, 1, 1], Op::None)).collect();
        let mut x = test_tensor([4, 1, 1, 1], Op::Add);
        let mut product = |weight: usize, x: &mut Tensor| {
            let mut node = test_tensor([4, 1, 1, 1], Op::MulMat);
            (node.src[0], node.src[1]) = (&raw mut weights[weight], std::ptr::from_mut(x));
            node
        };
        let (mut q, mut k, mut v) = (product(0, &mut x), product(1, &mut x), product(2, &mut x));
        let mut rope = test_tensor([4, 1, 1, 1], Op::Rope);
        rope.src[0] = &raw mut q;
        let mut over_x = test_tensor([4, 1, 1, 1], Op::Scale);
        (over_x.src[0], over_x.view_src) = (&raw mut x, &raw mut x);
        let ordered = |nodes: &mut [*mut Tensor]| {
            let mut graph = Graph::of(nodes);
            optimize(&mut graph);
            graph.nodes().to_vec()
        };
        let [x, q, k, v] = [&raw mut x, &raw mut q, &raw mut k, &raw mut v];
        let (rope, over_x) = (&raw mut rope, &raw mut over_x);
        assert_eq!(ordered(&mut [x, q, rope, k, v]), [x, q, k, v, rope]);
        // What is multiplied is another number behind what is written over it.
        assert_eq!(ordered(&mut [x, q, over_x, k, v]), [x, q, over_x, k, v]);
        assert_eq!(ordered(&mut [x, rope]), [x, rope]);
    }
}
