//! Sizes of models' weights in tiles, without the models.

#![allow(dead_code, reason = "each user takes a part of it")]

use hexloom::DType;
use hexloom::abi::tile::TileLayout;
use hexloom::plan::buffers::{BufferLimits, TensorNeed};
use hexloom::plan::residency::{ResidencyError, Stream, stream};

/// Shape of a model of the Llama family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) layers: u32,
    pub(crate) embd: u32,
    pub(crate) kv: u32,
    pub(crate) ff: u32,
    pub(crate) vocab: u32,
    pub(crate) tied: bool,
}

/// SmolLM2-135M; the published file has its head in Q8_0, here it is Q4_1 as all else.
pub(crate) const SMOLLM2: Shape = Shape {
    layers: 30,
    embd: 576,
    kv: 192,
    ff: 1536,
    vocab: 49_152,
    tied: true,
};
/// Some 4.7 GiB in Q4_1.
pub(crate) const EIGHT_B: Shape = Shape {
    layers: 32,
    embd: 4096,
    kv: 1024,
    ff: 14_336,
    vocab: 128_256,
    tied: false,
};
/// Some 8.6 GiB in Q4_1, with a head of its own.
pub(crate) const FOURTEEN_B: Shape = Shape {
    layers: 48,
    embd: 5120,
    kv: 1024,
    ff: 13_824,
    vocab: 152_064,
    tied: false,
};

/// Name and bytes of each weight in Q4_1, in order of use.
pub(crate) fn weights(shape: Shape) -> Vec<(String, u64)> {
    let matrix = |columns: u32, rows: u32| {
        let layout = TileLayout::new(DType::Q4_1, columns).expect("columns of whole tiles");
        layout.tensor_bytes([columns, rows, 1, 1]).expect("a size")
    };
    let Shape {
        embd, kv, ff, vocab, ..
    } = shape;
    let mut all = vec![("token_embd.weight".to_owned(), matrix(embd, vocab))];
    for layer in 0..shape.layers {
        let mut add = |part: &str, bytes| all.push((format!("blk.{layer}.{part}.weight"), bytes));
        add("attn_norm", u64::from(embd) * 4);
        add("ffn_norm", u64::from(embd) * 4);
        add("attn_q", matrix(embd, embd));
        add("attn_k", matrix(embd, kv));
        add("attn_v", matrix(embd, kv));
        add("attn_output", matrix(embd, embd));
        add("ffn_gate", matrix(embd, ff));
        add("ffn_up", matrix(embd, ff));
        add("ffn_down", matrix(ff, embd));
    }
    all.push(("output_norm.weight".to_owned(), u64::from(embd) * 4));
    if !shape.tied {
        all.push(("output.weight".to_owned(), matrix(embd, vocab)));
    }
    all
}

/// The model's weights streamed through a window.
pub(crate) fn streamed(shape: Shape, window_bytes: u64) -> Result<Stream, ResidencyError> {
    let weights = weights(shape);
    let needs: Vec<TensorNeed<'_>> = weights
        .iter()
        .map(|(name, bytes)| TensorNeed::new(name, *bytes))
        .collect();
    let uses: Vec<usize> = (0..needs.len()).chain(shape.tied.then_some(0)).collect();
    stream(&needs, &uses, &BufferLimits::new(79, window_bytes))
}
