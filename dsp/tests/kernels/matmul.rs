//! MUL_MAT, MUL_MAT_ADD, MUL_MAT_NX.

use hexloom_abi::{DType, Opcode};
use hexloom_dsp::hmx::UnitKind;

use crate::support::weights::Weights;
use crate::support::{Case, Fill, Spec, kernel_tests};

const TILED: [DType; 3] = [DType::Q4_0, DType::Q4_1, DType::Q8_0];
/// Error of int8 activations.
const QUANTIZED: f64 = 5e-4;

kernel_tests! {
    q4_0_every_row_count: [1, 2, 4, 5, 6, 8, 16, 31, 32, 33].map(|m| tiled(DType::Q4_0, [256, 16, 1, 1], m, 0.05));
    q4_0_every_weight_row_count: [1, 2, 4, 5, 6, 8, 16, 31, 32, 33].map(|n| tiled(DType::Q4_0, [256, n, 1, 1], 16, 0.05));
    scales_at_the_f16_limit: TILED.map(|dtype| tiled(dtype, [256, 33, 1, 1], 3, 16000.0));
    row_lengths: TILED.into_iter().flat_map(|dtype| {
        [32, 224, 256, 288, 2880].map(|k| tiled(dtype, [k, 40, 1, 1], 5, 0.05))
    });
    more_groups_than_threads: TILED.map(|dtype| tiled(dtype, [64, 300, 1, 1], 9, 0.05));
    tiny_and_huge_activations: TILED.into_iter().flat_map(|dtype| {
        [1e-6, 1e6, 1e-25].map(|limit| activation(dtype, Fill::Random(limit)))
    });
    zero_activations: TILED.map(|dtype| activation(dtype, Fill::Value(0.0)));
    zero_blocks: TILED.map(|dtype| activation(dtype, Fill::Values(half_zero())));
    broadcast_matrices: TILED.into_iter().flat_map(|dtype| [
        matrices(Weights::random(dtype, [64, 40, 1, 1], 0.05).tiled(), [64, 3, 4, 2]),
        matrices(Weights::random(dtype, [64, 40, 2, 1], 0.05).tiled(), [64, 3, 4, 2]),
        matrices(Weights::random(dtype, [64, 40, 2, 2], 0.05).tiled(), [64, 3, 4, 4]),
        matrices(Weights::random(dtype, [64, 40, 1, 2], 0.05).tiled(), [64, 3, 3, 4]),
    ]);
    float_weights: [DType::F32, DType::F16].into_iter().flat_map(|dtype| [
        exact(Spec::new(dtype, [64, 33, 1, 1]), Spec::f32([64, 5, 1, 1])),
        exact(Spec::new(dtype, [1, 1, 1, 1]), Spec::f32([1, 1, 1, 1])),
        exact(Spec::new(dtype, [31, 3, 1, 1]), Spec::f32([31, 2, 1, 1])),
        exact(Spec::new(dtype, [700, 64, 1, 1]).skewed(), Spec::f16([700, 3, 1, 1]).skewed()),
        exact(Spec::new(dtype, [80, 65, 2, 1]).strided(1, 3), Spec::f32([80, 4, 6, 2]).strided(1, 5)),
        exact(Spec::new(dtype, [40, 7, 1, 3]), Spec::f16([40, 1, 2, 3])),
        exact(Spec::new(dtype, [65, 100, 1, 1]), Spec::f32([65, 70, 1, 1])),
    ]);
    special_float_values: [DType::F32, DType::F16].map(|dtype| {
        exact(Spec::new(dtype, [3, 40, 1, 1]), Spec::f32([3, 7, 1, 1]).fill(Fill::Values(vec![
            1.0, f64::NAN, 2.0, f64::INFINITY, 1.0, 0.5, -0.0, 0.0, 3.0,
        ])))
    });
    half_activations: TILED.map(|dtype| {
        matrices(Weights::random(dtype, [96, 40, 1, 1], 0.05).tiled(), [96, 3, 2, 1])
    }).map(|mut case| { case.srcs[1] = Some(Spec::f16([96, 3, 2, 1]).strided(1, 7)); case });
    addend_of_one_row: TILED.map(|dtype| with_addend(dtype, [40, 1, 1, 1], 6));
    addend_of_full_shape: TILED.map(|dtype| with_addend(dtype, [40, 6, 1, 1], 6));
    addend_to_float_weights: [
        exact(Spec::f16([64, 33, 1, 1]), Spec::f32([64, 5, 2, 1])),
        exact(Spec::f32([64, 33, 1, 1]), Spec::f32([64, 5, 2, 1])),
    ].into_iter().flat_map(|case| [[33, 1, 1, 1], [33, 5, 1, 1], [33, 1, 2, 1], [33, 5, 2, 1]].map(|ne| {
        let mut case = case.clone().src(Spec::f32(ne));
        case.opcode = Opcode::MulMatAdd;
        case
    }));
    several_weights: [1, 5].map(several);
    // The matrix unit's tiles, its switch-over and rows beyond the range of f16.
    unit_row_counts: [4, 5, 31, 32, 33, 63, 64, 65].into_iter().flat_map(|m| [
        tiled(DType::Q4_1, [96, 40, 1, 1], m, 0.05),
        exact(Spec::f16([70, 33, 1, 1]), Spec::f32([70, m, 1, 1])),
    ]);
    unit_long_rows: TILED.map(|dtype| tiled(dtype, [1056, 33, 1, 1], 5, 0.05));
    unit_scales_at_the_f16_limit: TILED.map(|dtype| tiled(dtype, [256, 33, 1, 1], 6, 16000.0));
    unit_tiny_scales: TILED.map(|dtype| tiled(dtype, [256, 33, 1, 1], 6, 1e-6));
    unit_ranges: [1e-25, 1e-6, 1e5, 1e30].into_iter().flat_map(|limit| [
        activation(DType::Q8_0, Fill::Random(limit)),
        exact(Spec::f16([96, 33, 1, 1]), Spec::f32([96, 7, 1, 1]).range(limit)),
        exact(Spec::f16([96, 33, 1, 1]).range(60_000.0), Spec::f32([96, 7, 1, 1]).range(limit)),
        exact(Spec::f16([96, 33, 1, 1]).range(1e-5), Spec::f32([96, 7, 1, 1]).range(limit)),
    ]);
    scratch_for_few_rows: TILED.map(|dtype| tiled(dtype, [2048, 33, 1, 1], 130, 0.05));
}

