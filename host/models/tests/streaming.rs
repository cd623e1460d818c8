//! Weights by DMA change no bit of a model's logits: the real model with one to four threads and little scratch memory,
//! and a small one that is always there. The real one is skipped, loudly, without its file.

#[path = "support/logits.rs"]
mod logits;
mod support;
#[path = "support/tiny.rs"]
mod tiny;

use std::path::Path;

use hexloom_models::gguf::Gguf;
use hexloom_sim::{DmaOptions, DoneCount, SimOptions};
use logits::{TOKENS, logits};
use support::TempFile;
use tiny::Tiny;

/// Compares direct reads with streams; gives the transfers of each set-up.
fn check(path: &Path, set_ups: &[(u32, u64, DmaOptions)]) -> Vec<u64> {
    let gguf = Gguf::open(path).unwrap();
    let wanted = logits(&gguf, SimOptions::default());
    let mut transfers = Vec::new();
    for (n_threads, scratch_bytes, dma) in set_ups {
        let done = DoneCount::default();
        let streamed = SimOptions {
            n_threads: *n_threads,
            scratch_bytes: *scratch_bytes,
            junk_scratch: true,
            dma: Some(DmaOptions {
                done: done.clone(),
                ..dma.clone()
            }),
            ..SimOptions::default()
        };
        let found = logits(&gguf, streamed);
        assert!(
            found == wanted,
            "other logits with {n_threads} threads, {scratch_bytes} bytes of scratch, {dma:?}"
        );
        transfers.push(done.get());
    }
    transfers
}

#[test]
fn logits_of_the_real_model() {
    let Some(path) = support::model("logits_of_the_real_model") else {
        return;
    };
    let v79 = DmaOptions {
        arch: 79,
        ..DmaOptions::default()
    };
    let transfers = check(
        &path,
        &[
            (1, 8 << 20, v79),
            (2, 8 << 20, DmaOptions::default()),
            (3, 8 << 20, DmaOptions::harsh()),
            (4, 1 << 20, DmaOptions::default()),
        ],
    );
    // Groups of 32 rows: 30 layers of 576 x (576 + 2 * 192 + 576) and 3 * 576 x 1536, and the logits' 49,152 rows.
    let groups = 30 * (2 * 18 + 2 * 6 + 2 * 48 + 18) + 1536;
    let evals = 1 + TOKENS.len() as u64;
    assert_eq!(
        transfers[0],
        groups * evals,
        "each group once per step, nothing fetched twice or in vain"
    );
    assert!(transfers.iter().all(|&n| n > 0), "{transfers:?}");
    eprintln!("descriptors: {transfers:?}");
}

#[test]
fn logits_of_a_small_model() {
    let file = TempFile::new(&Tiny::new().file());
    let mut set_ups = Vec::new();
    for n_threads in 1..=4 {
        for scratch_bytes in [8 << 20, 512 << 10] {
            for dma in [DmaOptions::default(), DmaOptions::harsh()] {
                set_ups.push((n_threads, scratch_bytes, dma));
            }
        }
    }
    let transfers = check(file.path(), &set_ups);
    assert!(transfers.iter().all(|&n| n > 0), "{transfers:?}");
}
