//! ROPE.

use hexloom_abi::Opcode;
use hexloom_abi::support::{ROPE_NEOX, ROPE_NORMAL};

use crate::support::{Case, Fill, Spec, kernel_tests};

/// Rotation of `n_dims` elements without YaRN.
fn plain(x: Spec, out: Spec, positions: &[i64], n_dims: u32, mode: u32) -> Case {
    let n_tokens = x.shape.ne[2];
    Case::new(Opcode::Rope)
        .src(x)
        .src(Spec::i32([n_tokens, 1, 1, 1], positions))
        .dst(out)
        .param(1, n_dims)
        .param(2, mode)
        .param(4, 512)
        .param_f32(5, 10_000.0)
        .param_f32(6, 1.0)
        .param_f32(8, 1.0)
        .param_f32(9, 32.0)
        .param_f32(10, 1.0)
}

fn factors(n_dims: u32) -> Spec {
    let values = (0..n_dims / 2).map(|pair| 1.0 + 0.05 * f64::from(pair)).collect();
    Spec::f32([n_dims / 2, 1, 1, 1]).fill(Fill::Values(values))
}

const MODES: [u32; 2] = [ROPE_NORMAL, ROPE_NEOX];

fn shapes() -> impl Iterator<Item = Case> {
    // Whole and partial rotation, half counts that are no whole vectors, one token, none.
    let shapes = [
        ([64, 9, 1, 1], 64),
        ([64, 9, 5, 2], 64),
        ([80, 3, 4, 1], 32),
        ([96, 2, 3, 1], 96),
        ([7, 2, 3, 1], 6),
        ([130, 5, 4, 1], 2),
        ([256, 2, 8, 1], 250),
        ([64, 3, 0, 1], 64),
    ];
    shapes.into_iter().flat_map(|(ne, n_dims)| {
        MODES.into_iter().flat_map(move |mode| {
            let case = plain(Spec::f32(ne), Spec::f32(ne), &[3, 511, 0, 70, -2], n_dims, mode);
            [case.clone(), case.src(factors(n_dims))]
        })
    })
}

fn layouts() -> impl Iterator<Item = Case> {
    let ne = [64, 4, 3, 2];
    MODES.into_iter().flat_map(move |mode| {
        [
            (Spec::f16(ne).skewed(), Spec::f16(ne).skewed()),
            (Spec::f32(ne).skewed(), Spec::f16(ne).strided(1, 2)),
            (Spec::f32(ne).strided(2, 1), Spec::f32(ne).transposed()),
        ]
        .map(|(x, out)| plain(x, out, &[10, 11, 12], 48, mode))
    })
}

/// Angles of 1e5 radians hold 1e-6.
fn far_positions() -> impl Iterator<Item = Case> {
    MODES.into_iter().map(|mode| {
        let ne = [128, 2, 6, 1];
        plain(
            Spec::f32(ne),
            Spec::f32(ne),
            &[100_000, 99_999, 65_537, 131_071, 1, 8191],
            128,
            mode,
        )
        .nmse(1e-12)
    })
}

/// The YaRN values: with and without frequency factors; `check` runs each in place and not.
fn yarn() -> impl Iterator<Item = Case> {
    let cases = MODES.into_iter().flat_map(|mode| [(mode, 1.0), (mode, 1.4245)]);
    cases.flat_map(|(mode, attn_factor)| {
        let ne = [128, 32, 2, 1];
        let case = plain(Spec::f32(ne), Spec::f32(ne), &[17, 401], 128, mode)
            .param_f32(6, 1.4245)
            .param_f32(7, 0.7465)
            .param_f32(8, attn_factor);
        [case.clone(), case.src(factors(128))]
    })
}

fn special() -> impl Iterator<Item = Case> {
    MODES.into_iter().map(|mode| {
        let ne = [66, 3, 2, 1];
        plain(Spec::f32(ne).fill(Fill::Special), Spec::f32(ne), &[0, 5], 64, mode)
    })
}

kernel_tests! {
    rope_of_dense_rows: shapes();
    rope_of_other_layouts: layouts();
    rope_at_far_positions: far_positions();
    rope_with_yarn: yarn();
    rope_of_special_values: special();
}
