//! Ops on placed operands: what groups and extended weights are tried on.

use hexloom_abi::descriptor::TENSOR_WEIGHT;
use hexloom_abi::op::{Op, Shape};
use hexloom_abi::tile::TileLayout;
use hexloom_abi::{DType, Opcode};

use super::peer::{Batch, PINNED, PINNED_BYTES, dense, row, tiled};
use super::world::World;

pub(crate) const DATA: u32 = 1;
pub(crate) const WEIGHTS: u32 = 2;

/// What an operand holds.
#[derive(Clone)]
pub(crate) enum Fill {
    Random,
    Numbers(Vec<i32>),
}

/// A source: shape, whether it is a weight, contents.
pub(crate) type Source = (Shape, bool, Fill);

/// One op.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) opcode: Opcode,
    pub(crate) params: [u32; 16],
    pub(crate) srcs: Vec<Source>,
    pub(crate) dsts: Vec<Shape>,
}

/// Ops whose operands have places.
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// fd and offset of each operand of each node, sources first.
    places: Vec<Vec<(u32, usize)>>,
    bytes: [usize; 2],
}

impl Node {
    pub(crate) fn new(opcode: Opcode, srcs: Vec<Source>, dsts: Vec<Shape>) -> Self {
        Self {
            opcode,
            params: [0; 16],
            srcs,
            dsts,
        }
    }

    pub(crate) fn param_f32(mut self, idx: usize, value: f32) -> Self {
        self.params[idx] = value.to_bits();
        self
    }

    pub(crate) fn param(mut self, idx: usize, value: u32) -> Self {
        self.params[idx] = value;
        self
    }

    pub(crate) fn op(&self) -> Op {
        let mut op = Op {
            opcode: self.opcode,
            params: self.params,
            srcs: [None; 10],
            dsts: [None; 4],
        };
        for (to, (from, ..)) in op.srcs.iter_mut().zip(&self.srcs) {
            *to = Some(*from);
        }
        for (to, from) in op.dsts.iter_mut().zip(&self.dsts) {
            *to = Some(*from);
        }
        op
    }

    /// Sources that are weights, as bits.
    pub(crate) fn weights(&self) -> u16 {
        let bits = self.srcs.iter().enumerate();
        bits.fold(0, |all, (idx, (_, is_weight, _))| all | u16::from(*is_weight) << idx)
    }
}

impl Graph {
    /// Places operands on lines.
    pub(crate) fn new(nodes: Vec<Node>) -> Self {
        let mut bytes = [0; 2];
        let mut place = |shape: &Shape, is_weight: bool| {
            let at = &mut bytes[usize::from(is_weight)];
            let start = *at;
            *at += (shape.extent_bytes().unwrap() as usize).next_multiple_of(128);
            (if is_weight { WEIGHTS } else { DATA }, start)
        };
        let mut places = Vec::new();
        for node in &nodes {
            let srcs = node.srcs.iter().map(|(shape, is_weight, _)| (shape, *is_weight));
            let dsts = node.dsts.iter().map(|shape| (shape, false));
            let all = srcs.chain(dsts).map(|(shape, is_weight)| place(shape, is_weight));
            places.push(all.collect());
        }
        Self { nodes, places, bytes }
    }

    /// Memory with the sources in it.
    pub(crate) fn world(&self) -> World {
        let pinned = (0..4).map(|idx| (PINNED + idx, PINNED_BYTES));
        let own = [(DATA, self.bytes[0] + 4096), (WEIGHTS, self.bytes[1] + 4096)];
        let world = World::new(&pinned.chain(own).collect::<Vec<_>>());
        self.fill(&world);
        world
    }

    /// Writes sources anew and junk into destinations.
    pub(crate) fn fill(&self, world: &World) {
        let mut random = 0x1234_5678_9abc_def1u64;
        for (node, places) in self.nodes.iter().zip(&self.places) {
            for ((shape, _, fill), &(fd, at)) in node.srcs.iter().zip(places) {
                world.write(fd, at, &contents(shape, fill, &mut random));
            }
            for (shape, &(fd, at)) in node.dsts.iter().zip(&places[node.srcs.len()..]) {
                world.write(fd, at, &vec![0xcc; shape.extent_bytes().unwrap() as usize]);
            }
        }
    }

    /// Adds the ops to a batch.
    pub(crate) fn add_to(&self, batch: &mut Batch, world: &World, weights_flags: u32) {
        for (node, places) in self.nodes.iter().zip(&self.places) {
            let shapes = node.srcs.iter().map(|(shape, ..)| shape).chain(&node.dsts);
            let tensor = |(shape, &(fd, at)): (&Shape, &(u32, usize))| {
                let (buffer, flag) = match fd {
                    WEIGHTS => (weights_flags, TENSOR_WEIGHT),
                    _ => (0, 0),
                };
                batch.tensor(world.desc(fd, buffer), at, *shape, flag)
            };
            let all: Vec<u16> = shapes.zip(places).map(tensor).collect();
            let (srcs, dsts) = all.split_at(node.srcs.len());
            batch.op(node.opcode, node.params, srcs, dsts);
        }
    }
}