/// Activation blocks with a NaN or an infinity give NaN in their rows and leave the other rows alone.
#[test]
fn activations_that_are_not_finite() {
    for dtype in TILED {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut values = vec![0.5; 6 * 64];
            values[64 + 40] = bad;
            let case = activation_of(dtype, 64, 6, Fill::Values(values)).nmse(QUANTIZED);
            for unit in [None, Some(UnitKind::Model)] {
                let values = crate::support::case::outputs(&case, unit)[0].values();
                assert!(
                    values[40..80].iter().all(|x| x.is_nan()),
                    "{dtype}: {bad} must reach its row"
                );
                assert!(values[..40].iter().chain(&values[80..]).all(|x| x.is_finite()));
            }
        }
    }
}

/// The model serves what it is meant to serve, and nothing else: its rounding shows in the bits.
#[test]
fn the_unit_serves_many_rows() {
    let differs = |case: &Case| {
        let [vector, unit] = [None, Some(UnitKind::Model)].map(|unit| crate::support::case::outputs(case, unit));
        vector[0].values() != unit[0].values()
    };
    for weight in TILED.map(|dtype| Weights::random(dtype, [64, 40, 1, 1], 0.05).tiled()) {
        assert!(differs(&matrices(weight.clone(), [64, 5, 1, 1])));
        assert!(differs(&matrices(weight.clone(), [64, 1, 5, 1])));
        assert!(!differs(&matrices(weight, [64, 4, 1, 1])));
    }
    assert!(differs(&exact(Spec::f16([64, 33, 1, 1]), Spec::f32([64, 5, 1, 1]))));
    assert!(!differs(&exact(Spec::f16([64, 33, 1, 1]), Spec::f32([64, 4, 1, 1]))));
    assert!(!differs(&exact(Spec::f32([64, 33, 1, 1]), Spec::f32([64, 5, 1, 1]))));
}

fn tiled(dtype: DType, ne: [u32; 4], m: u32, scale: f32) -> Case {
    matrices(Weights::random(dtype, ne, scale).tiled(), [ne[0], m, 1, 1])
}

fn matrices(weight: Spec, x: [u32; 4]) -> Case {
    let out = [weight.shape.ne[1], x[1], x[2], x[3]];
    Case::new(Opcode::MulMat)
        .src(weight)
        .src(Spec::f32(x))
        .dst(Spec::f32(out))
        .nmse(QUANTIZED)
}

fn activation(dtype: DType, fill: Fill) -> Case {
    activation_of(dtype, 256, 5, fill)
}

fn activation_of(dtype: DType, k: u32, m: u32, fill: Fill) -> Case {
    let mut case = matrices(Weights::random(dtype, [k, 40, 1, 1], 0.05).tiled(), [k, m, 1, 1]);
    case.srcs[1] = Some(Spec::f32([k, m, 1, 1]).fill(fill));
    case
}

/// Blocks of 32 zeros between blocks of others.
fn half_zero() -> Vec<f64> {
    (0..96)
        .map(|idx| {
            if idx < 32 {
                0.0
            } else {
                f64::from(idx) * 0.37 % 1.0 - 0.4
            }
        })
        .collect()
}

fn exact(weight: Spec, x: Spec) -> Case {
    let [_, m, n2, n3] = x.shape.ne;
    let out = Spec::f32([weight.shape.ne[1], m, n2, n3]);
    Case::new(Opcode::MulMat).src(weight).src(x).dst(out)
}

fn with_addend(dtype: DType, addend: [u32; 4], m: u32) -> Case {
    let mut case = tiled(dtype, [96, 40, 1, 1], m, 0.05).src(Spec::f32(addend));
    case.opcode = Opcode::MulMatAdd;
    case
}

/// Four weights of all kinds over one activation.
fn several(m: u32) -> Case {
    let mut case = Case::new(Opcode::MulMatNx)
        .src(Weights::random(DType::Q4_1, [128, 70, 1, 1], 0.05).tiled())
        .src(Spec::f16([128, 33, 1, 1]))
        .src(Weights::random(DType::Q8_0, [128, 32, 1, 1], 0.01).tiled())
        .src(Weights::random(DType::Q4_0, [128, 1, 1, 1], 0.05).tiled())
        .src(Spec::f32([128, m, 1, 1]))
        .nmse(QUANTIZED);
    for n in [70, 33, 32, 1] {
        case = case.dst(Spec::f32([n, m, 1, 1]));
    }
    case
}
