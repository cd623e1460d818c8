//! FLASH_ATTN_EXT.

use hexloom_abi::{DType, Opcode};
use hexloom_dsp::hmx::UnitKind;

use crate::support::case::outputs;
use crate::support::{Case, Fill, Spec, kernel_tests};

kernel_tests! {
    head_sizes: [8, 16, 24, 40, 64, 80, 96, 128, 256, 576].into_iter().flat_map(|size| {
        [1, 7].map(|tokens| Shape { size: [size, size], tokens, ..PLAIN }.case())
    });
    keys_wider_than_values: [Shape { size: [576, 512], ..PLAIN }.case(), Shape { size: [40, 72], ..PLAIN }.case()];
    kv_lengths: [1, 63, 64, 65, 700, 2000].into_iter().flat_map(|n_kv| {
        [1, 2, 7].map(|tokens| Shape { n_kv, tokens, ..PLAIN }.case())
    });
    a_long_cache: [Shape { size: [8, 8], n_kv: 5000, ..PLAIN }.case()];
    a_prompt: [Shape { tokens: 64, n_kv: 100, ..PLAIN }.masked(causal(64, 100)), Shape { tokens: 64, ..PLAIN }.case()];
    grouped_heads: [[1, 1], [2, 2], [3, 1], [6, 2], [8, 1], [9, 3], [11, 1]].into_iter().flat_map(|heads| {
        [1, 5].map(|tokens| Shape { heads, tokens, ..PLAIN }.case())
    });
    sequences: [[2, 2], [4, 2], [3, 1]].map(|seqs| Shape { seqs, ..PLAIN }.case());
    quantized_cache: [32, 64, 96, 128].into_iter().flat_map(|size| [1, 7].map(|tokens| {
        Shape { size: [size, size], tokens, n_kv: 150, cache: [DType::Q8_0, DType::Q8_0], ..PLAIN }.case()
    }));
    mixed_cache: [[DType::Q8_0, DType::F16], [DType::F16, DType::Q8_0]].map(|cache| Shape { cache, ..PLAIN }.case());
    half_queries_and_results: [1, 7].map(|tokens| {
        let mut case = Shape { tokens, ..PLAIN }.case();
        case.srcs[0] = Some(Spec::f16([64, tokens, 6, 1]));
        case.dsts[0] = Spec::f16(case.dsts[0].shape.ne);
        case
    });
    strided_cache: [1, 7].map(|tokens| {
        let mut case = Shape { tokens, ..PLAIN }.case();
        for spec in case.srcs.iter_mut().take(3) {
            *spec = spec.take().map(|spec| spec.strided(1, 4).skewed());
        }
        case
    });
    causal_masks: [1, 2, 7, 64].map(|tokens| Shape { tokens, n_kv: 200, ..PLAIN }.masked(causal(tokens, 200)));
    windowed_masks: [1, 2, 7, 64].map(|tokens| Shape { tokens, n_kv: 700, ..PLAIN }.masked(windowed(tokens, 700, 40)));
    all_hidden: [1, 7].map(|tokens| Shape { tokens, ..PLAIN }.masked(vec![f64::NEG_INFINITY; tokens as usize * 150]));
    one_row_hidden: [2, 7].map(|tokens| {
        let mut mask = causal(tokens, 150);
        mask[150..300].fill(f64::NEG_INFINITY);
        Shape { tokens, ..PLAIN }.masked(mask)
    });
    masks_of_every_extent: [[1, 1], [6, 1], [2, 1], [1, 2], [6, 2]].into_iter().flat_map(|[heads, seqs]| {
        [DType::F16, DType::F32].map(|dtype| {
            let mut case = Shape { seqs: [2, 2], ..PLAIN }.case();
            // More rows than tokens, as a padded mask has.
            case.srcs[3] = Some(Spec::new(dtype, [150, 4, heads, seqs]).range(3.0));
            case
        })
    });
    soft_cap: [0.5, 30.0].map(|cap| Shape { tokens: 3, ..PLAIN }.case().param_f32(2, cap));
    slopes: [1.0, 8.0].into_iter().flat_map(|bias| [[6, 2], [8, 8], [5, 1]].map(|heads| {
        let mask = (0..150).map(|idx| -f64::from(idx) * 0.05).collect();
        Shape { heads, ..PLAIN }.masked(mask).param_f32(1, bias)
    }));
    sinks: [1, 7].into_iter().flat_map(|tokens| [0.1, 3.0, 50.0].map(|limit| {
        let case = Shape { tokens, n_kv: 300, ..PLAIN }.masked(causal(tokens, 300));
        case.src(Spec::f32([6, 1, 1, 1]).range(limit))
    }));
    sinks_of_hidden_rows: [Shape { ..PLAIN }.masked(vec![f64::NEG_INFINITY; 150]).src(Spec::f32([6, 1, 1, 1]))];
    // The matrix unit's tiles and its switch-over.
    unit_token_counts: [4, 5, 31, 32, 33, 63, 64, 65].map(|tokens| {
        Shape { tokens, heads: [1, 1], n_kv: 65, ..PLAIN }.masked(causal(tokens, 65))
    });
    unit_kv_lengths: [1, 31, 32, 33, 64, 65, 1100].map(|n_kv| Shape { tokens: 5, n_kv, heads: [2, 1], ..PLAIN }.case());
    unit_ranges: [1e-6, 1e4].into_iter().flat_map(|limit| [0, 1, 2].map(|operand| {
        let mut case = Shape { tokens: 5, ..PLAIN }.case();
        case.srcs[operand] = case.srcs[operand].take().map(|spec| spec.range(limit));
        if operand < 2 { case.param_f32(0, 0.125 / limit as f32) } else { case }
    }));
    unit_far_masks: [Shape { tokens: 6, ..PLAIN }.masked((0..6 * 150).map(|idx| -f64::from(idx % 150)).collect())];
    large_scores: [1, 7].into_iter().flat_map(|tokens| [
        Shape { tokens, ..PLAIN }.case().param_f32(0, 40.0),
        Shape { tokens, n_kv: 700, ..PLAIN }.case().param_f32(0, -40.0),
    ]);
}