fn contents(shape: &Shape, fill: &Fill, random: &mut u64) -> Vec<u8> {
    let mut next = || {
        *random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) as u32
    };
    // An f16 of size 2^-5 to 1.
    let mut half = |sign: u16| {
        let bits = next();
        ((bits as u16 & (0x3ff | sign)) | ((10 + (bits >> 16) % 5) as u16) << 10).to_le_bytes()
    };
    let bytes = shape.extent_bytes().unwrap() as usize;
    match (fill, shape.dtype) {
        (Fill::Numbers(numbers), DType::I64) => numbers.iter().flat_map(|&n| i64::from(n).to_le_bytes()).collect(),
        (Fill::Numbers(numbers), _) => numbers.iter().flat_map(|&n| n.to_le_bytes()).collect(),
        (_, DType::Bf16) => {
            let mut float = |_| (f32::from_bits(0x3f80_0000 | next() >> 8) - 1.5).to_bits();
            (0..bytes / 2)
                .flat_map(|idx| ((float(idx) >> 16) as u16).to_le_bytes())
                .collect()
        }
        // Blocks whose scales are halves like all else in them.
        (_, dtype) if dtype.is_quantized() && !shape.tiled => (0..bytes / 2).flat_map(|_| half(0)).collect(),
        (_, DType::F16) => (0..bytes / 2).flat_map(|_| half(0x8000)).collect(),
        (_, DType::F32) => {
            let float = |_| (f32::from_bits(0x3f80_0000 | next() >> 8) - 1.5).to_le_bytes();
            (0..bytes / 4).flat_map(float).collect()
        }
        _ => {
            let layout = TileLayout::new(shape.dtype, shape.ne[0]).unwrap();
            let mut all = Vec::new();
            for _ in 0..bytes / layout.group_bytes as usize {
                let mut group = vec![0; layout.group_bytes as usize];
                let (codes, scales) = group.split_at_mut(layout.scales_offset as usize);
                codes
                    .iter_mut()
                    .enumerate()
                    .for_each(|(idx, code)| *code = (idx * 37 % 251) as u8);
                scales
                    .chunks_exact_mut(2)
                    .for_each(|scale| scale.copy_from_slice(&half(0)));
                all.append(&mut group);
            }
            all
        }
    }
}

fn x(shape: Shape) -> Source {
    (shape, false, Fill::Random)
}

fn weight(shape: Shape) -> Source {
    (shape, true, Fill::Random)
}

fn numbers(dtype: DType, numbers: &[i32]) -> Source {
    let shape = dense(dtype, [numbers.len() as u32, 1, 1, 1]);
    (shape, false, Fill::Numbers(numbers.to_vec()))
}

fn f32s(ne: [u32; 4]) -> Shape {
    dense(DType::F32, ne)
}

