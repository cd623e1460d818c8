//! Fusion: neighbouring ops that one kernel does in one pass.
//!
//! - `RMS_NORM` + `MUL` by a row or a full tensor -> `RMS_NORM_MUL`;
//! - `MUL_MAT` + `ADD` of a bias row or a residual -> `MUL_MAT_ADD`;
//! - up to four `MUL_MAT` of weights of one type over one activation -> `MUL_MAT_NX` at the place of the first.
//!
//! A result that vanishes must have exactly one reader and not be an output. Tensors that some node writes into through
//! `SET_ROWS`, `CPY` or from another session are left alone, because moving a reader across such a write would change what it
//! reads. Where somebody else has planned the memory, places are used again within a graph: a node moves only across nodes
//! that touch none of its bytes.

use std::collections::HashSet;

use hexloom_abi::limits::{MAX_NX, MAX_PARAMS};
use hexloom_abi::{Opcode, support};

use super::{Graph, Node, Role, Storage, Tensor, TensorId};

impl Graph {
    /// Fuses what can be fused; outputs and inputs keep their identities.
    pub(crate) fn fuse(&mut self) {
        let facts = Facts::of(self);
        let mut nodes: Vec<Option<Node>> = std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        self.fuse_pairs(&facts, &mut nodes, Opcode::RmsNorm, Opcode::Mul, norm_mul);
        self.fuse_pairs(&facts, &mut nodes, Opcode::MulMat, Opcode::Add, mul_mat_add);
        self.fuse_shared_activation(&facts, &mut nodes);
        self.nodes = nodes.into_iter().flatten().collect();
    }

    /// Replaces a `first` whose only reader is a `second` by what `fused` makes of them, at the second's place.
    fn fuse_pairs(
        &self,
        facts: &Facts,
        nodes: &mut [Option<Node>],
        first: Opcode,
        second: Opcode,
        fused: fn(&Node, &Node, TensorId) -> Node,
    ) {
        for idx in 0..nodes.len() {
            let Some(head) = nodes[idx].as_ref().filter(|node| node.opcode == first) else {
                continue;
            };
            let (Some(result), true) = (head.dsts.first().copied(), facts.movable(self, head)) else {
                continue;
            };
            if !facts.read_once(self, result) {
                continue;
            }
            let reader = (idx + 1..nodes.len()).find(|&at| {
                let node = nodes[at].as_ref();
                node.is_some_and(|node| node.srcs.contains(&Some(result)))
            });
            let Some(at) = reader else { continue };
            let Some(tail) = nodes[at].as_ref().filter(|node| node.opcode == second) else {
                continue;
            };
            let Some(other) = other_operand(tail, result) else {
                continue;
            };
            let same_shape = self.shape(result) == self.shape(tail.dsts[0]);
            let node = fused(head, tail, other);
            let unhurt = nodes[idx + 1..at]
                .iter()
                .flatten()
                .all(|between| !self.hurts(between, head));
            let fits = same_shape && unhurt && self.overlaps_well(&node);
            if fits && support::check(&self.node_op(&node)).is_ok() {
                nodes[at] = Some(node);
                nodes[idx] = None;
            }
        }
    }

    fn fuse_shared_activation(&self, facts: &Facts, nodes: &mut [Option<Node>]) {
        for idx in 0..nodes.len() {
            let Some((weight, x)) = self.weight_product(nodes[idx].as_ref()) else {
                continue;
            };
            if facts.written.contains(&self.root(x).0) {
                continue;
            }
            let dtype = self.shape(weight).dtype;
            let same = |node: Option<&Node>| {
                let product = self.weight_product(node);
                product.is_some_and(|(other, act)| act == x && self.shape(other).dtype == dtype)
            };
            let mut group: Vec<usize> = Vec::new();
            for at in (idx..nodes.len()).filter(|&at| same(nodes[at].as_ref())) {
                if group.len() < MAX_NX && self.may_move_up(nodes, &group, at) {
                    group.push(at);
                }
            }
            if group.len() < 2 {
                continue;
            }
            let members: Vec<Node> = group.iter().filter_map(|&at| nodes[at].take()).collect();
            let names: Vec<&str> = members.iter().map(|node| node.name.as_str()).collect();
            let weights = members.iter().map(|node| node.srcs[0]);
            nodes[idx] = Some(Node {
                name: names.join("+"),
                opcode: Opcode::MulMatNx,
                params: [0; MAX_PARAMS],
                srcs: weights.chain([Some(x)]).collect(),
                dsts: members.iter().map(|node| node.dsts[0]).collect(),
                sync: None,
            });
        }
    }

