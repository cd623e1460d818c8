//! A machine that is as harsh as it gets changes no bit of a model's logits: caches that are not coherent, evictions, late
//! frees, spurious failures, junk in scratch, a DMA engine that is late and out of order. The real model is skipped,
//! loudly, without its file.

#[path = "support/logits.rs"]
mod logits;
mod support;
#[path = "support/tiny.rs"]
mod tiny;

use std::path::Path;

use hexloom_models::gguf::Gguf;
use hexloom_sim::{DmaOptions, SimOptions};
use logits::logits;
use support::TempFile;
use tiny::Tiny;

fn check(path: &Path, seeds: std::ops::Range<u64>, dma: &[Option<DmaOptions>]) {
    let gguf = Gguf::open(path).unwrap();
    let wanted = logits(&gguf, SimOptions::default());
    for seed in seeds {
        for dma in dma {
            let harsh = SimOptions {
                n_threads: 2,
                dma: dma.clone(),
                ..SimOptions::harsh(seed)
            };
            assert!(logits(&gguf, harsh) == wanted, "other logits with seed {seed}, {dma:?}");
        }
    }
}

#[test]
fn logits_of_the_real_model() {
    if let Some(path) = support::model("logits_of_the_real_model") {
        check(&path, 0..1, &[None, Some(DmaOptions::default())]);
    }
}

#[test]
fn logits_of_a_small_model() {
    let file = TempFile::new(&Tiny::new().file());
    check(file.path(), 0..10, &[None, Some(DmaOptions::harsh())]);
}