/// Every op that computes, in shapes that can be cut and in some that cannot.
pub(crate) fn nodes() -> Vec<Node> {
    use DType::{F16, I32, I64, Q4_0, Q4_1, Q4K, Q6K, Q8_0};
    let product = |weights: Shape, activation: Shape| {
        let [_, m, n2, n3] = activation.ne;
        let out = f32s([weights.ne[1], m, n2, n3]);
        Node::new(Opcode::MulMat, vec![weight(weights), x(activation)], vec![out])
    };
    let rows = f32s([96, 7, 1, 1]);
    let mut nodes = vec![
        product(f32s([64, 96, 1, 1]), f32s([64, 3, 1, 1])),
        product(dense(F16, [32, 64, 2, 1]), f32s([32, 3, 4, 1])),
        product(tiled(Q4_0, [64, 96, 1, 1]), f32s([64, 1, 1, 1])),
        product(tiled(Q4_1, [64, 100, 1, 1]), f32s([64, 1, 1, 1])),
        product(tiled(Q4_1, [64, 100, 1, 1]), f32s([64, 3, 1, 1])),
        product(tiled(Q8_0, [96, 320, 1, 1]), f32s([96, 6, 1, 1])),
        product(tiled(Q8_0, [96, 160, 1, 1]), f32s([96, 1, 1, 1])),
        product(tiled(Q4_0, [32, 64, 2, 1]), f32s([32, 2, 2, 1])),
        Node::new(
            Opcode::MulMatAdd,
            vec![
                weight(tiled(Q8_0, [64, 128, 1, 1])),
                x(f32s([64, 5, 1, 1])),
                weight(row(128)),
            ],
            vec![f32s([128, 5, 1, 1])],
        ),
        Node::new(
            Opcode::MulMatNx,
            vec![
                weight(tiled(Q8_0, [64, 64, 1, 1])),
                weight(tiled(Q4_0, [64, 160, 1, 1])),
                weight(dense(F16, [64, 128, 1, 1])),
                x(f32s([64, 2, 1, 1])),
            ],
            vec![f32s([64, 2, 1, 1]), f32s([160, 2, 1, 1]), f32s([128, 2, 1, 1])],
        ),
        Node::new(
            Opcode::Add,
            vec![x(f32s([70, 5, 1, 1])), weight(row(70))],
            vec![f32s([70, 5, 1, 1])],
        ),
        Node::new(
            Opcode::Mul,
            vec![x(f32s([96, 4, 3, 2])), x(f32s([96, 4, 3, 2]))],
            vec![f32s([96, 4, 3, 2])],
        ),
        Node::new(
            Opcode::Add,
            vec![x(f32s([300, 1, 1, 1])), x(f32s([300, 1, 1, 1]))],
            vec![dense(F16, [300, 1, 1, 1])],
        ),
        Node::new(
            Opcode::Sub,
            vec![x(f32s([64, 8, 1, 1])), x(f32s([32, 2, 1, 1]))],
            vec![f32s([64, 8, 1, 1])],
        ),
        Node::new(Opcode::RmsNorm, vec![x(rows)], vec![rows]).param_f32(0, 1e-5),
        Node::new(Opcode::RmsNormMul, vec![x(rows), weight(row(96))], vec![rows]).param_f32(0, 1e-5),
        Node::new(Opcode::Silu, vec![x(f32s([100, 3, 1, 1]))], vec![f32s([100, 3, 1, 1])]),
        Node::new(Opcode::Swiglu, vec![x(rows), x(rows)], vec![rows]),
        Node::new(Opcode::Geglu, vec![x(f32s([192, 7, 1, 1]))], vec![rows]),
        Node::new(
            Opcode::Scale,
            vec![x(f32s([1000, 1, 1, 1]))],
            vec![f32s([1000, 1, 1, 1])],
        )
        .param_f32(0, 0.5),
        Node::new(
            Opcode::Rope,
            vec![x(f32s([64, 6, 3, 1])), numbers(I32, &[4, 5, 6]), weight(row(32))],
            vec![f32s([64, 6, 3, 1])],
        )
        .param(1, 64)
        .param_f32(5, 1e4)
        .param_f32(6, 1.0)
        .param_f32(8, 1.0),
        Node::new(
            Opcode::SoftMax,
            vec![x(f32s([64, 6, 4, 1])), x(dense(F16, [64, 6, 1, 1]))],
            vec![f32s([64, 6, 4, 1])],
        )
        .param_f32(0, 0.7),
        Node::new(
            Opcode::SoftMax,
            vec![x(f32s([64, 6, 4, 1])), x(dense(F16, [64, 8, 1, 1]))],
            vec![f32s([64, 6, 4, 1])],
        )
        .param_f32(0, 0.7)
        .param_f32(1, 8.0),
        Node::new(Opcode::Argmax, vec![x(rows)], vec![dense(I32, [7, 1, 1, 1])]),
        Node::new(
            Opcode::Cpy,
            vec![x(f32s([64, 4, 3, 1]))],
            vec![dense(F16, [64, 4, 3, 1])],
        ),
        Node::new(Opcode::Cpy, vec![x(f32s([64, 12, 1, 1]))], vec![f32s([768, 1, 1, 1])]),
        Node::new(
            Opcode::GetRows,
            vec![weight(f32s([64, 50, 1, 1])), numbers(I32, &[3, 49, 0, 3, 17])],
            vec![f32s([64, 5, 1, 1])],
        ),
        Node::new(
            Opcode::SetRows,
            vec![x(f32s([128, 3, 1, 1])), numbers(I64, &[7, 2, 19])],
            vec![dense(F16, [128, 20, 1, 1])],
        ),
    ];
    for dtype in [Q4_0, Q4_1, Q8_0] {
        nodes.push(Node::new(
            Opcode::GetRows,
            vec![
                weight(tiled(dtype, [160, 70, 1, 1])),
                numbers(I32, &[69, 0, 31, 32, 69, 8]),
            ],
            vec![f32s([160, 6, 1, 1])],
        ));
    }
    // Blocks that are longer than a line of what they become.
    for (dtype, ne) in [(Q4K, [256, 1, 1, 1]), (Q4K, [512, 3, 1, 1]), (Q6K, [1024, 2, 1, 1])] {
        let from = dense(dtype, ne);
        nodes.push(Node::new(Opcode::Cpy, vec![weight(from)], vec![f32s(ne)]));
        nodes.push(Node::new(Opcode::Cpy, vec![weight(from)], vec![dense(F16, ne)]));
    }
    for dtype in [Q4K, Q6K] {
        nodes.push(Node::new(
            Opcode::GetRows,
            vec![weight(dense(dtype, [512, 50, 1, 1])), numbers(I32, &[49, 0, 31, 49])],
            vec![f32s([512, 4, 1, 1])],
        ));
    }
    for (max_bias, n_tokens) in [(0.0, 1), (0.0, 6), (4.0, 1)] {
        let cache = || x(dense(F16, [32, 70, 4, 1]));
        let node = Node::new(
            Opcode::FlashAttnExt,
            vec![
                x(f32s([32, n_tokens, 8, 1])),
                cache(),
                cache(),
                x(dense(F16, [70, n_tokens, 1, 1])),
            ],
            vec![f32s([32, 8, n_tokens, 1])],
        );
        nodes.push(node.param_f32(0, 0.2).param_f32(1, max_bias));
    }
    nodes
}
