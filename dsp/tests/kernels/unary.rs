//! SILU, the GELUs, SCALE, CLAMP and the gated ops.

use hexloom_abi::Opcode;

use crate::support::{Case, Fill, Spec, kernel_tests};

const UNARY: [Opcode; 6] = [
    Opcode::Silu,
    Opcode::Gelu,
    Opcode::GeluErf,
    Opcode::GeluQuick,
    Opcode::Scale,
    Opcode::Clamp,
];
const GATED: [Opcode; 4] = [Opcode::Swiglu, Opcode::Geglu, Opcode::GegluErf, Opcode::GegluQuick];

/// Shapes with tails, single elements, nothing at all, and one that several threads share within a row.
const SHAPES: [[u32; 4]; 7] = [
    [128, 2, 2, 2],
    [5, 7, 11, 13],
    [1, 1, 1, 1],
    [33, 3, 2, 1],
    [5003, 1, 1, 1],
    [0, 2, 1, 1],
    [64, 0, 1, 1],
];

/// Every unary op; SCALE by -1.5 plus 0.25, CLAMP to -0.5..0.75.
fn unary(x: Spec, out: Spec) -> impl Iterator<Item = Case> {
    UNARY.into_iter().map(move |opcode| {
        let [first, second] = match opcode {
            Opcode::Scale => [-1.5, 0.25],
            Opcode::Clamp => [-0.5, 0.75],
            _ => [0.0, 0.0],
        };
        Case::new(opcode)
            .src(x.clone())
            .dst(out.clone())
            .param_f32(0, first)
            .param_f32(1, second)
    })
}

/// Every gated op with both halves in one operand, either way round.
fn halves(x: Spec, out: Spec) -> impl Iterator<Item = Case> {
    GATED.into_iter().flat_map(move |opcode| {
        let case = Case::new(opcode).src(x.clone()).dst(out.clone());
        [case.clone(), case.param(0, 1)]
    })
}

/// Every gated op with two operands.
fn pairs(x: Spec, gate: Spec, out: Spec) -> impl Iterator<Item = Case> {
    GATED
        .into_iter()
        .map(move |opcode| Case::new(opcode).src(x.clone()).src(gate.clone()).dst(out.clone()))
}

/// Around zero, over the bend, and up to 1e4.
const LIMITS: [f64; 3] = [0.01, 8.0, 1e4];

fn unary_dense() -> impl Iterator<Item = Case> {
    SHAPES.into_iter().flat_map(|ne| {
        LIMITS
            .into_iter()
            .flat_map(move |limit| unary(Spec::f32(ne).range(limit), Spec::f32(ne)))
    })
}

/// The negative tail in small pieces, where a formula that cancels has nothing left: 1e-5 of each value.
fn unary_tail() -> impl Iterator<Item = Case> {
    (0..40).flat_map(|piece| {
        let values = (0..4)
            .map(|step| -1.0 - 0.2 * f64::from(piece) - 0.05 * f64::from(step))
            .collect();
        let ne = [4, 1, 1, 1];
        unary(Spec::f32(ne).fill(Fill::Values(values)), Spec::f32(ne)).map(|case| case.nmse(1e-10))
    })
}

fn unary_layouts() -> impl Iterator<Item = Case> {
    let ne = [37, 4, 3, 2];
    unary(Spec::f16(ne).skewed().range(4.0), Spec::f32(ne).skewed())
        .chain(unary(Spec::f32(ne).range(4.0).strided(1, 5), Spec::f16(ne)))
        .chain(unary(Spec::f16(ne).range(4.0), Spec::f16(ne)))
        .chain(unary(Spec::f32(ne).transposed(), Spec::f32(ne).strided(2, 1).skewed()))
        .chain(unary(Spec::f32(ne).strided(3, 2), Spec::f32(ne).transposed()))
}

fn unary_special() -> impl Iterator<Item = Case> {
    let ne = [96, 30, 1, 1];
    unary(Spec::f32(ne).fill(Fill::Special), Spec::f32(ne))
}

fn gated_dense() -> impl Iterator<Item = Case> {
    SHAPES.into_iter().flat_map(|ne @ [n0, n1, n2, n3]| {
        [8.0, 1e4].into_iter().flat_map(move |limit| {
            let both = Spec::f32([2 * n0, n1, n2, n3]).range(limit);
            let one = Spec::f32(ne).range(limit);
            halves(both, Spec::f32(ne)).chain(pairs(one.clone(), one, Spec::f32(ne)))
        })
    })
}

fn gated_layouts() -> impl Iterator<Item = Case> {
    let (ne, both) = ([35, 3, 2, 2], [70, 3, 2, 2]);
    halves(Spec::f16(both).skewed(), Spec::f16(ne).skewed())
        .chain(halves(Spec::f32(both).strided(2, 3), Spec::f32(ne).strided(1, 1)))
        .chain(pairs(
            Spec::f32(ne).transposed(),
            Spec::f16(ne).strided(2, 0),
            Spec::f32(ne).transposed(),
        ))
        .chain(pairs(Spec::f16(ne), Spec::f16(ne), Spec::f16(ne)))
}

fn gated_special() -> impl Iterator<Item = Case> {
    let special = || Spec::f32([65, 8, 1, 1]).fill(Fill::Special);
    pairs(special(), special(), Spec::f32([65, 8, 1, 1]))
}

kernel_tests! {
    unary_of_dense_rows: unary_dense();
    unary_of_the_negative_tail: unary_tail();
    unary_of_other_layouts: unary_layouts();
    unary_of_special_values: unary_special();
    gated_of_dense_rows: gated_dense();
    gated_of_other_layouts: gated_layouts();
    gated_of_special_values: gated_special();
}
