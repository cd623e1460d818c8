//! What some files of a family have and others have not: scaled positions, windows of another pattern, capped logits,
//! biases. And what no graph computes.

mod support;
#[path = "support/tiny.rs"]
mod tiny;

use std::sync::Arc;

use hexloom::transport::SessionAt;
use hexloom::{Session, SessionOptions, Transport};
use hexloom_models::ModelError;
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::{Context, LlamaConfig, Model, Split};
use hexloom_sim::SimTransport;
use support::TempFile;
use tiny::Key::{F32, Str, U32};
use tiny::{Key, Tiny};

const TOKENS: [u32; 5] = [40, 7, 99, 180, 23];
const BIASED: [&str; 7] = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
];

fn config(mut tiny: Tiny, keys: Vec<(&'static str, Key)>) -> Result<LlamaConfig, ModelError> {
    tiny.keys = keys;
    let file = TempFile::new(&tiny.file());
    LlamaConfig::from_gguf(&Gguf::open(file.path()).unwrap())
}

fn sessions(n: u32) -> Vec<Session> {
    let transport: Arc<dyn Transport> = Arc::new(SimTransport::default());
    let open = |core| {
        let options = SessionOptions {
            at: SessionAt { core, session: 0 },
            ..SessionOptions::default()
        };
        Session::open(Arc::clone(&transport), options).unwrap()
    };
    (0..n).map(open).collect()
}

fn try_logits(tiny: &Tiny, split: Split) -> Result<Vec<f32>, ModelError> {
    let file = TempFile::new(&tiny.file());
    let model = Model::load_split(&Gguf::open(file.path()).unwrap(), split, &|_, _| {})?;
    let mut context = Context::new(&model, 64)?;
    context.eval(&TOKENS)?;
    Ok(context.eval(&TOKENS[..1])?.to_vec())
}

fn logits(tiny: &Tiny) -> Vec<f32> {
    try_logits(tiny, Split::single(&sessions(1)[0])).unwrap()
}

fn mean_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f32>() / a.len() as f32
}

/// Numbers of the size of what the matrices give.
fn wave(at: u64) -> f32 {
    0.2 * (at as f32 * 0.7).sin()
}