/// The model serves more than 4 tokens and nothing else: its rounding shows in the bits. Caches with a value that is not
/// finite go to the vector kernels, whose bits come back.
#[test]
fn the_unit_serves_many_tokens() {
    let same = |case: &Case| {
        let [vector, unit] = [None, Some(UnitKind::Model)].map(|unit| outputs(case, unit)[0].values());
        vector
            .iter()
            .zip(&unit)
            .all(|(a, b)| a == b || a.is_nan() && b.is_nan())
    };
    for (tokens, served) in [(1, false), (4, false), (5, true), (33, true)] {
        let case = Shape { tokens, ..PLAIN }.case();
        assert_eq!(same(&case), !served, "{tokens} tokens");
    }
    for operand in 0..3 {
        for bad in [f64::NAN, f64::INFINITY] {
            let mut case = Shape { tokens: 5, ..PLAIN }.case();
            let spec = case.srcs[operand].take().expect("an operand that must be there");
            let mut values = spec.build(1).values();
            let middle = values.len() / 2;
            values[middle] = bad;
            case.srcs[operand] = Some(spec.fill(Fill::Values(values)));
            assert!(same(&case), "{bad} in operand {operand}");
        }
    }
}

/// What the mask hides is not read: junk there, NaN included, changes nothing.
#[test]
fn hidden_blocks_are_not_read() {
    for tokens in [1, 7] {
        let shape = Shape {
            tokens,
            n_kv: 256,
            ..PLAIN
        };
        let mut mask = vec![0.0; tokens as usize * 256];
        for row in mask.chunks_mut(256) {
            row[64..192].fill(f64::NEG_INFINITY);
        }
        let clean = shape.masked(mask);
        let mut dirty = clean.clone();
        for operand in [1, 2] {
            let spec = clean.srcs[operand].clone().expect("keys and values are there");
            let mut values = spec.build(operand as u64 + 1).values();
            dirty.srcs[operand] = Some(spec.clone().fill(Fill::Values(values.clone())));
            for (idx, value) in values.iter_mut().enumerate() {
                if (64..192).contains(&(idx / 64 % 256)) {
                    *value = f64::NAN;
                }
            }
            dirty.srcs[operand] = Some(spec.fill(Fill::Values(values)));
        }
        for unit in [None, Some(UnitKind::Model)] {
            let [clean, dirty] = [&clean, &dirty].map(|case| outputs(case, unit)[0].values());
            assert_eq!(clean, dirty);
            assert!(clean.iter().any(|&x| x != 0.0));
        }
    }
}

#[derive(Clone, Copy)]
struct Shape {
    /// Elements of a key and of a value.
    size: [u32; 2],
    tokens: u32,
    n_kv: u32,
    /// Query heads and KV heads.
    heads: [u32; 2],
    /// Sequences of queries and of the cache.
    seqs: [u32; 2],
    cache: [DType; 2],
}

const PLAIN: Shape = Shape {
    size: [64, 64],
    tokens: 1,
    n_kv: 150,
    heads: [6, 2],
    seqs: [1, 1],
    cache: [DType::F16, DType::F16],
};

impl Shape {
    /// Without a mask.
    fn case(self) -> Case {
        let [dk, dv] = self.size;
        let [heads, kv_heads] = self.heads;
        let [seqs, kv_seqs] = self.seqs;
        Case::new(Opcode::FlashAttnExt)
            .src(Spec::f32([dk, self.tokens, heads, seqs]).range(2.0))
            .src(Spec::new(self.cache[0], [dk, self.n_kv, kv_heads, kv_seqs]))
            .src(Spec::new(self.cache[1], [dv, self.n_kv, kv_heads, kv_seqs]))
            .no_src()
            .dst(Spec::f32([dv, heads, self.tokens, seqs]))
            .param_f32(0, 1.0 / (dk as f32).sqrt())
    }

    /// With an F16 mask of these values for all heads.
    fn masked(self, values: Vec<f64>) -> Case {
        let mut case = self.case();
        case.srcs[3] = Some(Spec::f16([self.n_kv, self.tokens, 1, 1]).fill(Fill::Values(values)));
        case
    }
}

/// Token t sees all but the last `tokens - 1 - t` positions.
fn causal(tokens: u32, n_kv: u32) -> Vec<f64> {
    windowed(tokens, n_kv, n_kv)
}

/// As `causal`, but only the last `window` positions.
fn windowed(tokens: u32, n_kv: u32, window: u32) -> Vec<f64> {
    let mut mask = Vec::new();
    for token in 0..tokens {
        let last = (n_kv - 1).saturating_sub(tokens - 1 - token);
        for position in 0..n_kv {
            let seen = position <= last && position + window > last;
            mask.push(if seen { 0.0 } else { f64::NEG_INFINITY });
        }
    }
    mask
}
