//! SOFT_MAX and ARGMAX.

use hexloom_abi::Opcode;

use crate::support::{Case, Fill, Spec, kernel_tests};

fn soft_max(x: Spec, scale: f32, max_bias: f32) -> Case {
    let out = Spec {
        fill: Fill::Random(1.0),
        ..x.clone()
    };
    Case::new(Opcode::SoftMax)
        .src(x)
        .dst(out)
        .param_f32(0, scale)
        .param_f32(1, max_bias)
}

/// Visible and hidden positions; every third row of the mask hides all.
fn causal(spec: Spec) -> Spec {
    let [n0, n1, ..] = spec.shape.ne;
    let hidden = |idx: u32| idx / n0 % 3 == 2 || idx % n0 > idx / n0;
    let values = (0..n0 * n1)
        .map(|idx| {
            if hidden(idx) {
                f64::NEG_INFINITY
            } else {
                -0.125 * f64::from(idx % 5)
            }
        })
        .collect();
    spec.fill(Fill::Values(values))
}

fn dense() -> impl Iterator<Item = Case> {
    let shapes = [
        [1, 1, 1, 1],
        [31, 2, 3, 2],
        [32, 2, 3, 1],
        [65, 7, 12, 1],
        [2049, 1, 2, 1],
        [16, 3, 0, 1],
    ];
    shapes.into_iter().flat_map(|ne @ [n0, n1, n2, n3]| {
        let x = || Spec::f32(ne).range(20.0);
        let sinks = || Spec::f32([n2, 1, 1, 1]).range(3.0);
        [
            soft_max(x(), 1.0, 0.0),
            soft_max(x(), 0.125, 0.0).src(causal(Spec::f16([n0, n1 + 1, 1, 1]))),
            soft_max(x(), 0.5, 8.0).src(causal(Spec::f32([n0, n1, 1, n3]).skewed())),
            soft_max(x(), -1.0, 0.0)
                .src(causal(Spec::f32([n0, n1, 1, 1])))
                .src(sinks()),
            soft_max(x(), 1.0, 0.0).no_src().src(sinks()),
        ]
    })
}

fn layouts() -> impl Iterator<Item = Case> {
    let ne = [45, 3, 4, 2];
    [
        soft_max(Spec::f32(ne).strided(1, 3).skewed(), 0.3, 4.0).src(Spec::f16([45, 5, 2, 1]).strided(1, 1).skewed()),
        soft_max(Spec::f32(ne).skewed(), 2.0, 0.0).src(Spec::f32([45, 3, 4, 2])),
    ]
    .into_iter()
}

fn special() -> impl Iterator<Item = Case> {
    let row = |odd: f64, rest: f64| {
        let mut values = vec![rest; 40];
        values[33] = odd;
        Spec::f32([40, 1, 1, 1]).fill(Fill::Values(values))
    };
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e38];
    odd.into_iter()
        .flat_map(move |odd| [0.5, f64::NEG_INFINITY].map(|rest| soft_max(row(odd, rest), 1.0, 0.0)))
}

fn argmax(x: Spec) -> Case {
    let [_, n1, n2, n3] = x.shape.ne;
    Case::new(Opcode::Argmax).src(x).dst(Spec::i32([n1, n2, n3, 1], &[0]))
}

fn argmax_all() -> impl Iterator<Item = Case> {
    let none = || Spec::f32([50, 2, 1, 1]);
    [
        argmax(Spec::f32([1, 1, 1, 1])),
        argmax(Spec::f32([33, 5, 3, 2])),
        argmax(Spec::f32([4099, 3, 1, 1])),
        argmax(Spec::f32([49_152, 1, 1, 1])),
        argmax(Spec::f32([70, 6, 2, 1]).strided(2, 1).skewed()),
        argmax(Spec::f32([70, 6, 2, 1]).transposed()),
        argmax(Spec::f32([90, 9, 1, 1]).fill(Fill::Special)),
        // The first of equals, within a vector and across vectors.
        argmax(Spec::f32([97, 2, 1, 1]).fill(Fill::Values(vec![1.0, 7.0, 3.0]))),
        argmax(Spec::f32([97, 2, 1, 1]).fill(Fill::Value(-3.0))),
        argmax(none().fill(Fill::Value(f64::NAN))),
        argmax(none().fill(Fill::Value(f64::NEG_INFINITY))),
        argmax(none().fill(Fill::Values(vec![f64::NAN, f64::NEG_INFINITY, -5.0, f64::NAN, -5.0]))),
    ]
    .into_iter()
}

kernel_tests! {
    soft_max_of_dense_rows: dense();
    soft_max_of_other_layouts: layouts();
    soft_max_of_special_values: special();
    argmax_of_rows: argmax_all();
}