#[test]
fn positions_are_scaled_as_the_file_says() {
    let scale = |keys| {
        config(Tiny::new(), keys)
            .map(|config| (config.rope.freq_scale, config.rope.ext_factor, config.rope.attn_factor))
    };
    assert_eq!(scale(vec![]).unwrap(), (1.0, 0.0, 1.0));
    // A factor alone is a linear one; before there were kinds it had another key.
    assert_eq!(
        scale(vec![("rope.scaling.factor", F32(4.0))]).unwrap(),
        (0.25, 0.0, 1.0)
    );
    assert_eq!(scale(vec![("rope.scale_linear", F32(8.0))]).unwrap(), (0.125, 0.0, 1.0));
    let both = vec![("rope.scale_linear", F32(8.0)), ("rope.scaling.factor", F32(2.0))];
    assert_eq!(scale(both).unwrap(), (0.5, 0.0, 1.0));
    let zero = vec![("rope.scaling.type", Str("linear")), ("rope.scaling.factor", F32(0.0))];
    assert_eq!(scale(zero).unwrap(), (1.0, 0.0, 1.0));
    let none = vec![("rope.scaling.type", Str("none")), ("rope.scaling.factor", F32(4.0))];
    assert_eq!(scale(none).unwrap(), (1.0, 0.0, 1.0));
    let yarn = vec![
        ("rope.scaling.type", Str("yarn")),
        ("rope.scaling.factor", F32(4.0)),
        ("rope.scaling.attn_factor", F32(1.25)),
    ];
    assert_eq!(scale(yarn).unwrap(), (0.25, 1.0, 1.25));
    for (key, value) in [
        ("rope.scaling.factor", f32::NAN),
        ("rope.scale_linear", -2.0),
        ("rope.scaling.attn_factor", 0.0),
    ] {
        let error = scale(vec![(key, F32(value))]).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
}

#[test]
fn windows_follow_the_pattern_of_the_file() {
    let local = |window, keys| config(Tiny::gemma(window), keys).unwrap();
    let pattern = |period| vec![("attention.sliding_window_pattern", U32(period))];
    let sees_window = |config: LlamaConfig| config.local.map(|local| (local.window, local.period));
    assert_eq!(sees_window(local(48, vec![])), Some((48, 6)));
    assert_eq!(sees_window(local(48, pattern(2))), Some((48, 2)));
    assert_eq!(sees_window(local(48, pattern(0))), Some((48, 0)));
    assert_eq!(sees_window(local(48, pattern(1))), None);
    assert_eq!(sees_window(local(0, vec![])), None);
    // The factor is that of all layers, the stretching that of the others.
    let scaled = vec![
        ("rope.scaling.factor", F32(8.0)),
        ("rope.scaling.attn_factor", F32(1.5)),
    ];
    let rope = local(48, scaled).local.unwrap().rope;
    assert_eq!((rope.freq_scale, rope.attn_factor), (1.0, 1.5));
}

#[test]
fn logits_are_capped_where_the_file_has_a_cap() {
    let plain = logits(&Tiny::gemma(32));
    let cap = plain.iter().fold(0_f32, |most, logit| most.max(logit.abs())) / 2.0;
    let mut tiny = Tiny::gemma(32);
    tiny.keys = vec![("final_logit_softcapping", F32(cap))];
    let bent: Vec<f32> = plain.iter().map(|logit| cap * (logit / cap).tanh()).collect();
    let found = logits(&tiny);
    assert!(mean_difference(&found, &bent) < 1e-3 * cap);
    assert!(mean_difference(&found, &plain) > 1e-2 * cap);
    tiny.keys = vec![("final_logit_softcapping", F32(0.0))];
    assert_eq!(logits(&tiny), plain);
    tiny.keys = vec![("final_logit_softcapping", F32(-1.0))];
    let error = try_logits(&tiny, Split::single(&sessions(1)[0])).unwrap_err();
    assert!(error.to_string().contains("final_logit_softcapping"), "{error}");
}

#[test]
fn each_bias_is_added() {
    let plain = logits(&Tiny::new());
    for part in BIASED {
        let mut tiny = Tiny::new();
        tiny.add_bias(part, &mut wave);
        assert!(mean_difference(&logits(&tiny), &plain) > 1e-3, "{part}");
    }
    let mut tiny = Tiny::new();
    BIASED.iter().for_each(|part| tiny.add_bias(part, &mut |_| 0.0));
    assert!(mean_difference(&logits(&tiny), &plain) < 1e-4);
}

#[test]
fn a_bias_of_values_is_one_of_attention() {
    // Weights of attention add up to 1, so what every value has more, every result has more.
    let mut values = Tiny::new();
    values.add_bias("attn_v", &mut wave);
    let output = values.tensor("blk.0.attn_output.weight");
    let rows = output.bytes.chunks_exact(output.bytes.len() / output.ne[1] as usize);
    let scale = 0.019_989_f32;
    let row = |row: &[u8]| -> f32 {
        let summand = |(block, bytes): (usize, &[u8])| -> f32 {
            let codes = bytes[2..].iter().enumerate();
            let pair = |(at, pair): (usize, &u8)| {
                let column = |at: usize| wave((block * 32 + at) as u64 % 64);
                f32::from(pair & 15) * column(at) - 8.0 * column(at) + (f32::from(pair >> 4) - 8.0) * column(at + 16)
            };
            codes.map(pair).sum::<f32>() * scale
        };
        row.chunks_exact(18).enumerate().map(summand).sum()
    };
    let more: Vec<f32> = rows.map(row).collect();
    let mut results = Tiny::new();
    results.add_bias("attn_output", &mut |at| more[at as usize]);
    let (values, results, plain) = (logits(&values), logits(&results), logits(&Tiny::new()));
    assert!(mean_difference(&values, &results) < 0.1 * mean_difference(&values, &plain));
}

#[test]
fn biases_are_cut_with_their_rows_and_added_once() {
    let mut tiny = Tiny::two_heads();
    BIASED.iter().for_each(|part| tiny.add_bias(part, &mut wave));
    let whole = logits(&tiny);
    let in_one = try_logits(&tiny, Split::segments_in_one(&sessions(1)[0], 2)).unwrap();
    let apart = try_logits(&tiny, Split::segments(&sessions(2))).unwrap();
    assert_eq!(in_one, apart);
    let size = mean_difference(&whole, &vec![0.0; whole.len()]);
    assert!(mean_difference(&whole, &in_one) < 0.02 * size);
}

#[test]
fn a_tensor_without_a_place_is_named() {
    for (mut tiny, part) in [(Tiny::new(), "attn_output"), (Tiny::gemma(32), "attn_q")] {
        tiny.add_bias(part, &mut wave);
        let name = match part {
            "attn_q" => format!("blk.0.{part}.bias"),
            _ => "blk.0.attn_sinks.weight".to_owned(),
        };
        tiny.tensor(&format!("blk.0.{part}.bias")).name.clone_from(&name);
        let error = try_logits(&tiny, Split::single(&sessions(1)[0])).unwrap_err();
        assert!(
            matches!(&error, ModelError::UnusedTensor { tensor, .. } if *tensor == name),
            "{error}"
        );
    }
    let mut tiny = Tiny::new();
    tiny.add_bias("attn_q", &mut wave);
    tiny.tensor("blk.0.attn_q.bias").name = "blk.0.attn_rot_embd".to_owned();
    assert_eq!(logits(&tiny), logits(&Tiny::new()));
}
