//! RMS_NORM, RMS_NORM_MUL and NORM.

use hexloom_abi::Opcode;

use crate::support::{Case, Fill, Spec, kernel_tests};

/// All three; the weight of RMS_NORM_MUL has shape `weight`.
fn each(x: Spec, weight: Spec, out: Spec, eps: f32) -> impl Iterator<Item = Case> {
    [Opcode::RmsNorm, Opcode::Norm, Opcode::RmsNormMul]
        .into_iter()
        .map(move |opcode| {
            let case = Case::new(opcode).src(x.clone()).param_f32(0, eps);
            let case = match opcode {
                Opcode::RmsNormMul => case.src(weight.clone()),
                _ => case,
            };
            case.dst(out.clone())
        })
}

fn dense() -> impl Iterator<Item = Case> {
    let shapes = [
        [576, 1, 1, 1],
        [1, 5, 1, 1],
        [31, 3, 2, 2],
        [33, 70, 1, 1],
        [1025, 7, 1, 1],
        [64, 0, 1, 1],
    ];
    shapes.into_iter().flat_map(|ne @ [n0, n1, ..]| {
        let row = [n0, 1, 1, 1];
        let matrix = [n0, n1.max(1), 1, 1];
        each(Spec::f32(ne).range(10.0), Spec::f32(row), Spec::f32(ne), 1e-5)
            .chain(each(Spec::f32(ne).range(1e-4), Spec::f32(matrix), Spec::f32(ne), 1e-6))
            .chain(each(
                Spec::f32(ne).range(1e4),
                Spec::f32(ne).range(5.0),
                Spec::f32(ne),
                0.0,
            ))
    })
}

fn layouts() -> impl Iterator<Item = Case> {
    let ne = [45, 4, 3, 2];
    let row = || Spec::f16([45, 1, 1, 1]).skewed();
    each(Spec::f16(ne).skewed(), row(), Spec::f32(ne).skewed(), 1e-5)
        .chain(each(
            Spec::f32(ne).strided(1, 3),
            row(),
            Spec::f16(ne).strided(2, 1),
            1e-5,
        ))
        .chain(each(
            Spec::f32(ne).transposed(),
            Spec::f32([45, 4, 1, 2]),
            Spec::f32(ne).transposed(),
            1e-5,
        ))
}

/// A mean a thousand times the spread: the square of the mean must not be subtracted from the mean of squares.
fn far_from_zero() -> impl Iterator<Item = Case> {
    let values = (0..97).map(|idx| 1000.0 + f64::from(idx * 37 % 97) / 97.0).collect();
    let ne = [97, 2, 1, 1];
    each(
        Spec::f32(ne).fill(Fill::Values(values)),
        Spec::f32(ne),
        Spec::f32(ne),
        1e-5,
    )
}

fn special() -> impl Iterator<Item = Case> {
    let ne = [40, 2, 1, 1];
    let fills = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0].map(|odd| {
        let mut values = vec![0.5; 40];
        values[35] = odd;
        Fill::Values(values)
    });
    fills
        .into_iter()
        .chain([Fill::Value(0.0)])
        .flat_map(move |fill| each(Spec::f32(ne).fill(fill), Spec::f32(ne), Spec::f32(ne), 1e-5))
}

kernel_tests! {
    norm_of_dense_rows: dense();
    norm_of_other_layouts: layouts();
    norm_far_from_zero: far_from_zero();
    norm_of_special_values: special();
}
