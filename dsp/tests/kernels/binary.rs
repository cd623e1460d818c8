//! ADD, SUB, MUL, DIV.

use hexloom_abi::Opcode;

use crate::support::{Case, Fill, Spec, kernel_tests};

const OPCODES: [Opcode; 4] = [Opcode::Add, Opcode::Sub, Opcode::Mul, Opcode::Div];

fn each(a: Spec, b: Spec, out: Spec) -> impl Iterator<Item = Case> {
    OPCODES
        .into_iter()
        .map(move |opcode| Case::new(opcode).src(a.clone()).src(b.clone()).dst(out.clone()))
}

/// Shapes of src 0 and of a src 1 that repeats into it.
const SHAPES: [([u32; 4], [u32; 4]); 14] = [
    ([1, 1, 1, 1], [1, 1, 1, 1]),
    ([31, 3, 2, 1], [31, 3, 2, 1]),
    ([33, 3, 2, 2], [33, 1, 1, 1]),
    ([64, 3, 2, 2], [1, 3, 1, 2]),
    ([576, 1, 1, 1], [576, 1, 1, 1]),
    ([12, 5, 1, 1], [4, 5, 1, 1]),
    ([128, 2, 1, 1], [64, 1, 1, 1]),
    ([5000, 2, 1, 1], [5000, 1, 1, 1]),
    ([67, 33, 5, 1], [1, 33, 5, 1]),
    ([0, 3, 1, 1], [1, 1, 1, 1]),
    // From the issue: repeats [1,2,1,1], [1,1,2,1], [1,1,1,2] of [10,5,4,3].
    ([10, 10, 4, 3], [10, 5, 4, 3]),
    ([10, 5, 8, 3], [10, 5, 4, 3]),
    ([10, 5, 4, 6], [10, 5, 4, 3]),
    ([10, 5, 0, 6], [10, 5, 1, 3]),
];

fn dense() -> impl Iterator<Item = Case> {
    SHAPES
        .into_iter()
        .flat_map(|(a, b)| each(Spec::f32(a), Spec::f32(b).range(3.0), Spec::f32(a)))
}

fn mixed_types() -> impl Iterator<Item = Case> {
    let types: [fn([u32; 4]) -> Spec; 2] = [Spec::f32, Spec::f16];
    (0..8usize).flat_map(move |bits| {
        let of = |idx: usize| types[bits >> idx & 1];
        let (a, b, out) = (of(0), of(1), of(2));
        let b = b([37, 1, 2, 1]).fill(Fill::Values(vec![0.5, -1.25, 3.0, 0.75, -2.0]));
        each(a([37, 3, 2, 1]).skewed(), b.skewed(), out([37, 3, 2, 1]).skewed())
    })
}

fn strided() -> impl Iterator<Item = Case> {
    let ne = [40, 5, 3, 2];
    let padded = || Spec::f32(ne).strided(1, 3);
    let stepped = || Spec::f32(ne).strided(2, 1).skewed();
    each(padded(), Spec::f32(ne).transposed(), stepped())
        .chain(each(stepped(), Spec::f32([20, 1, 3, 1]).strided(3, 0), padded()))
        .chain(each(
            Spec::f16(ne).strided(3, 1),
            Spec::f32([1, 5, 1, 1]),
            Spec::f16(ne).transposed(),
        ))
}

fn special() -> impl Iterator<Item = Case> {
    let ne = [70, 9, 1, 1];
    let special = || Spec::f32(ne).fill(Fill::Special);
    each(
        special(),
        Spec::f32(ne).fill(Fill::Values(vec![0.0, -0.0, 1.0, f64::NAN])),
        Spec::f32(ne),
    )
    .chain(each(special(), special(), Spec::f32(ne)))
    .chain(each(special(), Spec::f32([1; 4]).fill(Fill::Value(0.0)), Spec::f32(ne)))
}

kernel_tests! {
    binary_of_dense_rows: dense();
    binary_of_mixed_types: mixed_types();
    binary_of_strided_rows: strided();
    binary_of_special_values: special();
}