    /// Whether the product at `at` can be computed with the group's first: nothing in between touches its result or
    /// writes what it reads, and the group's results stay apart from each other and from what is read.
    fn may_move_up(&self, nodes: &[Option<Node>], group: &[usize], at: usize) -> bool {
        let (Some(node), Some(&first)) = (&nodes[at], group.first()) else {
            return nodes[at].as_ref().is_some_and(|node| self.overlaps_well(node));
        };
        let result = node.dsts[0];
        let untouched = nodes[first..at].iter().flatten().all(|between| {
            let reads = between.srcs.iter().flatten().any(|&id| self.shares(id, result));
            let writes = between.dsts.iter().any(|&id| self.shares(id, result));
            !reads && !writes && !self.hurts(between, node)
        });
        untouched && self.overlaps_well(node)
    }

    /// Whether `between` writes what `node` reads.
    fn hurts(&self, between: &Node, node: &Node) -> bool {
        let writes = |id: TensorId| between.dsts.iter().any(|&dst| self.shares(dst, id));
        node.srcs.iter().flatten().any(|&id| writes(id))
    }

    /// Whether a node whose operands have their places already writes none of what it reads, unless its kernel lets it.
    fn overlaps_well(&self, node: &Node) -> bool {
        node.srcs.iter().enumerate().all(|(idx, src)| {
            src.is_none_or(|src| node.dsts.iter().all(|&dst| self.may_write(node.opcode, idx, src, dst)))
        })
    }

    /// Weight and activation of a plain `MUL_MAT` by a constant.
    fn weight_product(&self, node: Option<&Node>) -> Option<(TensorId, TensorId)> {
        let node = node.filter(|node| node.opcode == Opcode::MulMat)?;
        let (weight, x) = (node.srcs[0]?, node.srcs[1]?);
        let constant = self.tensor(self.root(weight).0).role == Role::Weight;
        constant.then_some((weight, x))
    }
}

/// What the rules ask about the whole graph.
struct Facts {
    /// Readers of each tensor, views counted as readers.
    readers: Vec<u32>,
    /// Owners of bytes that some node writes into although it did not create them.
    written: HashSet<TensorId>,
}

impl Facts {
    fn of(graph: &Graph) -> Self {
        let mut readers = vec![0; graph.tensors.len()];
        for tensor in &graph.tensors {
            if let Storage::View { of, .. } = tensor.storage {
                readers[of.0 as usize] += 1;
            }
        }
        for id in graph.nodes.iter().flat_map(|node| node.srcs.iter().flatten()) {
            readers[id.0 as usize] += 1;
        }
        let creates = |node: &&Node| !matches!(node.opcode, Opcode::SetRows | Opcode::Cpy) && node.sync.is_none();
        let writers = graph.nodes.iter().filter(|node| !creates(node));
        let mut written: HashSet<TensorId> = writers
            .flat_map(|node| node.dsts.iter().map(|&id| graph.root(id).0))
            .collect();
        if graph.nodes.iter().any(|node| node.sync.is_some()) {
            // Other sessions write into what is placed, between two fences.
            let shared =
                |tensor: &Tensor| matches!(tensor.storage, Storage::Placed { .. }) && tensor.role != Role::Weight;
            let ids = (0..).map(TensorId).zip(&graph.tensors);
            written.extend(ids.filter(|(_, tensor)| shared(tensor)).map(|(id, _)| id));
        }
        Self { readers, written }
    }

    /// Whether a node may run later than where it stands.
    fn movable(&self, graph: &Graph, node: &Node) -> bool {
        let mut srcs = node.srcs.iter().flatten();
        srcs.all(|&id| !self.written.contains(&graph.root(id).0))
    }

    fn read_once(&self, graph: &Graph, id: TensorId) -> bool {
        self.readers[id.0 as usize] == 1 && graph.tensor(id).role == Role::Inner && !self.written.contains(&id)
    }
}

/// The operand of a binary node that is not `result`, when it is the other one.
fn other_operand(node: &Node, result: TensorId) -> Option<TensorId> {
    match node.srcs[..] {
        [Some(a), Some(b)] if a == result && b != result => Some(b),
        [Some(a), Some(b)] if b == result && a != result => Some(a),
        _ => None,
    }
}

fn norm_mul(norm: &Node, mul: &Node, weight: TensorId) -> Node {
    Node {
        name: mul.name.clone(),
        opcode: Opcode::RmsNormMul,
        params: norm.params,
        srcs: vec![norm.srcs[0], Some(weight)],
        dsts: mul.dsts.clone(),
        sync: None,
    }
}

fn mul_mat_add(product: &Node, add: &Node, addend: TensorId) -> Node {
    Node {
        name: add.name.clone(),
        opcode: Opcode::MulMatAdd,
        params: product.params,
        srcs: vec![product.srcs[0], product.srcs[1], Some(addend)],
        dsts: add.dsts.clone(),
        sync: None,
    }
}
